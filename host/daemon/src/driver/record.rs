//! How an event stands in the journal: its JSON, with its origin beside its
//! own fields if a gateway in another process relayed it.

use serde::Deserialize;
use treadle_core::{Event, Origin};

/// What stands before the origin; no event has a field of this name.
const MARK: &str = ",\"relayed_by\":";

/// The JSON of an event.
pub(crate) fn encode(event: &Event, origin: Option<Origin>) -> String {
    // Events hold words and numbers only, which always have a JSON form.
    let mut body = serde_json::to_string(event).unwrap_or_default();
    if let Some(origin) = origin
        && body.pop() == Some('}')
    {
        body.push_str(MARK);
        body.push_str(&serde_json::to_string(&origin).unwrap_or_default());
        body.push('}');
    }
    body
}

/// An event and its origin, from its JSON.
pub(crate) fn decode(body: &str) -> Result<(Event, Option<Origin>), serde_json::Error> {
    #[derive(Deserialize)]
    struct Relayed {
        relayed_by: Option<Origin>,
    }
    let event = serde_json::from_str(body)?;
    // A client's text may hold the mark too, escaped differently or within a string.
    let origin = if body.contains(MARK) {
        serde_json::from_str::<Relayed>(body)?.relayed_by
    } else {
        None
    };
    Ok((event, origin))
}

#[cfg(test)]
mod tests {
    use treadle_model::{GatewayId, StepId};

    use super::*;

    #[test]
    fn an_event_comes_back_with_its_origin() {
        let origin = Origin {
            gateway: GatewayId(3),
            number: 17,
        };
        let named = Event::ProgramReleased {
            program: ",\"relayed_by\":{}".into(),
        };
        let step = Event::StepFirstToken { step: StepId(9) };
        for event in [Event::TimerFired, named, step] {
            for origin in [None, Some(origin)] {
                let body = encode(&event, origin);
                assert_eq!(decode(&body).expect("JSON"), (event.clone(), origin));
            }
        }
    }
}
