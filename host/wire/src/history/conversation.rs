//! The conversation of a chat request, and which answer it continues.

use super::as_sent::AsSent;
use super::message::{AnswerMessage, Mark, hash_of};
use serde_json::{Map, Value};

/// Fields that a request may have and be continued by tokens: those that say what is sampled how.
/// Any other may be read in another way at the paths for token ids.
const FIELDS: [&str; 34] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "reasoning_effort",
    "separate_reasoning",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "priority",
    "cache_salt",
    "request_id",
    "rid",
    "user",
    "metadata",
    "store",
    // These are for treadle.
    "program_id",
    "session_id",
    "parent_program_id",
    "agent_hint",
];
/// Fields that mean nothing if they are off.
const SWITCHES: [&str; 5] = [
    "logprobs",
    "return_token_ids",
    "continue_final_message",
    "ignore_eos",
    "include_stop_str_in_output",
];
/// What the template sees beside messages and tools.
const SETTINGS: [&str; 5] = [
    "model",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "documents",
];

/// A chat request.
#[derive(Debug)]
pub struct Conversation {
    pub(super) request: Map<String, Value>,
    marks: Vec<Mark>,
    tools: u64,
    settings: u64,
}

/// A request with its answer, as far as a later request is compared with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnsweredConversation {
    marks: Vec<Mark>,
    tools: u64,
    settings: u64,
    /// The answer ended by itself, and its client got all of it.
    is_whole: bool,
}

impl AnsweredConversation {
    /// Messages, the answer included.
    pub fn messages(&self) -> usize {
        self.marks.len()
    }
}

impl Conversation {
    /// `None` if the body is no chat request.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let request: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let messages = request.get("messages")?.as_array()?;
        let marks = messages.iter().map(Mark::of).collect();
        let part = |names: &[&str]| {
            let own = names
                .iter()
                .filter_map(|name| Some((*name, request.get(*name)?)));
            let own = own.filter(|(_, value)| !value.is_null());
            let own = own.map(|(name, value)| (name.to_owned(), value.clone()));
            hash_of(&Value::Object(own.collect()))
        };
        Some(Self {
            marks,
            tools: part(&["tools"]),
            settings: part(&SETTINGS),
            request,
        })
    }

    pub(super) fn messages(&self) -> &[Value] {
        let messages = self.request.get("messages").and_then(Value::as_array);
        messages.map_or(&[], Vec::as_slice)
    }

    /// Where the last answer is; `None` before the first.
    pub(super) fn answer_at(&self) -> Option<usize> {
        let is_answer = |message: &Value| message["role"] == "assistant";
        self.messages().iter().rposition(is_answer)
    }

    /// Whether it has an answer to continue.
    pub fn has_answer(&self) -> bool {
        self.answer_at().is_some()
    }

    /// What this becomes with its answer.
    pub fn answered(&self, answer: AnswerMessage) -> AnsweredConversation {
        let mut marks = self.marks.clone();
        marks.push(answer.mark);
        AnsweredConversation {
            marks,
            tools: self.tools,
            settings: self.settings,
            is_whole: answer.is_ended && !self.filters_calls(),
        }
    }

    /// The place of the answer that it continues, among those that are held; of equal ones the last.
    ///
    /// # Errors
    /// Why it is sent as it is.
    pub fn continued<'s>(
        &self,
        held: impl DoubleEndedIterator<Item = &'s AnsweredConversation> + ExactSizeIterator,
    ) -> Result<usize, AsSent> {
        let Some(answer) = self.answer_at() else {
            return Err(AsSent::NotHeld);
        };
        self.check(answer)?;
        let mut found = AsSent::NotHeld;
        for (place, said) in held.enumerate().rev() {
            if said.marks.len() != answer + 1 || !said.marks[answer].says(self.marks[answer]) {
                continue;
            }
            let mut pairs = said.marks.iter().zip(&self.marks);
            if !pairs.all(|(said, again)| said.is_sent_as(*again)) {
                found = AsSent::Edited;
            } else if said.tools != self.tools {
                found = AsSent::Tools;
            } else if said.settings != self.settings {
                found = AsSent::Settings;
            } else if !said.is_whole {
                found = AsSent::Cut;
            } else {
                return Ok(place);
            }
        }
        Err(found)
    }

    /// What keeps this request from being continued by tokens.
    fn check(&self, answer: usize) -> Result<(), AsSent> {
        let messages = self.messages();
        if answer + 1 == messages.len() {
            return Err(AsSent::Prefill);
        }
        if !messages.iter().all(is_text) {
            return Err(AsSent::Media);
        }
        let set = |name: &str| self.request.get(name).filter(|value| !value.is_null());
        if set("n").is_some_and(|n| *n != 1) {
            return Err(AsSent::Several);
        }
        let is_free = set("tool_choice").is_none_or(|choice| choice == "auto");
        let is_known = |(name, value): (&String, &Value)| {
            let name = name.as_str();
            let is_off = *value == false && SWITCHES.contains(&name);
            let is_default = *value == true && name == "include_reasoning";
            value.is_null() || is_off || is_default || FIELDS.contains(&name)
        };
        if !is_free || self.filters_calls() || !self.request.iter().all(is_known) {
            return Err(AsSent::Field);
        }
        Ok(())
    }

    /// Whether its client gets at most the first of the answer's calls.
    fn filters_calls(&self) -> bool {
        self.request.get("parallel_tool_calls") == Some(&Value::Bool(false))
    }
}

/// Whether this is a message with nothing but text and calls.
fn is_text(message: &Value) -> bool {
    match message.as_object().map(|fields| fields.get("content")) {
        Some(None | Some(Value::Null | Value::String(_))) => true,
        Some(Some(Value::Array(parts))) => parts.iter().all(|part| part["type"] == "text"),
        _ => false,
    }
}
