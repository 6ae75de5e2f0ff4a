//! `treadle events replay`: replays the journal of a store.
//!
//! Two replays of one journal end in the same state, bit for bit; the checksum shows it.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use treadle_core::State;
use treadle_store::Location;
use xxhash_rust::xxh3::Xxh3;

use super::error::CliError;
use super::output::{Column, fields, print_json, print_text};
use super::progress;
use super::settings::Settings;
use treadle_scheduler::recovery::{Extent, Recovered, replay};

const REPORT: &[Column] = &[
    ("events replayed", "/events_replayed"),
    ("after event", "/after_seq"),
    ("up to event", "/until_seq"),
    ("live programs", "/programs"),
    ("workers", "/workers"),
    ("checksum (xxh3-128)", "/checksum"),
];

/// Arguments of `treadle events replay`.
#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    settings: Settings,
    /// The store's file; by default `store.path`.
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Last event to replay; by default the end of the journal.
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
    /// Start from the first event instead of the latest snapshot.
    #[arg(long)]
    from_start: bool,
}

impl ReplayArgs {
    /// Replays and prints the result.
    pub(super) async fn run(self, json: bool) -> Result<(), CliError> {
        let config = self.settings.load(Vec::new())?;
        let location = match (&self.store, config.store.location()) {
            (Some(path), _) => Location::File(path.clone()),
            (None, Location::Memory) => {
                let text =
                    "`store.path` is `memory`, which is not persistent; name a file with --store";
                return Err(CliError::Usage(text.into()));
            }
            (None, location) => location,
        };
        if let Location::File(path) = &location {
            // Opening a store creates it.
            std::fs::metadata(path).map_err(|cause| CliError::File {
                path: path.clone(),
                cause,
            })?;
        }
        let store = treadle_store::open(&location).await?;
        let last = store.last_seq().await?;
        let until = self.until.unwrap_or(last);
        if until > last {
            return Err(CliError::Usage(format!(
                "--until is {until}, but the journal ends at event {last}; give at most that"
            )));
        }
        let extent = Extent {
            until: Some(until),
            from_start: self.from_start,
        };
        let bar = progress::bar(until, "replaying");
        let mut progress = |seq| bar.set_position(seq);
        let replayed = replay(&*store, config.core(), extent, &mut progress).await;
        bar.finish_and_clear();
        store.close().await?;
        show(&replayed?, json)
    }
}

fn show(replayed: &Recovered, json: bool) -> Result<(), CliError> {
    let state = replayed.core.state();
    let report = json!({
        "events_replayed": replayed.seq - replayed.snapshot_seq,
        "after_seq": replayed.snapshot_seq,
        "until_seq": replayed.seq,
        "programs": state.programs.live.len(),
        "workers": state.programs.workers.len(),
        "checksum": checksum(&state)?,
    });
    if json {
        print_json(&report)
    } else {
        print_text(&fields(REPORT, &report))
    }
}

/// Checksum of a state in the form of a snapshot.
fn checksum(state: &State<'_>) -> Result<String, CliError> {
    let mut hash = Hash(Xxh3::new());
    serde_json::to_writer(&mut hash, state)
        .map_err(|error| CliError::Failed(format!("the state can't be written: {error}")))?;
    Ok(format!("{:032x}", hash.0.digest128()))
}

/// A hash as a writer: states can be too large to buffer.
struct Hash(Xxh3);

impl std::io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
