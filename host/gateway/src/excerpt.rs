//! The excerpt of a request's prompt for a prediction service: its text or its token ids, cut to
//! the beginning and the end if it is long.

use serde_json::Value;
use treadle_scheduler::Excerpt;

/// Most bytes of text of one prompt.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most token ids of one prompt.
const TOKENS_MAX: usize = 4_096;

/// The excerpt of a valid body. A batch of prompts has none.
pub(crate) fn excerpt_of(body: &[u8]) -> Excerpt {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return Excerpt::default();
    };
    let messages = body["messages"].as_array();
    if let Some(messages) = messages.or(body["input"].as_array()) {
        let mut text = String::new();
        let system = plain(&body["system"]).or(plain(&body["instructions"]));
        if let Some(system) = system {
            text = format!("system: {system}\n");
        }
        for message in messages {
            let role = message["role"].as_str().unwrap_or("");
            let content = plain(&message["content"]).unwrap_or_default();
            text.extend([role, ": ", &content, "\n"]);
            if !message["tool_calls"].is_null() {
                text.extend(["calls: ", &message["tool_calls"].to_string(), "\n"]);
            }
        }
        return of_text(&text);
    }
    let fields = ["prompt", "text", "token_ids", "input_ids", "input"].map(|name| &body[name]);
    match fields.into_iter().find(|field| !field.is_null()) {
        Some(Value::String(text)) => of_text(text),
        Some(Value::Array(ids)) => {
            let ids: Option<Vec<u64>> = ids.iter().map(Value::as_u64).collect();
            Excerpt {
                text: None,
                token_ids: ids.map(ends_of),
            }
        }
        _ => Excerpt::default(),
    }
}

/// The text of a content, which is text or a list of parts; other parts are skipped.
fn plain(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            Some(texts.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

fn of_text(text: &str) -> Excerpt {
    let half = TEXT_BYTES_MAX / 2;
    let cut = if text.len() <= TEXT_BYTES_MAX {
        text.to_owned()
    } else {
        let begin = &text[..text.floor_char_boundary(half)];
        let end = &text[text.ceil_char_boundary(text.len() - half)..];
        format!("{begin}{end}")
    };
    Excerpt {
        text: Some(cut),
        token_ids: None,
    }
}

fn ends_of(mut ids: Vec<u64>) -> Vec<u64> {
    if ids.len() > TOKENS_MAX {
        ids.drain(TOKENS_MAX / 2..ids.len() - TOKENS_MAX / 2);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn excerpt(body: &Value) -> Excerpt {
        excerpt_of(body.to_string().as_bytes())
    }

    #[test]
    fn every_shape_of_a_prompt_is_read() {
        let chat = json!({"system": "s", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
        ]});
        let text = "system: s\nuser: a\nassistant: \ncalls: [{\"id\":\"c\"}]\n";
        assert_eq!(excerpt(&chat).text.as_deref(), Some(text));
        assert_eq!(excerpt(&json!({"prompt": "p"})).text.as_deref(), Some("p"));
        assert_eq!(excerpt(&json!({"text": "t"})).text.as_deref(), Some("t"));
        for field in ["prompt", "token_ids", "input_ids"] {
            assert_eq!(excerpt(&json!({field: [5, 6]})).token_ids, Some(vec![5, 6]));
        }
        for none in [
            json!({"prompt": ["a", "b"]}),
            json!({"messages": 5}),
            json!([]),
        ] {
            assert_eq!(excerpt(&none), Excerpt::default(), "{none}");
        }
    }

    #[test]
    fn of_a_long_prompt_both_ends_are_read() {
        let long = format!("begin{}end", "\u{e9}".repeat(TEXT_BYTES_MAX));
        let text = excerpt(&json!({"prompt": long})).text.unwrap();
        assert!(text.len() <= TEXT_BYTES_MAX && text.len() > TEXT_BYTES_MAX - 8);
        assert!(text.starts_with("begin") && text.ends_with("end"));
        let ids: Vec<usize> = (0..3 * TOKENS_MAX).collect();
        let ids = excerpt(&json!({"prompt": ids})).token_ids.unwrap();
        assert_eq!(ids.len(), TOKENS_MAX);
        assert_eq!(ids[TOKENS_MAX / 2 - 1..=TOKENS_MAX / 2], [2_047, 10_240]);
    }
}
