//! What is carried.

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
    /// CloudEvents: where it comes from.
    pub const SOURCE: &str = "cloudEvents:source";
    /// CloudEvents: what kind of event it is.
    pub const KIND: &str = "cloudEvents:type";
    /// CloudEvents: what it is about.
    pub const SUBJECT: &str = "cloudEvents:subject";
    /// CloudEvents: when it happened.
    pub const TIME: &str = "cloudEvents:time";
    /// Why a letter is dead, as text.
    pub const REASON: &str = "treadle-reason";
    /// The queue that a dead letter was in.
    pub const FROM_QUEUE: &str = "treadle-from-queue";
    /// Why the broker itself made a letter dead: `delivery_limit`, `rejected`, `expired`, `maxlen`.
    pub const FIRST_DEATH_REASON: &str = "x-first-death-reason";
    /// How often a message has been given back.
    pub const DELIVERY_COUNT: &str = "x-delivery-count";
}

/// The version of CloudEvents that the headers follow.
pub(crate) const SPEC_VERSION: &str = "1.0";
/// What bodies are.
pub(crate) const CONTENT_TYPE: &str = "application/json";

/// An event on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sequence number in the journal, which is the message's id too.
    pub seq: u64,
    /// The receiver.
    pub key: RoutingKey,
    /// Version of the schema of the body.
    pub schema_version: u16,
    /// Repeated in the headers, so that the body need not be read to sort it.
    pub attributes: Attributes,
    /// JSON.
    pub body: Vec<u8>,
}

/// Attributes of CloudEvents, besides the id, which is the sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Where it comes from, as a path.
    pub source: String,
    /// What kind of event it is.
    pub kind: String,
    /// What it is about; empty if it is about nothing in particular.
    pub subject: String,
    /// When it happened, as RFC 3339.
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
    /// What distinguishes it from others: the receiver carries out each id once.
    pub id: String,
    /// Headers, by name.
    pub headers: BTreeMap<String, String>,
    /// The queue that its sender waits for a reply in.
    pub reply_to: Option<String>,
    /// What its sender recognises the reply by.
    pub correlation_id: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
}

/// An answer to a letter, for the queue that its sender named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The letter's `reply_to`.
    pub to: String,
    /// The letter's, unchanged.
    pub correlation_id: Option<String>,
    /// The message's id.
    pub id: String,
    /// JSON.
    pub body: Vec<u8>,
}

/// A subscription's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Name of the queue that collects them.
    pub queue: String,
    /// Routing keys as patterns: `*` is one word, `#` any number of words.
    pub patterns: Vec<String>,
    /// Most deliveries that are unsettled at once.
    pub prefetch: u16,
}

impl Subscription {
    /// A queue for what matches any of the patterns.
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
