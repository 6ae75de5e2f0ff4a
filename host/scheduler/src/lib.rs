//! The scheduler: the thread that owns the core, the journal's writer, recovery, the protocol
//! between gateways and schedulers in different processes, and orders to those who move KV caches.

pub mod driver;
mod instruction;
pub mod link;
pub mod orders;
pub mod record;
mod recording;
pub mod recovery;

pub use driver::{
    Clock, DriverHandle, DriverOptions, ForecastFeed, JournalBatch, JournalHandle,
    JournalStatistics, LinkInput, Profile, Profiles, Sighting, View, Words, spawn_driver,
    spawn_journal,
};
pub use instruction::{Dispatch, Instruction, LiveLimit};
pub use recording::{DriverStopped, NotRecorded, Recorder, Recording};
