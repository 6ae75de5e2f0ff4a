//! Commands of `treadle weights` that work on the store, in folders that the daemon names.

use super::super::client::{Client, escaped};
use super::super::error::CliError;
use super::super::output::{Column, print_json, print_table, print_text};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use treadle_weight_store::{Places, PublishOptions, StoreError, Stream};

const VERSIONS: &[Column] = &[
    ("VERSION", "/version"),
    ("DELTA TO", "/base"),
    ("TENSORS", "/tensors"),
    ("BYTES", "/bytes"),
    ("PROBLEM", "/problem"),
];
const NONE: &str = "no version is stored; publish one with `treadle weights publish DIR --store`";

/// A job's versions.
#[derive(Args, Clone, Debug)]
pub(super) struct OfJob {
    /// The job.
    #[arg(long)]
    job: String,
    /// The lineage; by default the one that the job is in.
    #[arg(long)]
    lineage: Option<u32>,
}

/// One of a job's versions.
#[derive(Args, Clone, Debug)]
pub(super) struct OfVersion {
    #[command(flatten)]
    of: OfJob,
    /// The version.
    #[arg(long)]
    version: u64,
}

/// The daemon's answer about its store.
#[derive(Deserialize)]
struct Stored {
    lineage: u32,
    store: PathBuf,
    folder: PathBuf,
    checkpoint: u64,
    needed: Vec<Needed>,
}

#[derive(Deserialize)]
struct Needed {
    lineage: u32,
    version: u64,
}

/// A version that was put into the store.
pub(super) struct Published {
    pub(super) lineage: u32,
    stream: Stream,
}

fn failed(error: &StoreError) -> CliError {
    CliError::Failed(error.to_string())
}

/// Does work that waits for the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| CliError::Failed(error.to_string()))?;
    done.map_err(|error| failed(&error))
}

async fn stored(client: &Client, job: &str) -> Result<(Stored, Places), CliError> {
    let path = format!("/api/v1/jobs/{}/weights/store", escaped(job));
    let answer: Value = client.get(&path).await?;
    let stored: Stored = serde_json::from_value(answer)
        .map_err(|error| CliError::Failed(format!("{path}: {error}")))?;
    let places = Places {
        store: stored.store.clone(),
        folder: stored.folder.clone(),
    };
    Ok((stored, places))
}

/// Puts the checkpoint in a folder into the store.
pub(super) async fn publish(
    client: &Client,
    job: &str,
    folder: &str,
    version: u64,
) -> Result<Published, CliError> {
    let (stored, places) = stored(client, job).await?;
    let stream = places.stream(stored.lineage);
    let (own, folder) = (stream.clone(), PathBuf::from(folder));
    let publish = move || own.publish(&folder, version, PublishOptions::default());
    let published = on_disk(publish).await?;
    tracing::info!(
        version,
        tensors = published.tensors,
        written_bytes = published.written_bytes,
        "stored"
    );
    Ok(Published {
        lineage: stored.lineage,
        stream,
    })
}

impl Published {
    /// Makes ready what the next publication compares with.
    pub(super) async fn prepare_next(self) -> Result<(), CliError> {
        on_disk(move || self.stream.prepare_next()).await
    }
}

impl OfJob {
    async fn stored(&self, client: &Client) -> Result<(Stored, Places, u32), CliError> {
        let (stored, places) = stored(client, &self.job).await?;
        let lineage = self.lineage.unwrap_or(stored.lineage);
        Ok((stored, places, lineage))
    }

    /// Lists versions.
    pub(super) async fn history(self, client: &Client, as_json: bool) -> Result<(), CliError> {
        let (_, places, lineage) = self.stored(client).await?;
        let history = on_disk(move || places.stream(lineage).history()).await?;
        let rows: Vec<Value> = history.iter().map(|entry| json!(entry)).collect();
        if as_json {
            return print_json(&json!({"lineage": lineage, "versions": rows}));
        }
        print_table(VERSIONS, &rows, NONE)
    }

    /// Deletes versions of all lineages, or of one.
    pub(super) async fn collect(self, client: &Client, as_json: bool) -> Result<(), CliError> {
        let (stored, places, _) = self.stored(client).await?;
        let lineages = match self.lineage {
            Some(lineage) => lineage..=lineage,
            None => 0..=stored.lineage,
        };
        let deleted = on_disk(move || {
            let mut deleted = BTreeMap::new();
            for lineage in lineages {
                let stream = places.stream(lineage);
                let keep = needed(&stored, lineage, stream.versions()?);
                deleted.insert(lineage.to_string(), stream.collect(&keep)?.deleted);
            }
            Ok(deleted)
        });
        let deleted = deleted.await?;
        if as_json {
            return print_json(&json!({"deleted": deleted}));
        }
        let count: usize = deleted.values().map(Vec::len).sum();
        print_text(&format!("{count} versions deleted\n"))
    }
}

/// Versions of a lineage that the job needs: those that engines have, and in its present lineage
/// those from which it can go on.
fn needed(stored: &Stored, lineage: u32, versions: BTreeSet<u64>) -> BTreeSet<u64> {
    let named = stored.needed.iter();
    let named: BTreeSet<u64> = named
        .filter(|needed| needed.lineage == lineage)
        .map(|needed| needed.version)
        .collect();
    let is_needed = |version: &u64| {
        named.contains(version) || lineage == stored.lineage && *version >= stored.checkpoint
    };
    versions.into_iter().filter(is_needed).collect()
}

impl OfVersion {
    /// Brings a version to this machine.
    pub(super) async fn pull(self, client: &Client, as_json: bool) -> Result<(), CliError> {
        let (stored, places, lineage) = self.of.stored(client).await?;
        let version = self.version;
        let pull = move || {
            let local = places.local(lineage);
            // What is in service may be loaded again, and so may the newest one.
            let newest = local.versions()?.last().copied();
            let needed = stored.needed.iter().filter(|n| n.lineage == lineage);
            let keep: Vec<u64> = needed.map(|n| n.version).chain(newest).collect();
            local.pull(&places.stream(lineage), version, &keep)
        };
        let pulled = on_disk(pull).await?;
        let folder = pulled.folder.display();
        if as_json {
            return print_json(&json!({
                "folder": folder.to_string(), "tensors": pulled.tensors, "made": pulled.made,
                "moved_bytes": pulled.moved_bytes, "written_bytes": pulled.written_bytes,
            }));
        }
        print_text(&format!(
            "{folder}: {} of {} tensors were made, with {} bytes from the store\n",
            pulled.made, pulled.tensors, pulled.moved_bytes
        ))
    }

    /// Compares a version with its checksums.
    pub(super) async fn verify(self, client: &Client, as_json: bool) -> Result<(), CliError> {
        let (_, places, lineage) = self.of.stored(client).await?;
        let version = self.version;
        let tensors = on_disk(move || places.stream(lineage).verify(version)).await?;
        if as_json {
            return print_json(&json!({"version": version, "tensors": tensors}));
        }
        print_text(&format!("{tensors} tensors are as published\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_the_checkpoint_and_those_that_engines_have_are_needed() {
        let stored = Stored {
            lineage: 1,
            store: PathBuf::new(),
            folder: PathBuf::new(),
            checkpoint: 5,
            needed: vec![
                Needed {
                    lineage: 0,
                    version: 3,
                },
                Needed {
                    lineage: 1,
                    version: 2,
                },
            ],
        };
        let all = || (1..=7).collect();
        assert_eq!(needed(&stored, 0, all()), BTreeSet::from([3]));
        assert_eq!(needed(&stored, 1, all()), BTreeSet::from([2, 5, 6, 7]));
    }
}
