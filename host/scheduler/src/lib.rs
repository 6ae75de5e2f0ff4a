//! The scheduler: the state machine around the core, the thread that drives it, the journal's
//! writer, recovery, and the protocol between gateways and schedulers in different processes.

pub mod driver;
mod excerpts;
mod instruction;
pub mod link;
pub mod orders;
pub mod record;
mod recording;
pub mod recovery;
pub mod scheduler;

pub use driver::{
    ActionInstruction, ActionStart, ActionWork, ActionsOverview, Clock, DriverHandle,
    DriverOptions, ForecastFeed, GatewaySender, JobAccount, JournalBatch, JournalHandle,
    JournalStatistics, LiveProgram, LivePrograms, MemberWork, MemoryAccounts, OpenStep, Overview,
    WorkerAccount, spawn_driver, spawn_journal,
};
pub use excerpts::{Excerpt, Excerpts};
pub use instruction::{Dispatch, Instruction, LiveLimit, PrefillAt};
pub use recording::{DriverStopped, NotRecorded, Recorder, Recording};
pub use scheduler::{
    Bound, ConnectionId, Expected, LinkInput, Moment, Observation, Profile, Profiles,
};
