//! Events of a stream, numbered in their order.

use serde_json::json;

/// Where an event belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The index of its item.
    pub(super) index: usize,
    /// The item's id.
    pub(super) id: &'a str,
}

/// Writes events, or nothing if the response is not streamed.
#[derive(Debug, Default)]
pub(super) struct Events {
    out: Vec<u8>,
    sequence: u64,
    is_on: bool,
}

impl Events {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Takes the bytes written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// An event of this type. `fields` are the rest of it, as JSON without braces.
    pub(super) fn put(&mut self, kind: &str, fields: &str) {
        if !self.is_on {
            return;
        }
        let number = self.sequence;
        self.sequence += 1;
        let event = format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{number},{fields}}}\n\n"
        );
        self.out.extend_from_slice(event.as_bytes());
    }

    /// An event about the whole response.
    pub(super) fn response(&mut self, kind: &str, response: impl FnOnce() -> String) {
        if self.is_on {
            self.put(kind, &format!("\"response\":{}", response()));
        }
    }

    /// An event about an item.
    pub(super) fn item(&mut self, kind: &str, at: usize, item: impl FnOnce() -> String) {
        if self.is_on {
            self.put(kind, &format!("\"output_index\":{at},\"item\":{}", item()));
        }
    }

    /// An event about a part of an item, or what is in it, with a value by its name.
    pub(super) fn part(&mut self, kind: &str, at: Place<'_>, name: &str, value: &str) {
        if self.is_on {
            let (at, id) = (at.index, json!(at.id));
            let fields = format!(
                "\"item_id\":{id},\"output_index\":{at},\"content_index\":0,\"{name}\":{value}"
            );
            self.put(kind, &fields);
        }
    }

    /// An event about the arguments of a call.
    pub(super) fn arguments(&mut self, kind: &str, at: Place<'_>, name: &str, value: &str) {
        if self.is_on {
            let (at, id, value) = (at.index, json!(at.id), json!(value));
            self.put(
                kind,
                &format!("\"item_id\":{id},\"output_index\":{at},\"{name}\":{value}"),
            );
        }
    }
}
