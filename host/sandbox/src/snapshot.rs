//! The record of a snapshot on disk. It is written when its files are complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The files of a sandbox at one time, for making other sandboxes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its unguessable id.
    pub id: String,
    /// Its owner's name for it.
    pub name: Option<String>,
    /// The tenant that owns it.
    pub tenant: String,
    /// The RL run of its sandbox.
    pub job: String,
    /// The sandbox that it was made from.
    pub sandbox: String,
    /// The image below its files.
    pub image: String,
    /// When it was made, in microseconds since 1970.
    pub created_at_us: u64,
    /// When a sandbox was last made of it, or when it was created.
    pub used_at_us: u64,
    /// Its size on disk, without what it shares with others.
    pub disk_bytes: u64,
    /// Copies of sandboxes' files over the image, uppermost first; the first is its own.
    pub(crate) layers: Vec<String>,
}

impl Snapshot {
    /// Writes the record.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let partial = folder.join(format!("{}.partial", self.id));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_data()?;
        fs::rename(partial, path(folder, &self.id))?;
        File::open(folder)?.sync_all()
    }

    /// Removes a record.
    pub(crate) fn remove(folder: &Path, id: &str) -> io::Result<()> {
        match fs::remove_file(path(folder, id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        File::open(folder)?.sync_all()
    }

    /// All recorded snapshots in a folder, which is made if missing, with copies among `layers`. Of
    /// two with the same name, the older is removed: an agent stopped while replacing it.
    pub(crate) fn all(folder: &Path, layers: &[String]) -> io::Result<BTreeMap<String, Self>> {
        fs::create_dir_all(folder)?;
        let mut all: Vec<Self> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|kind| kind != "json") {
                fs::remove_file(&path)?;
                continue;
            }
            match serde_json::from_slice::<Self>(&fs::read(&path)?) {
                Ok(snapshot) if snapshot.layers.iter().all(|layer| layers.contains(layer)) => {
                    all.push(snapshot);
                }
                Ok(snapshot) => {
                    tracing::error!(snapshot = %snapshot.id, "ignoring a snapshot with missing files");
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "could not read a snapshot; leaving it unchanged");
                }
            }
        }
        all.sort_by_key(|snapshot| snapshot.created_at_us);
        let mut kept: BTreeMap<String, Self> = BTreeMap::new();
        for snapshot in all {
            let older = kept.values().find(|other| other.is_replaced_by(&snapshot));
            if let Some(older) = older.map(|older| older.id.clone()) {
                Self::remove(folder, &older)?;
                kept.remove(&older);
            }
            kept.insert(snapshot.id.clone(), snapshot);
        }
        Ok(kept)
    }

    /// Whether another snapshot replaces it by taking its name.
    pub(crate) fn is_replaced_by(&self, other: &Self) -> bool {
        self.id != other.id
            && self.name.is_some()
            && (&self.tenant, &self.name) == (&other.tenant, &other.name)
    }
}

fn path(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.json"))
}
