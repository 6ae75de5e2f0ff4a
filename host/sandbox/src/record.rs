//! The record of a sandbox on disk. It is written before anything else of the sandbox is made, so
//! that the next agent knows it after a crash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// Name of the record in a sandbox's folder.
const FILE: &str = "sandbox.json";
/// A wall clock that differs by more than this from the expected time was set.
const WALL_SET_US: u64 = 2_000_000;

/// What happens to a sandbox when it expires.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is removed.
    #[default]
    Remove,
    /// It is paused, and removed by a client or after 30 days.
    Pause,
}

/// The specification of a sandbox.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The tenant that owns it.
    pub tenant: String,
    /// The RL run it belongs to.
    pub job: String,
    /// The program it belongs to, and with which it ends.
    pub program: Option<String>,
    /// Labels for its owner to find it by.
    pub labels: BTreeMap<String, String>,
    /// Its image; [`SYSTEM_IMAGE`](crate::SYSTEM_IMAGE) if empty.
    pub image: String,
    /// Environment variables of all its commands.
    pub env: BTreeMap<String, String>,
    /// Its lifetime from when it is ready; the configured one if `None`.
    pub ttl: Option<Duration>,
    /// What happens when it expires.
    pub on_expiry: OnExpiry,
    /// Its memory; the configured amount if `None`.
    pub memory_bytes: Option<u64>,
}

/// The record of a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// A secret that grants access to the sandbox without a token of the daemon.
    pub(crate) secret: String,
    /// Its specification.
    pub spec: SandboxSpec,
    /// Copies of other sandboxes' files between the image and its own, uppermost first.
    pub(crate) layers: Vec<String>,
    /// When it was created, in microseconds since 1970.
    pub(crate) created_at_us: u64,
    /// When it was created, by the agent's clock.
    #[serde(default)]
    pub(crate) made_us: u64,
    /// Its lifetime; unknown until it was first ready.
    #[serde(default)]
    pub(crate) life: Option<Life>,
    /// When it expires by the wall clock, in microseconds since 1970; for display, and the only
    /// time recorded by agents of 0.1.0.
    #[serde(default)]
    pub(crate) expires_at_us: Option<u64>,
}

/// The lifetime of a sandbox, by the agent's clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// When it expires.
    pub(crate) ends_us: u64,
    /// Its duration when it was set.
    pub(crate) given_us: u64,
}

impl Record {
    /// Whether it was ready before, or was to be made by an earlier agent.
    pub fn was_ready(&self) -> bool {
        self.life.is_some()
    }

    /// Sets its lifetime from now on.
    pub(crate) fn live_for(&mut self, ttl: Duration, clock: &Clock) {
        let given_us = ttl.as_micros() as u64;
        let ends_us = clock.now_us().saturating_add(given_us);
        self.life = Some(Life { ends_us, given_us });
        self.expires_at_us = Some(clock.wall_at(ends_us));
    }

    /// Converts the record of another agent, whose clock may be lost.
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

    /// When it expires by the current wall clock.
    pub(crate) fn expires_at_us(&self, clock: &Clock) -> Option<u64> {
        let expires = clock.wall_at(self.life?.ends_us);
        // Unchanged while nobody sets the wall clock.
        let same = |told: &u64| told.abs_diff(expires) < WALL_SET_US;
        self.expires_at_us.filter(same).or(Some(expires))
    }

    /// Writes it to the sandbox's folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let (partial, path) = (folder.join("partial"), folder.join(FILE));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        fs::rename(partial, path)?;
        File::open(folder)?.sync_all()
    }

    /// Removes it.
    pub(crate) fn remove(folder: &Path) -> io::Result<()> {
        fs::remove_file(folder.join(FILE))?;
        File::open(folder)?.sync_all()
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join(FILE))?)?)
    }
}
