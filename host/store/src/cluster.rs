//! Rows of a store that several daemons, consumers and senders of commands share.

/// The position of a consumer of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// Its name.
    pub sink: String,
    /// Sequence number of the last event that it has received.
    pub seq: u64,
}

/// A command that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// Its id, chosen by its sender.
    pub id: String,
    /// Kind of command.
    pub kind: String,
    /// When it was received.
    pub at_us: u64,
    /// Its result, as text; empty until it has one.
    pub outcome: String,
}

/// A large body of a step: a prompt, an output, token ids, their probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyRow {
    /// Program that the step belongs to.
    pub program: String,
    /// Number of the step.
    pub step: u64,
    /// Which body of the step this is.
    pub kind: String,
    /// When it was received.
    pub at_us: u64,
    /// The uncompressed body; the store compresses it.
    pub body: Vec<u8>,
}
