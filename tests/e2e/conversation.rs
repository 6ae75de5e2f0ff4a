//! Conversations with real engines: each step's prompt is the whole history, token by token in
//! one half of the programs and as messages in the other.

use serde_json::{Value, json};
use treadle_tests::support::client::{Client, Ended};
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, streamed};

/// Steps of a conversation.
pub(crate) const STEPS: usize = 5;
/// Tokens that each answer has.
const ANSWER_TOKENS: u64 = 8;

/// How a program talks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// Token ids.
    Ids,
    /// Messages.
    Messages,
}

/// One program's plan.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) program: String,
    pub(crate) form: Form,
    streaming: bool,
    number: u32,
}

/// What the engine counted in one step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
}

impl Conversation {
    /// The plan of the program of this number: every combination of form and streaming.
    pub(crate) fn plan(number: u32) -> Self {
        Self {
            program: format!("program-{number}"),
            form: if number.is_multiple_of(2) {
                Form::Ids
            } else {
                Form::Messages
            },
            streaming: (number / 2).is_multiple_of(2),
            number,
        }
    }

    /// Talks through all steps, with a tool call between two, and gives what was counted.
    pub(crate) async fn hold(self, client: Client, model: String) -> Vec<Usage> {
        let mut history = History::new(self.number, self.form);
        let mut counted = Vec::new();
        for step in 0..STEPS {
            let mut body = history.request(&model);
            body["program_id"] = json!(self.program);
            let path = if self.form == Form::Ids {
                COMPLETIONS
            } else {
                CHAT
            };
            let events = if self.streaming {
                let ended = client.stream(path, &streamed(body)).await.finish().await;
                assert!(ended.is_done() && !ended.broken, "{}", self.program);
                events_of(&ended)
            } else {
                vec![client.post(path, &body).await.ok()]
            };
            counted.push(usage(&events));
            history.take(&events, step);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        counted
    }
}

fn events_of(ended: &Ended) -> Vec<Value> {
    ended.objects()
}

pub(crate) fn usage(events: &[Value]) -> Usage {
    let told = events.iter().rev().find(|event| event["usage"].is_object());
    let told = &told.expect("usage")["usage"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    Usage {
        prompt: count(&told["prompt_tokens"]),
        output: count(&told["completion_tokens"]),
        cached: count(&told["prompt_tokens_details"]["cached_tokens"]),
    }
}

/// A program's requests and answers so far.
struct History {
    number: u32,
    ids: Vec<u32>,
    messages: Vec<Value>,
    form: Form,
}

impl History {
    fn new(number: u32, form: Form) -> Self {
        let task = text(number, 0, 60);
        Self {
            number,
            ids: ids(number, 0, 150),
            messages: vec![json!({"role": "user", "content": task})],
            form,
        }
    }

    fn request(&self, model: &str) -> Value {
        let mut body = json!({
            "model": model, "max_tokens": ANSWER_TOKENS, "ignore_eos": true, "temperature": 0,
        });
        match self.form {
            Form::Ids => {
                body["prompt"] = json!(self.ids);
                // Two ways to learn the ids of the answer; each engine knows one.
                body["return_token_ids"] = json!(true);
                body["logprobs"] = json!(1);
            }
            Form::Messages => body["messages"] = json!(self.messages),
        }
        body
    }

    /// Adds the answer and the result of the tool call that follows it.
    fn take(&mut self, events: &[Value], step: usize) {
        let choices = || events.iter().map(|event| &event["choices"][0]);
        match self.form {
            Form::Ids => {
                let answer: Vec<u32> = choices().flat_map(answer_ids).collect();
                assert_eq!(answer.len() as u64, ANSWER_TOKENS);
                self.ids.extend(answer);
                self.ids.extend(ids(self.number, step + 1, 60));
            }
            Form::Messages => {
                let piece = |choice: &Value| {
                    let message = choice.get("message").or_else(|| choice.get("delta"));
                    message.and_then(|m| Some(m["content"].as_str()?.to_owned()))
                };
                let answer: String = choices().filter_map(piece).collect();
                self.messages
                    .push(json!({"role": "assistant", "content": answer}));
                let result = text(self.number, step + 1, 20);
                self.messages
                    .push(json!({"role": "user", "content": result}));
            }
        }
    }
}

pub(crate) fn answer_ids(choice: &Value) -> Vec<u32> {
    let number = |id: &Value| id.as_u64().map(|id| id as u32);
    if let Some(ids) = choice["token_ids"].as_array() {
        return ids.iter().filter_map(number).collect();
    }
    let content = choice["logprobs"]["content"].as_array();
    content.map_or_else(Vec::new, |all| {
        all.iter().filter_map(|t| number(&t["id"])).collect()
    })
}

/// Numbers that differ from program to program and from step to step.
fn numbers(number: u32, step: usize) -> impl Iterator<Item = u32> {
    let mut state = number * 7_919 + step as u32 * 104_729 + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    })
}

/// Token ids that every vocabulary has.
pub(crate) fn ids(number: u32, step: usize, count: usize) -> Vec<u32> {
    numbers(number, step)
        .map(|n| 10 + n % 400)
        .take(count)
        .collect()
}

fn text(number: u32, step: usize, words: usize) -> String {
    let word = |n: u32| ["bado", "fego", "kimu", "lopa", "nizu", "rate", "sova"][n as usize % 7];
    let words: Vec<_> = numbers(number, step).map(word).take(words).collect();
    words.join(" ")
}
