//! What the scheduler wants done with KV caches, and the results.

use treadle_core::{Event, ProgramEvent};
use treadle_model::{EngineKind, ProgramId, WorkerId};

/// An engine at one end of a transfer.
#[derive(Clone, Debug)]
pub struct End {
    /// The worker.
    pub worker: WorkerId,
    /// Its base URL.
    pub url: Box<str>,
    /// Its software.
    pub kind: EngineKind,
    /// The program's slot there.
    pub slot: Option<u32>,
}

/// What to do with a program's cache.
#[derive(Clone, Debug)]
pub enum Work {
    /// Bring it to host memory.
    Offload {
        /// The engine that has it.
        from: End,
        /// Context, in tokens.
        tokens: u64,
    },
    /// Bring it back.
    Load {
        /// The engine that gets it.
        to: End,

        /// What its holder calls the copy.
        copy: Box<str>,

        /// Context, in tokens.
        tokens: u64,
    },
    /// Bring it to another engine.
    Migrate {
        /// The engine that has it.
        from: End,
        /// The engine that gets it.
        to: End,
        /// Context, in tokens.
        tokens: u64,
    },
}

impl Work {
    /// A name for metrics and logs.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Offload { .. } => Kind::Offload,
            Self::Load { .. } => Kind::Load,
            Self::Migrate { .. } => Kind::Migrate,
        }
    }

    /// The engine that it depends on.
    pub fn subject(&self) -> &str {
        match self {
            Self::Offload { from: end, .. }
            | Self::Load { to: end, .. }
            | Self::Migrate { from: end, .. } => &end.url,
        }
    }

    /// The event of a failure.
    pub fn failed(&self, program: ProgramId, cause: Box<str>) -> Event {
        match self {
            Self::Offload { .. } => Event::Program(ProgramEvent::OffloadFailed { program, cause }),
            Self::Load { .. } => Event::Program(ProgramEvent::LoadFailed { program, cause }),
            Self::Migrate { .. } => {
                Event::Program(ProgramEvent::MigrationFailed { program, cause })
            }
        }
    }
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Into host memory.
    Offload,
    /// Out of host memory.
    Load,
    /// From engine to engine.
    Migrate,
}

/// Something that the scheduler wants.
#[derive(Debug)]
pub enum Order {
    /// A transfer.
    Begin {
        /// Which transfer.
        transfer_id: u64,

        /// The program.
        program: ProgramId,
        /// The program's name, by which its last request is remembered.
        key: Box<str>,

        /// What to do.
        work: Work,
    },
    /// Give it up.
    Cancel {
        /// Which transfer.
        transfer_id: u64,
    },
    /// Free a copy.
    Drop {
        /// What its holder calls the copy.
        copy: Box<str>,
    },
    /// An engine may be another process than before.
    ForgetEngine {
        /// Its base URL.
        url: Box<str>,
    },
    /// A program is over.
    ForgetProgram {
        /// The program's name.
        key: Box<str>,
    },
}

/// The result of a transfer.
#[derive(Debug)]
pub struct Transferred {
    /// Of which transfer.
    pub transfer_id: u64,
    /// Whose cache it was.
    pub program: ProgramId,
    /// What the core is told.
    pub event: Event,
}
