//! Rows of a store that several daemons, consumers and senders of commands share.

/// How far a consumer of the journal has been served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// Its name.
    pub sink: String,
    /// The last event that it has.
    pub seq: u64,
}

/// A command that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// Its id, chosen by its sender.
    pub id: String,
    /// Kind of command.
    pub kind: String,
    /// When it came.
    pub at_us: u64,
    /// Its result, as text; empty while there is none.
    pub outcome: String,
}

/// A large body of a step: a prompt, an output, token ids, their probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyRow {
    /// Program that the step belongs to.
    pub program: String,
    /// Number of the step.
    pub step: u64,
    /// Which body of the step it is.
    pub kind: String,
    /// When it came.
    pub at_us: u64,
    /// The body, as it came; the store compresses it.
    pub body: Vec<u8>,
}
