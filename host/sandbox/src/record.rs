//! What is on disk about a sandbox. It is written before anything of the sandbox is there, so that
//! the next agent knows after a crash whose it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// The name of the record in a sandbox's folder.
const FILE: &str = "sandbox.json";
/// A wall clock that differs by more from what was expected has been set.
const WALL_SET_US: u64 = 2_000_000;

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
    /// The same by the agent's clock.
    #[serde(default)]
    pub(crate) made_us: u64,
    /// Its time; unknown until it was ready once.
    #[serde(default)]
    pub(crate) life: Option<Life>,
    /// When its time is over by the wall clock, in microseconds since 1970; for those who look, and
    /// all that agents of 0.1.0 noted.
    #[serde(default)]
    pub(crate) expires_at_us: Option<u64>,
}

/// The time of a sandbox, by the agent's clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// When it is over.
    pub(crate) ends_us: u64,
    /// How long it was when it was given.
    pub(crate) given_us: u64,
}

impl Record {
    /// Whether it is not new: it was ready before, or an earlier agent was to make it.
    pub fn was_ready(&self) -> bool {
        self.life.is_some()
    }

    /// Gives it so long from now on.
    pub(crate) fn live_for(&mut self, ttl: Duration, clock: &Clock) {
        let given_us = ttl.as_micros() as u64;
        let ends_us = clock.now_us().saturating_add(given_us);
        self.life = Some(Life { ends_us, given_us });
        self.expires_at_us = Some(clock.wall_at(ends_us));
    }

    /// Takes in what another agent noted, whose clock may be lost.
    pub(crate) fn take_in(&mut self, ttl: Duration, clock: &Clock) {
        let ttl = self.spec.ttl.unwrap_or(ttl);
        match (&mut self.life, self.expires_at_us) {
            (Some(life), _) => {
                let latest = clock.now_us().saturating_add(life.given_us);
                life.ends_us = life.ends_us.min(latest);
            }
            (None, Some(expires)) => {
                let left = Duration::from_micros(expires.saturating_sub(clock.wall_us()));
                self.live_for(left, clock);
            }
            // It was never ready.
            (None, None) => self.live_for(ttl, clock),
        }
        self.made_us = self.made_us.min(clock.now_us());
    }

    /// When its time is over by the wall clock, as that is now.
    pub(crate) fn expires_at_us(&self, clock: &Clock) -> Option<u64> {
        let expires = clock.wall_at(self.life?.ends_us);
        // The same as before, as long as nobody sets the wall clock.
        let same = |told: &u64| told.abs_diff(expires) < WALL_SET_US;
        self.expires_at_us.filter(same).or(Some(expires))
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
