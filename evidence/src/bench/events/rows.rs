//! Rows as a daemon writes them: the life of a step, over and over.

use treadle_store::EventRow;

/// Programs that take turns.
const PROGRAMS: u64 = 300;
/// Events of one step.
const KINDS: u64 = 4;

/// The event with this number.
pub(super) fn row(seq: u64) -> EventRow {
    let step = seq / KINDS;
    let program = format!("math-rollout-{}", step % PROGRAMS);
    let (kind, body) = match seq % KINDS {
        0 => (
            "step_arrived",
            format!(
                "{{\"event\":\"step_arrived\",\"step\":{step},\"program\":\"{program}\",\
                 \"job\":\"math\",\"prompt_tokens\":1840,\"exact\":true,\"prompt_bytes\":7360,\
                 \"output_tokens_max\":512,\"prefix\":[{{\"hash\":17293822569102704640,\
                 \"tokens\":512}}],\"one_shot\":false,\"inferred\":false}}"
            ),
        ),
        1 => (
            "step_first_token",
            format!("{{\"event\":\"step_first_token\",\"step\":{step}}}"),
        ),
        2 => (
            "step_progressed",
            format!("{{\"event\":\"step_progressed\",\"step\":{step},\"output_tokens\":64}}"),
        ),
        _ => (
            "step_finished",
            format!(
                "{{\"event\":\"step_finished\",\"step\":{step},\"tokens\":{{\"prompt\":1840,\
                 \"output\":128,\"cached\":1792}},\"finish\":\"stop\"}}"
            ),
        ),
    };
    EventRow {
        seq,
        at_us: 1_767_225_600_000_000 + seq * 100,
        kind: kind.into(),
        job: "math".into(),
        program: Some(program),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_their_kind() {
        for seq in 1..=KINDS {
            let row = row(seq);
            let body: serde_json::Value = serde_json::from_str(&row.body).expect("JSON");
            assert_eq!(body["event"], row.kind.as_str());
        }
    }
}
