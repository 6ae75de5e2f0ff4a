//! Learns how many tokens a model's prompts have before its first request: engines with `/tokenize`
//! count sample conversations. For other engines it is learnt from requests.

use super::adapter::fetch;
use http::Method;
use serde_json::{Value, json};
use treadle_core::Event;
use treadle_core::estimates::TextSize;
use treadle_core::programs::ProgramEvent;
use treadle_http::Upstream;
use treadle_model::{EngineKind, NAME_BYTES_MAX};
use treadle_wire::{Endpoint, RequestHead, models_of};

/// Most models of one engine that are sampled.
const MODELS_MAX: usize = 8;
/// Typical agent text: prose, code and tool output.
const TEXT: &str = r#"You are working in a repository with failing tests. Read the error first, find
its cause, and change as little as you can; explain what you did in two sentences.

```python
def merge(left: list[int], right: list[int]) -> list[int]:
    """Merges two sorted lists into one."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]
```

{"tool": "run_tests", "exit_code": 1, "stdout": "tests/test_merge.py::test_empty PASSED\n
tests/test_merge.py::test_duplicates FAILED\n  assert [1, 1, 2] == [1, 2, 2]\n", "seconds": 4.27}
"#;

/// Sample conversations: the short ones show the fixed costs, the long one the cost per byte.
fn conversations() -> [Value; 3] {
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    [
        json!([message("user", "hi")]),
        json!([
            message("user", "What is the capital of France?"),
            message("assistant", "Paris."),
            message("user", "And of Peru?"),
            message("assistant", "Lima."),
            message("user", "Which of the two has more inhabitants?"),
        ]),
        json!([message("user", &TEXT.repeat(4))]),
    ]
}

/// Lets an engine count the samples for each of its models.
pub(super) async fn count_samples(upstream: &Upstream, url: &str, kind: EngineKind) -> Vec<Event> {
    let Ok((_, page)) = fetch(upstream, Method::GET, url, "/v1/models", None).await else {
        return Vec::new();
    };
    let mut counted = Vec::new();
    for model in models_of(&page).into_iter().take(MODELS_MAX) {
        if model.id.len() > NAME_BYTES_MAX {
            continue;
        }
        for messages in conversations() {
            let request = json!({"model": model.id, "messages": messages});
            let Some(tokens) = count(upstream, url, kind, &request).await else {
                return counted;
            };
            let Ok(head) =
                RequestHead::parse(Endpoint::ChatCompletions, request.to_string().as_bytes())
            else {
                return counted;
            };
            counted.push(Event::Program(ProgramEvent::PromptCounted {
                model: model.id.as_str().into(),
                size: TextSize {
                    bytes: head.prompt.bytes,
                    messages: head.prompt.messages,
                },
                tokens,
            }));
        }
    }
    counted
}

async fn count(upstream: &Upstream, url: &str, kind: EngineKind, request: &Value) -> Option<u64> {
    let post = async |path: &str, body: &Value| {
        let answer = fetch(upstream, Method::POST, url, path, Some(body)).await;
        let (_, page) = answer.ok().filter(|(status, _)| status.is_success())?;
        serde_json::from_slice::<Value>(&page).ok()
    };
    match kind {
        EngineKind::Vllm => post("/tokenize", request).await?["count"].as_u64(),
        EngineKind::Llamacpp => {
            let rendered = post("/apply-template", request).await?;
            let text = json!({
                "content": rendered["prompt"], "add_special": true, "parse_special": true,
            });
            let ids = post("/tokenize", &text).await?;
            Some(ids["tokens"].as_array()?.len() as u64)
        }
        EngineKind::Sglang | EngineKind::Openai => None,
    }
}
