//! What is on disk about a sandbox. It is written before anything of the sandbox is there, so that
//! the next agent knows after a crash whose it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The name of the record in a sandbox's folder.
const FILE: &str = "sandbox.json";

/// What becomes of a sandbox whose time is over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is removed.
    #[default]
    Remove,
    /// It is paused, and kept until a client removes it, or for 30 days.
    Pause,
}

/// What a sandbox is to be.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Whose it is.
    pub tenant: String,
    /// The RL run it belongs to.
    pub job: String,
    /// The program it belongs to, with which it ends.
    pub program: Option<String>,
    /// What its owner wants to find it by.
    pub labels: BTreeMap<String, String>,
    /// What it is made of; [`SYSTEM_IMAGE`](crate::SYSTEM_IMAGE) if empty.
    pub image: String,
    /// Variables of all its commands.
    pub env: BTreeMap<String, String>,
    /// How long it lives from when it is ready; as configured without it.
    pub ttl: Option<Duration>,
    /// What becomes of it then.
    pub on_expiry: OnExpiry,
    /// Its memory; as configured without it.
    pub memory_bytes: Option<u64>,
}

/// What is on record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// What shows that somebody may use it who has no token of the daemon.
    pub(crate) secret: String,
    /// What it is to be.
    pub spec: SandboxSpec,
    /// Copies of other sandboxes' files that lie between the image and its own, uppermost first.
    pub(crate) layers: Vec<String>,
    /// Microseconds since 1970.
    pub(crate) created_at_us: u64,
    /// When its time is over; unknown until it was ready once.
    pub(crate) expires_at_us: Option<u64>,
}

impl Record {
    /// Whether it is not new: it was ready before, or an earlier agent was to make it.
    pub fn was_ready(&self) -> bool {
        self.expires_at_us.is_some()
    }

    /// Puts it on record in the sandbox's folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let (partial, path) = (folder.join("partial"), folder.join(FILE));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        fs::rename(partial, path)?;
        File::open(folder)?.sync_all()
    }

    /// Takes it off the record.
    pub(crate) fn remove(folder: &Path) -> io::Result<()> {
        fs::remove_file(folder.join(FILE))?;
        File::open(folder)?.sync_all()
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join(FILE))?)?)
    }
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}
