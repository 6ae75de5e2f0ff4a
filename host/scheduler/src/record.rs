//! The stored form of an event in the journal: its JSON, including its origin if a gateway in
//! another process relayed it; and the placeholder for an event that the store can't hold.

use serde::Deserialize;
use treadle_core::{DaemonEvent, Event, Origin};
use treadle_store::EventRow;

/// Precedes the origin; no event has a field of this name.
const MARK: &str = ",\"relayed_by\":";
/// Maximum number of characters of a cause.
const CAUSE_CHARS_MAX: usize = 300;

/// The JSON of an event.
pub fn encode(event: &Event, origin: Option<Origin>) -> String {
    let mut body = treadle_core_json::write_event(event);
    if let Some(origin) = origin
        && body.pop() == Some('}')
    {
        body.push_str(MARK);
        body.push_str(&serde_json::to_string(&origin).unwrap_or_default());
        body.push('}');
    }
    body
}

/// Parses an event and its origin.
pub fn decode(body: &str) -> Result<(Event, Option<Origin>), serde_json::Error> {
    #[derive(Deserialize)]
    struct Relayed {
        relayed_by: Option<Origin>,
    }
    let event = treadle_core_json::read_event(body)?;
    // A client's text may contain the mark too, escaped differently or within a string.
    let origin = if body.contains(MARK) {
        serde_json::from_str::<Relayed>(body)?.relayed_by
    } else {
        None
    };
    Ok((event, origin))
}

/// The placeholder in the journal for an event that the store can't hold. It has only the event's
/// number, kind and origin, which every store can hold.
pub fn placeholder(row: &EventRow, cause: &str) -> EventRow {
    let origin = decode(&row.body).ok().and_then(|(_, origin)| origin);
    let event = Event::Daemon(DaemonEvent::RecordRefused {
        kind: plain(&row.kind),
        cause: plain(cause),
    });
    EventRow {
        seq: row.seq,
        // A time that can't be stored is replaced by 0: a replay's time never runs backwards.
        at_us: i64::try_from(row.at_us).map_or(0, |_| row.at_us),
        kind: event.kind().into(),
        job: "default".into(),
        program: None,
        body: encode(&event, origin),
    }
}

/// The start of a text, in characters that every database supports.
fn plain(text: &str) -> Box<str> {
    let plain = text.chars().filter(|c| matches!(c, ' '..='~'));
    let plain: String = plain.take(CAUSE_CHARS_MAX).collect();
    plain.into()
}

#[cfg(test)]
mod tests {
    use treadle_core::programs::ProgramEvent;
    use treadle_model::{GatewayId, StepId};

    use super::*;

    #[test]
    fn a_placeholder_keeps_only_the_origin() {
        let origin = Some(Origin {
            gateway: GatewayId(3),
            number: 17,
        });
        let event = Event::Program(ProgramEvent::ProgramReleased {
            program: "p".repeat(9_000).into(),
            aborted: false,
        });
        let row = EventRow {
            seq: 4,
            at_us: u64::MAX,
            kind: event.kind().into(),
            job: "j\0".into(),
            program: Some("p".repeat(9_000)),
            body: encode(&event, origin),
        };
        let placeholder = placeholder(&row, &format!("too \u{e4}\0long {}", "x".repeat(999)));
        assert_eq!((placeholder.seq, placeholder.at_us), (4, 0));
        assert_eq!(placeholder.kind, "record_refused");
        let (event, kept) = decode(&placeholder.body).expect("JSON");
        assert_eq!(kept, origin);
        let Event::Daemon(DaemonEvent::RecordRefused { kind, cause }) = event else {
            panic!("{event:?}");
        };
        assert_eq!(&*kind, "program_released");
        assert!(cause.starts_with("too long xxx") && cause.len() == CAUSE_CHARS_MAX);
    }

    #[test]
    fn an_event_comes_back_with_its_origin() {
        let origin = Origin {
            gateway: GatewayId(3),
            number: 17,
        };
        let named = Event::Program(ProgramEvent::ProgramReleased {
            program: ",\"relayed_by\":{}".into(),
            aborted: false,
        });
        let step = Event::Program(ProgramEvent::StepFirstToken { step: StepId(9) });
        for event in [Event::Daemon(DaemonEvent::TimerFired), named, step] {
            for origin in [None, Some(origin)] {
                let body = encode(&event, origin);
                assert_eq!(decode(&body).expect("JSON"), (event.clone(), origin));
            }
        }
    }
}
