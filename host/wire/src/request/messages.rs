//! Prompts given as a list of messages.

use super::prefix_hasher::Chain;
use super::value_hash::{ValueHash, mix};
use super::{CHAIN_MESSAGES_MAX, PREFIX_MESSAGES_MAX, PrefixSegment};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::fmt;

/// The digest of a list of messages.
#[derive(Debug)]
pub(super) struct MessagesDraft {
    /// Messages in the list.
    pub(super) count: usize,
    /// Bytes of their text.
    pub(super) bytes: u64,
    pub(super) prefix: Vec<PrefixSegment>,
    pub(super) chain: Vec<u64>,
    /// The hash of all of them.
    pub(super) whole: u64,
}

/// Reads `messages`; `None` for `null`. `at` names the one that was being read, for errors.
pub(super) struct MessagesSeed<'p> {
    pub(super) at: &'p Cell<Option<usize>>,
    /// Whether text counts as one message of the user.
    pub(super) may_be_text: bool,
}

impl<'de> DeserializeSeed<'de> for MessagesSeed<'_> {
    type Value = Option<MessagesDraft>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MessagesSeed<'_> {
    type Value = Option<MessagesDraft>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if !self.may_be_text {
            return Err(E::custom("expected a list of messages, not a string"));
        }
        let message = Message::of_user(text)?;
        let (hash, bytes) = (mix(0, message.hash), message.bytes);
        Ok(Some(MessagesDraft {
            count: 1,
            bytes,
            prefix: vec![PrefixSegment {
                hash,
                tokens: None,
                bytes,
            }],
            chain: vec![hash],
            whole: hash,
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut draft = MessagesDraft {
            count: 0,
            bytes: 0,
            prefix: Vec::new(),
            chain: Vec::new(),
            whole: 0,
        };
        let mut chain = Chain::new(CHAIN_MESSAGES_MAX);
        let mut hash = 0;
        self.at.set(Some(0));
        while let Some(message) = list.next_element_seed(MessageSeed)? {
            if message.is_reasoning {
                draft.bytes += message.bytes;
                continue;
            }
            hash = mix(hash, message.hash);
            chain.push(hash);
            if draft.prefix.len() < PREFIX_MESSAGES_MAX {
                draft.prefix.push(PrefixSegment {
                    hash,
                    tokens: None,
                    bytes: message.bytes,
                });
            }
            draft.bytes += message.bytes;
            draft.count += 1;
            self.at.set(Some(draft.count));
        }
        self.at.set(None);
        draft.chain = chain.into_vec();
        draft.whole = hash;
        Ok(Some(draft))
    }
}

struct Message {
    hash: u64,
    bytes: u64,
    /// Whether it is a separate reasoning item, which clients omit later.
    is_reasoning: bool,
}

impl Message {
    fn of_user<E: Error>(text: &str) -> Result<Self, E> {
        let mut bytes = 0;
        let role = ValueHash::new(&mut bytes).visit_str::<E>("user")?;
        let content = ValueHash::of_content(&mut bytes).visit_str::<E>(text)?;
        let fields = [(1, role), (2, content)].into_iter();
        let fields = fields.filter_map(|(tag, value)| Some(mix(tag, value?)));
        Ok(Self {
            hash: fields.fold(0, u64::wrapping_add),
            bytes,
            is_reasoning: false,
        })
    }
}

/// The fields that identify a message. Reasoning only counts for the size, as clients send it in
/// one step and omit it in the next.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum MessageField {
    Role,
    Content,
    Name,
    ToolCalls,
    ToolCallId,
    Reasoning,
    ReasoningContent,
    Summary,
    Type,
    CallId,
    Arguments,
    Output,
    Input,
    #[serde(other)]
    Other,
}

struct MessageSeed;

impl<'de> DeserializeSeed<'de> for MessageSeed {
    type Value = Message;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Message, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message, an object with role and content")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
        let mut bytes = 0;
        let mut sum = 0_u64;
        let mut is_reasoning = false;
        while let Some(field) = map.next_key::<MessageField>()? {
            let (tag, seed) = match field {
                MessageField::Role => (1, ValueHash::new(&mut bytes)),
                MessageField::Content => (2, ValueHash::of_content(&mut bytes)),
                MessageField::Name => (3, ValueHash::new(&mut bytes)),
                MessageField::ToolCalls => (4, ValueHash::new(&mut bytes)),
                MessageField::ToolCallId => (5, ValueHash::new(&mut bytes)),
                MessageField::CallId => (6, ValueHash::new(&mut bytes)),
                MessageField::Arguments | MessageField::Input => (7, ValueHash::new(&mut bytes)),
                MessageField::Output => (8, ValueHash::of_content(&mut bytes)),
                MessageField::Reasoning
                | MessageField::ReasoningContent
                | MessageField::Summary => {
                    map.next_value_seed(ValueHash::new(&mut bytes))?;
                    continue;
                }
                MessageField::Type => {
                    is_reasoning = map.next_value::<&RawValue>()?.get() == "\"reasoning\"";
                    continue;
                }
                MessageField::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Some(value) = map.next_value_seed(seed)? {
                sum = sum.wrapping_add(mix(tag, value));
            }
        }
        Ok(Message {
            hash: sum,
            bytes,
            is_reasoning,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> MessagesDraft {
        let at = Cell::new(None);
        let mut parser = serde_json::Deserializer::from_str(json);
        let draft = MessagesSeed {
            at: &at,
            may_be_text: false,
        }
        .deserialize(&mut parser);
        draft.unwrap().unwrap()
    }

    #[test]
    fn a_longer_list_goes_on_where_the_shorter_ended() {
        let short =
            read(r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]"#);
        let long = read(
            r#"[ {"content":"be brief", "role":"system"},
                 {"role":"user","content":[{"type":"text","text":"hi"}]},
                 {"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]} ]"#,
        );
        assert_eq!(long.chain[..2], short.chain[..]);
        assert_eq!(short.prefix.len(), 2);
        assert_eq!(short.prefix[0].bytes, 6 + 8);
        assert_eq!(short.bytes, 14 + 4 + 2);
        let other = read(
            r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},
                {"role":"assistant","tool_calls":[{"id":"c2"}]}]"#,
        );
        assert_eq!(other.chain[..2], long.chain[..2]);
        assert_ne!(other.chain[2], long.chain[2]);
    }

    #[test]
    fn role_and_content_are_not_interchangeable() {
        let one = read(r#"[{"role":"user","name":"a"}]"#);
        let other = read(r#"[{"role":"a","name":"user"}]"#);
        assert_ne!(one.chain, other.chain);
    }

    #[test]
    fn only_the_newest_links_stay() {
        let list = |count: usize| {
            let messages: Vec<String> = (0..count)
                .map(|n| format!(r#"{{"role":"user","content":"{n}"}}"#))
                .collect();
            read(&format!("[{}]", messages.join(",")))
        };
        let long = list(CHAIN_MESSAGES_MAX + 5);
        let shorter = list(CHAIN_MESSAGES_MAX + 3);
        assert_eq!(long.chain.len(), CHAIN_MESSAGES_MAX);
        assert_eq!(shorter.chain.last(), long.chain.get(CHAIN_MESSAGES_MAX - 3));
        assert_eq!(long.prefix.len(), PREFIX_MESSAGES_MAX);
        assert_eq!(long.prefix[..], shorter.prefix[..]);
    }

    #[test]
    fn text_is_one_message_and_reasoning_is_none() {
        let input = |json: &str| {
            let head = crate::RequestHead::parse(crate::Endpoint::Responses, json.as_bytes());
            head.expect(json)
        };
        let text = input(r#"{"input":"hi"}"#);
        let list = input(r#"{"input":[{"type":"message","role":"user","content":"hi"}]}"#);
        assert_eq!((&text.chain, text.prompt), (&list.chain, list.prompt));
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        let output = r#"{"type":"function_call_output","call_id":"c","output":"1"}"#;
        let thought = r#"{"type":"reasoning","id":"r","summary":[{"text":"hm"}]}"#;
        let first = r#"{"role":"user","content":"hi"}"#;
        let all = |items: &[&str]| input(&format!(r#"{{"input":[{}]}}"#, items.join(",")));
        let with = all(&[first, thought, call, output]);
        let without = all(&[first, call, output]);
        assert_eq!(with.chain, without.chain);
        assert_eq!(with.chain[..1], text.chain[..]);
        assert_eq!(with.prompt.messages, 3);
        assert!(with.prompt.bytes > without.prompt.bytes);
        let other = r#"{"type":"function_call_output","call_id":"c","output":"2"}"#;
        assert_ne!(all(&[first, call, other]).chain, without.chain);
        let instructed = input(r#"{"input":"hi","instructions":"be brief","max_output_tokens":7}"#);
        assert_eq!(instructed.chain, text.chain);
        assert_ne!(instructed.whole, text.whole);
        assert_eq!(instructed.max_output_tokens, Some(7));
        let refused = crate::RequestHead::parse(crate::Endpoint::Responses, b"{}");
        assert_eq!(
            refused.expect_err("no input").param.as_deref(),
            Some("input")
        );
    }
}
