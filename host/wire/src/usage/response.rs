//! The parts of a `/v1/responses` response with its usage and its end.

use super::Finish;
use super::lenient::{Lenient, Many, One, Reason, lenient};
use super::reply::Usage;
use serde::{Deserialize, Deserializer};

/// The answer within an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) usage: One<Usage>,
    status: Status,
    output: Many<OutputItem>,
    incomplete_details: One<Incomplete>,
}

/// Why it is incomplete.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct Incomplete {
    reason: Reason,
}

/// Its status; `None` while it is in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Status(Option<Finish>);

impl Lenient<'_> for Status {
    fn of_text(text: &str) -> Self {
        Status(match text {
            "completed" => Some(Finish::Stop),
            "incomplete" => Some(Finish::Length),
            "failed" | "cancelled" => Some(Finish::Abort),
            _ => None,
        })
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// A part of it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputItem {
    #[serde(rename = "type")]
    kind: ItemKind,
}

/// Whether it calls a tool.
#[derive(Clone, Copy, Debug, Default)]
struct ItemKind(bool);

impl Lenient<'_> for ItemKind {
    fn of_text(text: &str) -> Self {
        ItemKind(matches!(text, "function_call" | "custom_tool_call"))
    }
}

impl<'de> Deserialize<'de> for ItemKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

impl Response {
    pub(super) fn finish(&self) -> Option<Finish> {
        finish_of_response(self.status, &self.output.0, self.incomplete_details.0)
    }
}

/// How an answer ended, by its status and its items.
pub(super) fn finish_of_response(
    status: Status,
    output: &[OutputItem],
    details: Incomplete,
) -> Option<Finish> {
    let calls = output.iter().any(|item| item.kind.0);
    match status.0? {
        Finish::Stop if calls => Some(Finish::ToolCalls),
        Finish::Length => details.reason.0.or(Some(Finish::Length)),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Endpoint, Finish, StreamUsage, usage_of_body};
    use serde_json::{Value, json};

    fn response(status: &str, output: &Value, reason: Option<&str>) -> Value {
        json!({
            "id": "r", "object": "response", "status": status, "output": output, "error": null,
            "incomplete_details": reason.map(|reason| json!({"reason": reason})),
            "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13,
                "input_tokens_details": {"cached_tokens": 8}},
        })
    }

    #[test]
    fn an_answer_tells_its_cost_and_its_end() {
        let (none, calls) = (
            json!([]),
            json!([{"type": "message"}, {"type": "function_call"}]),
        );
        for (status, output, reason, finish) in [
            ("completed", &none, None, Finish::Stop),
            ("completed", &calls, None, Finish::ToolCalls),
            (
                "incomplete",
                &none,
                Some("max_output_tokens"),
                Finish::Length,
            ),
            ("incomplete", &none, Some("content_filter"), Finish::Other),
            ("failed", &none, None, Finish::Abort),
        ] {
            let response = response(status, output, reason);
            let whole = usage_of_body(Endpoint::Responses, response.to_string().as_bytes());
            let mut stream = StreamUsage::new(Endpoint::Responses);
            let begun = json!({"type": "response.created", "response": {"status": "in_progress"}});
            let delta = json!({"type": "response.output_text.delta", "delta": "so"});
            let last = json!({"type": format!("response.{status}"), "response": response});
            for (event, seen) in [(&begun, 0), (&delta, 1), (&delta, 2)] {
                stream.observe(event.to_string().as_bytes());
                assert_eq!(
                    (stream.output_tokens_seen(), stream.usage().finish),
                    (seen, None)
                );
            }
            stream.observe(last.to_string().as_bytes());
            for usage in [whole.expect("an account"), stream.usage()] {
                assert_eq!(usage.finish, Some(finish), "{status}");
                assert_eq!(usage.prompt_tokens, Some(10));
                assert_eq!(
                    (usage.output_tokens, usage.cached_tokens),
                    (Some(3), Some(8))
                );
            }
        }
    }
}
