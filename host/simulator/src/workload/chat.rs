//! A run as chat requests. Their prompts have exactly the wanted lengths if four bytes of the
//! rendered prompt are one token, as in the simulated engine.

use serde::Serialize;

use super::AgentRun;
use treadle_engine_model::ANSWER_TAG;
use treadle_engine_model::engine::content_hash;

/// Bytes of rendered prompt per token.
const TOKEN_BYTES: usize = 4;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// The call that a `tool` message answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// Bytes of a rendered message in addition to its content.
fn frame_bytes(role: &str) -> usize {
    role.len() + "<||>\n".len()
}

/// The chat of one run, request by request.
///
/// Call [`next_step`](Self::next_step), send [`body`](Self::body), give the answer's text to
/// [`push_answer`](Self::push_answer), and so on. Where a step reuses less than the whole context,
/// the chat is cut back to what it reuses, in the middle of a message if need be. A step with fewer
/// fresh tokens than its role tags take (about six) is made to fit by cutting that much more.
#[derive(Clone, Debug)]
pub struct ChatScript<'a> {
    run: &'a AgentRun,
    seed: u64,
    next: usize,
    messages: Vec<ChatMessage>,
}

impl<'a> ChatScript<'a> {
    /// The chat before its first step. Runs of one workload must have the same seed.
    pub fn new(run: &'a AgentRun, seed: u64) -> Self {
        Self {
            run,
            seed,
            next: 0,
            messages: Vec::new(),
        }
    }

    /// Prepares the next step's prompt and returns the step's index; `None` after the last.
    pub fn next_step(&mut self) -> Option<usize> {
        let index = self.next;
        let step = *self.run.steps.get(index)?;
        self.next += 1;
        let target = step.input_tokens as usize * TOKEN_BYTES;
        if index == 0 {
            self.push_shared("system", self.run.system_tokens, &[self.seed, 1]);
            let group = u64::from(self.run.group);
            self.push_shared("user", self.run.group_tokens, &[self.seed, 2, group]);
        } else {
            let reuses_all = step.reused_tokens >= self.run.steps[index - 1].context_tokens();
            if !reuses_all {
                self.cut(step.reused_tokens as usize * TOKEN_BYTES);
            }
        }
        self.fill(index, target);
        Some(index)
    }

    /// Adds the model's answer to the step just sent.
    pub fn push_answer(&mut self, text: &str) {
        let content = text.to_owned();
        self.messages.push(ChatMessage {
            role: "assistant",
            content,
            tool_call_id: None,
        });
    }

    /// The chat so far.
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// The step's body for `/v1/chat/completions`, as JSON: `max_tokens` is the step's output, and
    /// a stream ends with the usage.
    pub fn body(&self, model: &str, stream: bool) -> String {
        let step = self
            .next
            .checked_sub(1)
            .and_then(|index| self.run.steps.get(index));
        let body = Body {
            model,
            messages: &self.messages,
            max_tokens: step.map_or(0, |step| step.output_tokens),
            temperature: 0,
            stream,
            stream_options: stream.then_some(StreamOptions {
                include_usage: true,
            }),
        };
        // Serialising strings and numbers can't fail.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Adds a message of exactly `tokens` when rendered; none if its tags take more.
    fn push_shared(&mut self, role: &'static str, tokens: u32, source: &[u64]) {
        let bytes = tokens as usize * TOKEN_BYTES;
        if let Some(length) = bytes.checked_sub(frame_bytes(role)) {
            let content = filler(content_hash(source), length);
            self.messages.push(ChatMessage {
                role,
                content,
                tool_call_id: None,
            });
        }
    }

    /// Adds the step's own message so that the rendering has `target` bytes.
    fn fill(&mut self, index: usize, target: usize) {
        let role = if index == 0 { "user" } else { "tool" };
        let around = frame_bytes(role) + ANSWER_TAG.len();
        if self.rendered_bytes() + around > target {
            // One byte for the line break that ends a message cut in two.
            self.cut(target.saturating_sub(around + 1));
        }
        let length = target.saturating_sub(self.rendered_bytes() + around);
        let run = content_hash(&self.run.id.bytes().map(u64::from).collect::<Vec<_>>());
        let content = filler(content_hash(&[self.seed, 3, run, index as u64]), length);
        let tool_call_id = (role == "tool").then(|| format!("call_{index}"));
        self.messages.push(ChatMessage {
            role,
            content,
            tool_call_id,
        });
    }

    fn rendered_bytes(&self) -> usize {
        self.messages
            .iter()
            .map(|each| frame_bytes(each.role) + each.content.len())
            .sum()
    }

    /// Keeps the first `bytes` of the rendering. A message is removed if only its tag would be
    /// left.
    fn cut(&mut self, bytes: usize) {
        let mut start = 0;
        for place in 0..self.messages.len() {
            let message = &mut self.messages[place];
            let end = start + frame_bytes(message.role) + message.content.len();
            if end > bytes {
                let content_start = start + frame_bytes(message.role) - 1;
                let wanted = bytes
                    .saturating_sub(content_start)
                    .min(message.content.len());
                message
                    .content
                    .truncate(message.content.floor_char_boundary(wanted));
                let kept = place + usize::from(!message.content.is_empty());
                self.messages.truncate(kept);
                return;
            }
            start = end;
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [ChatMessage],
    max_tokens: u32,
    temperature: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// Deterministic text of exactly `bytes` ASCII characters: short words, one space after each.
fn filler(source: u64, bytes: usize) -> String {
    const SYLLABLES: &[u8] = b"ba be bi bo da de di do fa fe fi fo ga ge ka ke la le mi mo";
    let mut text = String::with_capacity(bytes + 24);
    let mut counter = 0;
    while text.len() < bytes {
        let mut word = content_hash(&[source, counter]);
        counter += 1;
        for _ in 0..8 {
            // Twenty syllables of two letters, three characters apart.
            let place = (word % 20) as usize * 3;
            word >>= 8;
            text.push(char::from(SYLLABLES[place]));
            text.push(char::from(SYLLABLES[place + 1]));
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::AgentStep;
    use super::*;
    use treadle_engine_model::render_prompt;

    fn rendered(script: &ChatScript<'_>) -> Vec<u8> {
        render_prompt(
            script
                .messages()
                .iter()
                .map(|each| (each.role, each.content.as_str())),
        )
    }

    fn common(one: &[u8], other: &[u8]) -> usize {
        one.iter().zip(other).take_while(|(a, b)| a == b).count()
    }

    fn run(id: &str, group: u32, steps: Vec<AgentStep>) -> AgentRun {
        AgentRun {
            id: id.to_owned(),
            group,
            system_tokens: 50,
            group_tokens: 30,
            steps,
        }
    }

    #[test]
    fn first_prompts_share_system_and_group() {
        let step = AgentStep {
            input_tokens: 200,
            reused_tokens: 0,
            output_tokens: 4,
            ..AgentStep::default()
        };
        let prompt = |id, group| {
            let run = run(id, group, vec![step]);
            let mut script = ChatScript::new(&run, 9);
            script.next_step();
            rendered(&script)
        };
        let (a, b, c) = (prompt("a", 0), prompt("b", 0), prompt("c", 1));
        assert!(a.len() == 800 && (320..400).contains(&common(&a, &b)));
        assert!((200..320).contains(&common(&a, &c)));
    }

    #[test]
    fn the_body_asks_for_the_step() {
        let step = AgentStep {
            input_tokens: 200,
            reused_tokens: 0,
            output_tokens: 4,
            ..AgentStep::default()
        };
        let run = run("a", 0, vec![step]);
        let mut script = ChatScript::new(&run, 9);
        script.next_step();
        let body: serde_json::Value = serde_json::from_str(&script.body("m", true)).unwrap();
        assert_eq!(body["max_tokens"], 4);
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["messages"][0]["role"], "system");
        assert_eq!(script.next_step(), None);
    }

    proptest! {
        #[test]
        fn prompts_have_the_wanted_length_and_share_what_they_reuse(
            lengths in prop::collection::vec((8_u32..90, 1_u32..50, 0.3_f64..1.6), 1..10),
        ) {
            let step = |input_tokens, reused_tokens, output_tokens| AgentStep {
                input_tokens, reused_tokens, output_tokens, ..AgentStep::default()
            };
            let mut steps = vec![step(120, 0, 10)];
            for (fresh, output, keep) in lengths {
                let context = steps[steps.len() - 1].context_tokens();
                let reused = (f64::from(context) * keep.min(1.0)) as u32;
                steps.push(step(reused + fresh, reused, output));
            }
            let run = run("a", 0, steps);
            let mut script = ChatScript::new(&run, 9);
            let mut before: Vec<u8> = Vec::new();
            while let Some(index) = script.next_step() {
                let step = run.steps[index];
                let prompt = rendered(&script);
                prop_assert_eq!(prompt.len(), step.input_tokens as usize * TOKEN_BYTES);
                let shared = common(&before, &prompt);
                let wanted = step.reused_tokens as usize * TOKEN_BYTES;
                // A cut inside a role tag loses the tag.
                prop_assert!(shared + ANSWER_TAG.len() >= wanted, "{} of {}", shared, wanted);
                let answer = "x".repeat(step.output_tokens as usize * TOKEN_BYTES);
                script.push_answer(&answer);
                before = prompt;
                before.extend_from_slice(answer.as_bytes());
            }
        }
    }
}
