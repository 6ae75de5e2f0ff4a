//! Reading a stream of tokens.

use serde_json::Value;
use treadle_tests::support::client::{Client, Events};

use super::super::JOB;

/// A message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Message {
    /// Reads a message; `None` for a comment.
    fn read(text: &str) -> Option<Self> {
        let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        Some(Self {
            kind: line("event: ")?.to_owned(),
            id: line("id: ").expect("each has an offset").to_owned(),
            data: serde_json::from_str(line("data: ").expect("data")).expect("JSON"),
        })
    }

    /// Event of the journal, and number of the message of it.
    pub(super) fn place(&self) -> (u64, u64) {
        let number = |text: &str| text.parse().expect("a number");
        match self.id.split_once('.') {
            Some((seq, part)) => (number(seq), number(part)),
            None => (number(&self.id), u64::MAX),
        }
    }
}

/// A stream under way.
pub(super) struct Stream {
    events: Events,
    text: String,
}

impl Stream {
    pub(super) async fn open(client: &Client, after: &str) -> Self {
        let path = format!("{JOB}/stream{after}");
        Self::of(client.follow(&path, &[]).await)
    }

    /// Reads a stream that is open.
    pub(super) fn of(events: Events) -> Self {
        let text = String::new();
        Self { events, text }
    }

    pub(super) async fn next(&mut self) -> Message {
        let next = self.try_next().await;
        next.expect("the stream goes on")
    }

    /// The next message; `None` at the end, or when the connection breaks.
    pub(super) async fn try_next(&mut self) -> Option<Message> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let message = Message::read(&self.text[..end]);
                self.text.drain(..end + 2);
                match message {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let piece = self.events.piece().await?.ok()?;
            self.text
                .push_str(std::str::from_utf8(&piece).expect("text"));
        }
    }

    pub(super) async fn take(&mut self, count: usize) -> Vec<Message> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(self.next().await);
        }
        taken
    }
}
