//! `[payloads]`: requests and answers that are kept whole.

use serde::{Deserialize, Serialize};
use treadle_store::{Options, PayloadLocation};

use super::section::{Form, Setting, section};
use super::{Config, ConfigError, conflict};

/// The parts of each step that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Nothing.
    #[default]
    None,
    /// Answers only.
    Answers,
    /// Requests and answers.
    All,
}

impl Setting for Keep {
    const FORM: Form = Form::Choice(&["none", "answers", "all"]);
}

section! {
    /// Requests and answers of steps, kept whole: messages, token ids, log probabilities, tool output. They are compressed (zstd) and written beside the journal without delaying steps; beyond a limit on memory they are dropped and counted.
    PayloadsConfig in "payloads" {
        /// What to keep of each step: `none`, `answers`, or `all` for requests too.
        keep: Keep = Keep::None, "";
        /// Storage: `table` in the store, or a folder that all daemons can access.
        location: String = "table".to_owned(), "";
        /// How long payloads are kept.
        keep_s: u64 = 604_800, "seconds", 1 ..= 3_153_600_000_u64;
        /// Limit on kept payloads, before compression: those of steps, and descriptions and outputs of actions. Tenants have equal shares. Beyond its share, a tenant's oldest payloads are removed, except those that its waiting or running actions need; if that is not enough, its next action is refused.
        bytes_max: u64 = 34_359_738_368, "bytes", 1_048_576 ..= 1_125_899_906_842_624_u64;
        fixed {
            /// Largest body; larger ones are dropped.
            body_bytes_max: u64 = 16_777_216, "bytes", 1 ..= 67_108_864;
            /// Bytes of bodies that may wait to be written.
            waiting_bytes_max: u64 = 268_435_456, "bytes", 1_000_000 ..= 17_179_869_184_u64;
        }
    }
}

impl PayloadsConfig {
    /// Rules across several values.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let problem = match self.location.as_str() {
            "" => "is empty".to_owned(),
            url if url.contains("://") => format!("is {url}, which is not a folder"),
            _ => return Ok(()),
        };
        let remedy = "write `table`, or a folder that all daemons can access";
        Err(conflict("payloads.location", problem, remedy))
    }
}

impl Config {
    /// The options to open the store with.
    pub fn store_options(&self) -> Options {
        let place = self.payloads.location.as_str();
        let bodies = if place == "table" {
            PayloadLocation::Table
        } else {
            PayloadLocation::Folder(place.into())
        };
        Options {
            migrate: self.store.migrate,
            create: true,
            bodies,
        }
    }
}
