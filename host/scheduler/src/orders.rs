//! The scheduler's orders for KV caches, and their results.

use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
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
    /// Copy it to host memory.
    Offload {
        /// The engine that has it.
        from: End,
        /// Context, in tokens.
        tokens: u64,
    },
    /// Load it from host memory.
    Load {
        /// The engine that gets it.
        to: End,

        /// The copy's name in the host tier.
        copy: Box<str>,

        /// Context, in tokens.
        tokens: u64,
    },
    /// Move it to another engine.
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

    /// The URL of the engine that it depends on.
    pub fn subject(&self) -> &str {
        match self {
            Self::Offload { from: end, .. }
            | Self::Load { to: end, .. }
            | Self::Migrate { from: end, .. } => &end.url,
        }
    }

    /// The event for a failed transfer.
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
    /// To host memory.
    Offload,
    /// From host memory.
    Load,
    /// From engine to engine.
    Migrate,
}

/// An order of the scheduler.
#[derive(Debug)]
pub enum Order {
    /// A transfer.
    Begin {
        /// The transfer's id.
        transfer_id: u64,

        /// The program.
        program: ProgramId,
        /// The program's name, under which its last request is stored.
        key: Box<str>,

        /// The transfer.
        work: Work,
    },
    /// Cancel a transfer.
    Cancel {
        /// The transfer's id.
        transfer_id: u64,
    },
    /// Free a copy.
    Drop {
        /// The copy's name in the host tier.
        copy: Box<str>,
    },
    /// The process of an engine may have changed.
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
    /// The transfer's id.
    pub transfer_id: u64,
    /// The program.
    pub program: ProgramId,
    /// The resulting event for the core.
    pub event: Event,
}
