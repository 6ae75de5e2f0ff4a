//! The messages of a stream.

use crate::payloads::digest_text;
use serde::Serialize;
use std::sync::Arc;
use treadle_core::training::MemberRef;
use treadle_model::tenant::split;
use treadle_samples::{Begins, Placed, Step};

/// Most tokens of a chunk.
const CHUNK_TOKENS: usize = 8_192;

/// A message that is not written yet.
pub(super) enum Item {
    /// A message as it is.
    Message(Message),
    /// Some of the tokens that a step adds: from this one, counted from the first.
    Chunk(Arc<NewTokens>, usize),
}

/// A message: its kind and its JSON.
pub(super) struct Message {
    pub(super) kind: &'static str,
    pub(super) data: String,
}

impl Message {
    pub(super) fn new(kind: &'static str, data: &impl Serialize) -> Self {
        // Numbers and strings always have a JSON form.
        let data = serde_json::to_string(data).unwrap_or_default();
        Self { kind, data }
    }
}

impl Item {
    pub(super) fn message(kind: &'static str, data: &impl Serialize) -> Self {
        Self::Message(Message::new(kind, data))
    }

    /// The message.
    pub(super) fn written(self) -> Message {
        match self {
            Self::Message(message) => message,
            Self::Chunk(tokens, from) => Message::new("chunk", &tokens.chunk(from)),
        }
    }
}

/// A program and its group.
#[derive(Clone, Serialize)]
pub(super) struct Who {
    /// The program.
    program: String,
    /// Its group.
    group: String,
}

impl Who {
    pub(super) fn of(member: &MemberRef) -> Self {
        Self {
            program: split(&member.program).1.to_owned(),
            group: member.group.to_string(),
        }
    }
}

/// What a step adds to a sequence.
pub(super) struct NewTokens {
    who: Who,
    output: usize,
    placed: Placed,
    step: Step,
}

/// A sequence begins.
#[derive(Serialize)]
pub(super) struct StreamSequence<'a> {
    #[serde(flatten)]
    who: &'a Who,
    /// Number of the call whose step begins it.
    step: u64,
    /// Which output of the call.
    output: usize,
    /// Its number within the member.
    sequence: usize,
    /// first; break: the step continues no earlier one; or branch: it continues one that another
    /// step has continued.
    why: &'static str,
    /// For a branch, the sequence whose first tokens it begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<usize>,
    /// For a branch, how many tokens these are, else 0: chunks begin there.
    start: usize,
}

/// Tokens that a step adds to a sequence.
#[derive(Serialize)]
pub(super) struct StreamChunk<'a> {
    #[serde(flatten)]
    who: &'a Who,
    /// Number of the call.
    step: u64,
    /// Which output of the call.
    output: usize,
    /// The sequence.
    sequence: usize,
    /// Position of the first token in the sequence.
    start: usize,
    /// Ids of the tokens.
    ids: Vec<i32>,
    /// First position of tokens that the step sampled, and one past the last: the loss mask.
    sampled: [usize; 2],
    /// Log-probability of each sampled token.
    logprobs: &'a [f32],
    /// First position, one past the last, the oldest and the newest version that may have sampled
    /// these.
    versions: Vec<[u64; 4]>,
    /// Images and audio of the prompt, by position and digest; in the first chunk of a step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<StreamMedium>,
    /// Whether it is the last one of the step.
    last: bool,
}

/// An image or a piece of audio in a prompt.
#[derive(Serialize)]
struct StreamMedium {
    /// Position of its first token; its place among all of them if the ids do not show it.
    position: usize,
    /// SHA-256 of its content, or of its URL.
    digest: String,
}

impl NewTokens {
    pub(super) fn new(who: Who, output: usize, placed: Placed, step: Step) -> Self {
        Self {
            who,
            output,
            placed,
            step,
        }
    }

    /// The messages of it.
    pub(super) fn items(self) -> Vec<Item> {
        let begins = self
            .sequence()
            .map(|began| Item::message("sequence", &began));
        let added = self.step.context_len() - self.placed.start;
        let tokens = Arc::new(self);
        let chunks = (0..added).step_by(CHUNK_TOKENS);
        let chunks = chunks.map(|from| Item::Chunk(tokens.clone(), from));
        begins.into_iter().chain(chunks).collect()
    }

    fn sequence(&self) -> Option<StreamSequence<'_>> {
        let (why, from) = match self.placed.begins? {
            Begins::First => ("first", None),
            Begins::Break => ("break", None),
            Begins::Branch { sequence, .. } => ("branch", Some(sequence)),
        };
        Some(StreamSequence {
            who: &self.who,
            step: self.step.number,
            output: self.output,
            sequence: self.placed.sequence,
            why,
            from,
            start: self.placed.start,
        })
    }

    fn chunk(&self, from: usize) -> StreamChunk<'_> {
        let prompt = self.step.prompt.len();
        let start = self.placed.start + from;
        let end = self.step.context_len().min(start + CHUNK_TOKENS);
        let within = |position: usize| position.clamp(start, end);
        // What another model sampled is context.
        let is_own = !self.step.foreign;
        let sampled = if is_own { within(prompt) } else { end };
        let of_output = |position: usize| position.saturating_sub(prompt);
        let spans = self.step.versions.iter().filter(|_| is_own).map(|span| {
            let [first, past] = [span.start, span.end].map(|at| within(prompt + at));
            [first as u64, past as u64, span.version, span.newest]
        });
        let media = self.step.media.iter().filter(|_| from == 0);
        StreamChunk {
            who: &self.who,
            step: self.step.number,
            output: self.output,
            sequence: self.placed.sequence,
            start,
            ids: self.step.context().skip(start).take(end - start).collect(),
            sampled: [sampled, end],
            logprobs: &self.step.logprobs[of_output(sampled)..of_output(end)],
            versions: spans.filter(|span| span[0] < span[1]).collect(),
            media: media
                .map(|medium| StreamMedium {
                    position: medium.position,
                    digest: digest_text(&medium.digest),
                })
                .collect(),
            last: end == self.step.context_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use treadle_samples::{Growing, Span};

    /// The messages of a step as the first of its program.
    fn messages(step: Step) -> Vec<(&'static str, Value)> {
        let who = Who {
            program: "p".to_owned(),
            group: "g".to_owned(),
        };
        let placed = Growing::default().add(&step, 0);
        let items = NewTokens::new(who, 0, placed, step).items().into_iter();
        let read = |text: &str| serde_json::from_str(text).expect("JSON");
        items
            .map(|item| {
                let said = item.written();
                (said.kind, read(&said.data))
            })
            .collect()
    }

    #[test]
    fn what_another_model_sampled_is_not_to_be_trained() {
        let step = Step {
            prompt: vec![1, 2],
            output: vec![3],
            logprobs: vec![-0.5],
            versions: vec![Span::whole(&[3], 0)],
            foreign: true,
            ..Step::default()
        };
        let (_, chunk) = &messages(step)[1];
        assert_eq!(chunk["ids"], json!([1, 2, 3]));
        assert_eq!(chunk["sampled"], json!([3, 3]));
        assert_eq!(chunk["logprobs"], json!([]));
        assert_eq!(chunk["versions"], json!([]));
    }

    #[test]
    fn long_steps_come_in_chunks_that_join_without_a_gap() {
        let (prompt, output) = (CHUNK_TOKENS + 100, 2 * CHUNK_TOKENS);
        let span = |start, end, version| Span {
            start,
            end,
            version,
            newest: version,
        };
        let step = Step {
            number: 7,
            prompt: (0..).take(prompt).collect(),
            output: (0..).take(output).map(|n: i32| -n).collect(),
            logprobs: (0..output).map(|n| n as f32 / 7.0).collect(),
            versions: vec![span(0, 10_000, 3), span(10_000, output, 4)],
            ..Step::default()
        };
        let messages = messages(step.clone());
        let kinds: Vec<&str> = messages.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["sequence", "chunk", "chunk", "chunk", "chunk"]);
        let (mut ids, mut logprobs, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        for (_, chunk) in &messages[1..] {
            assert_eq!(chunk["start"], ids.len(), "{}", chunk["start"]);
            let numbers = |field: &str| chunk[field].as_array().expect("a list").clone();
            ids.extend(numbers("ids"));
            let sampled = &chunk["sampled"];
            let [from, to] = [0, 1].map(|at| sampled[at].as_u64().expect("a number") as usize);
            assert_eq!(to, ids.len());
            assert_eq!(
                from,
                prompt.clamp(chunk["start"].as_u64().unwrap_or(0) as usize, to)
            );
            assert_eq!(numbers("logprobs").len(), to - from);
            logprobs.extend(numbers("logprobs"));
            versions.extend(numbers("versions"));
            assert_eq!(chunk["last"], ids.len() == prompt + output);
        }
        assert_eq!(ids, step.context().map(Value::from).collect::<Vec<_>>());
        let read = logprobs
            .iter()
            .map(|p| p.as_f64().expect("a number") as f32);
        assert!(read.eq(step.logprobs), "bit by bit");
        let [a, b] = [2, 3].map(|n| n * CHUNK_TOKENS);
        let turn = prompt + 10_000;
        let expected = json!([
            [prompt, a, 3, 3],
            [a, turn, 3, 3],
            [turn, b, 4, 4],
            [b, prompt + output, 4, 4]
        ]);
        assert_eq!(json!(versions), expected);
    }
}
