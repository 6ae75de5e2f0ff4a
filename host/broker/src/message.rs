//! The messages that a broker transfers.

use std::collections::BTreeMap;

use crate::RoutingKey;

/// Names of headers.
pub mod header {
    /// Version of the schema of the body.
    pub const SCHEMA_VERSION: &str = "schema-version";
    /// Version of CloudEvents.
    pub const SPEC_VERSION: &str = "cloudEvents:specversion";
    /// CloudEvents: the message's id.
    pub const ID: &str = "cloudEvents:id";
    /// CloudEvents: the event's source.
    pub const SOURCE: &str = "cloudEvents:source";
    /// CloudEvents: the event's type.
    pub const KIND: &str = "cloudEvents:type";
    /// CloudEvents: the event's subject.
    pub const SUBJECT: &str = "cloudEvents:subject";
    /// CloudEvents: the event's time.
    pub const TIME: &str = "cloudEvents:time";
    /// Why a message is a dead letter, as text.
    pub const REASON: &str = "treadle-reason";
    /// The original queue of a dead letter.
    pub const FROM_QUEUE: &str = "treadle-from-queue";
    /// Why the broker itself made a message a dead letter: `delivery_limit`, `rejected`, `expired`,
    /// `maxlen`.
    pub const FIRST_DEATH_REASON: &str = "x-first-death-reason";
    /// How often a message has been returned.
    pub const DELIVERY_COUNT: &str = "x-delivery-count";
}

/// The version of CloudEvents that the headers follow.
pub(crate) const SPEC_VERSION: &str = "1.0";
/// Content type of bodies.
pub(crate) const CONTENT_TYPE: &str = "application/json";

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sequence number in the journal, which is also the message's id.
    pub seq: u64,
    /// Its routing key.
    pub key: RoutingKey,
    /// Version of the schema of the body.
    pub schema_version: u16,
    /// CloudEvents attributes, repeated in headers so that receivers can filter without parsing the
    /// body.
    pub attributes: Attributes,
    /// The body, as JSON.
    pub body: Vec<u8>,
}

/// CloudEvents attributes, except the id, which is the sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Source of the event, as a path.
    pub source: String,
    /// Type of the event.
    pub kind: String,
    /// Subject of the event; empty if it has none.
    pub subject: String,
    /// Time of the event, as RFC 3339.
    pub time: String,
}

impl Message {
    /// All headers, by name.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let attributes = &self.attributes;
        let mut headers = vec![
            (header::SCHEMA_VERSION, self.schema_version.to_string()),
            (header::SPEC_VERSION, SPEC_VERSION.to_owned()),
            (header::ID, self.seq.to_string()),
            (header::SOURCE, attributes.source.clone()),
            (header::KIND, attributes.kind.clone()),
            (header::TIME, attributes.time.clone()),
        ];
        if !attributes.subject.is_empty() {
            headers.push((header::SUBJECT, attributes.subject.clone()));
        }
        headers
    }
}

/// A message for one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// Its id: receivers execute each id once.
    pub id: String,
    /// Headers, by name.
    pub headers: BTreeMap<String, String>,
    /// The queue in which its sender waits for a reply.
    pub reply_to: Option<String>,
    /// Identifies the reply for its sender.
    pub correlation_id: Option<String>,
    /// The body, as JSON.
    pub body: Vec<u8>,
}

/// A reply to a letter, for the queue that its sender named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The letter's `reply_to`.
    pub to: String,
    /// The letter's correlation id, unchanged.
    pub correlation_id: Option<String>,
    /// The message's id.
    pub id: String,
    /// The body, as JSON.
    pub body: Vec<u8>,
}

/// A subscription to events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Name of the queue that collects them.
    pub queue: String,
    /// Patterns of routing keys: `*` is one word, `#` any number of words.
    pub patterns: Vec<String>,
    /// Most unsettled deliveries.
    pub prefetch: u16,
}

impl Subscription {
    /// A queue for events that match any of the patterns.
    pub fn new<P: Into<String>>(
        queue: impl Into<String>,
        patterns: impl IntoIterator<Item = P>,
    ) -> Self {
        Self {
            queue: queue.into(),
            patterns: patterns.into_iter().map(Into::into).collect(),
            prefetch: 500,
        }
    }
}
