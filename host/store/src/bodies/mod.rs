//! Large bodies: compressed, and stored in the table or as objects outside it.

mod folder;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use folder::Folder;

use crate::sql::Packed;
use crate::{BODY_BYTES_MAX, StoreError};

/// Compression level of zstd; a higher one costs the writer time and saves little on JSON.
const LEVEL: i32 = 1;
/// Maximum number of objects written or read at once.
const AT_ONCE_MAX: usize = 8;
/// Maximum length of program and kind in the name of an object, in bytes.
const NAME_BYTES_MAX: usize = 180;

/// Where bodies are kept. Bodies written to another location before stay there and can't be read,
/// unless that location is the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PayloadLocation {
    /// In a table of the store.
    #[default]
    Table,
    /// As files of a folder that all daemons of the store share.
    Folder(PathBuf),
}

/// A large body of a step: a prompt, an output, token ids, their probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyRow {
    /// Program that the step belongs to.
    pub program: String,
    /// Number of the step.
    pub step: u64,
    /// Which body of the step this is.
    pub kind: String,
    /// When it was received.
    pub at_us: u64,
    /// The uncompressed body; the store compresses it.
    pub body: Vec<u8>,
}

/// Compresses bodies, and stores those that do not go into the table.
#[derive(Clone, Debug)]
pub(crate) struct BlobBackend(Arc<BlobLocation>);

#[derive(Debug)]
enum BlobLocation {
    Table,
    Folder(Folder),
}

impl BlobBackend {
    /// Opens the location; a folder is created if absent.
    pub(crate) fn open(at: &PayloadLocation) -> Result<Self, StoreError> {
        let place = match at {
            PayloadLocation::Table => BlobLocation::Table,
            PayloadLocation::Folder(path) => BlobLocation::Folder(Folder::open(path)?),
        };
        Ok(Self(Arc::new(place)))
    }

    /// Compresses bodies on a blocking thread, and writes those that go into objects.
    pub(crate) async fn pack(&self, rows: &[BodyRow]) -> Result<Vec<Packed>, StoreError> {
        for row in rows {
            crate::sql::within("a body, in bytes,", row.body.len(), BODY_BYTES_MAX)?;
        }
        let rows = rows.to_vec();
        let packed: Vec<Packed> =
            blocking(move || rows.into_iter().map(pack).collect::<Result<_, _>>()).await?;
        if matches!(*self.0, BlobLocation::Table) {
            return Ok(packed);
        }
        self.each(BlobTask::Write, packed).await
    }

    /// Reads and decompresses bodies. Bodies whose object was pruned are left out.
    pub(crate) async fn unpack(&self, packed: Vec<Packed>) -> Result<Vec<BodyRow>, StoreError> {
        let packed = self.each(BlobTask::Read, packed).await?;
        blocking(move || packed.into_iter().map(unpack).collect()).await
    }

    /// Removes the objects of these rows.
    pub(crate) async fn remove(&self, held: Vec<Packed>) -> Result<(), StoreError> {
        self.each(BlobTask::Remove, held).await.map(|_| ())
    }

    /// Runs tasks, a few at once, and returns the remaining rows in their order.
    async fn each(
        &self,
        blob_task: BlobTask,
        rows: Vec<Packed>,
    ) -> Result<Vec<Packed>, StoreError> {
        let mut rows = rows.into_iter().enumerate();
        let mut tasks = JoinSet::new();
        let mut done = Vec::new();
        loop {
            while tasks.len() < AT_ONCE_MAX
                && let Some((n, packed)) = rows.next()
            {
                let place = Arc::clone(&self.0);
                tasks.spawn(async move { Ok((n, run(&place, blob_task, packed).await?)) });
            }
            let Some(ended) = tasks.join_next().await else {
                break;
            };
            let answer: Result<_, StoreError> = ended.map_err(stopped)?;
            let (n, packed) = answer?;
            done.extend(packed.map(|packed| (n, packed)));
        }
        done.sort_unstable_by_key(|(n, _)| *n);
        Ok(done.into_iter().map(|(_, packed)| packed).collect())
    }
}

/// An operation on an object.
#[derive(Clone, Copy)]
enum BlobTask {
    Write,
    Read,
    Remove,
}

/// Runs the operation; `None` if no body remains.
async fn run(
    place: &BlobLocation,
    blob_task: BlobTask,
    mut packed: Packed,
) -> Result<Option<Packed>, StoreError> {
    match (blob_task, packed.object.take()) {
        (BlobTask::Write, _) => {
            let object = name(&packed);
            place
                .write(&object, std::mem::take(&mut packed.body))
                .await?;
            packed.object = Some(object);
        }
        (BlobTask::Read, Some(object)) => {
            let Some(bytes) = place.read(&object).await? else {
                return Ok(None);
            };
            packed.body = bytes;
        }
        (BlobTask::Remove, Some(object)) => place.remove(&object).await?,
        (BlobTask::Read | BlobTask::Remove, None) => {}
    }
    Ok(Some(packed))
}

impl BlobLocation {
    async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        match self {
            Self::Table => Err(elsewhere(name)),
            Self::Folder(folder) => folder.write(name, bytes).await,
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::Table => Err(elsewhere(name)),
            Self::Folder(folder) => folder.read(name).await,
        }
    }

    async fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self {
            // Its row is removed; a location that was changed or emptied was so deliberately.
            Self::Table => Ok(()),
            Self::Folder(folder) => folder.remove(name).await,
        }
    }
}

fn elsewhere(name: &str) -> StoreError {
    let reason = "it was written to a location other than the one configured";
    failed(name, std::io::Error::other(reason))
}

fn failed(place: &str, source: std::io::Error) -> StoreError {
    StoreError::Bodies {
        place: place.to_owned(),
        source,
    }
}

fn stopped(error: tokio::task::JoinError) -> StoreError {
    failed("memory", std::io::Error::other(error))
}

/// Runs CPU-bound work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

fn pack(row: BodyRow) -> Result<Packed, StoreError> {
    let packed = zstd::bulk::compress(&row.body, LEVEL);
    let place = || format!("step {} of {}", row.step, row.program);
    Ok(Packed {
        body: packed.map_err(|error| failed(&place(), error))?,
        size_bytes: row.body.len() as u64,
        program: row.program,
        step: row.step,
        kind: row.kind,
        at_us: row.at_us,
        object: None,
    })
}

fn unpack(packed: Packed) -> Result<BodyRow, StoreError> {
    let size = usize::try_from(packed.size_bytes).unwrap_or(usize::MAX);
    crate::sql::within("a body, in bytes,", size, BODY_BYTES_MAX)?;
    let body = zstd::bulk::decompress(&packed.body, size);
    let place = || format!("step {} of {}", packed.step, packed.program);
    Ok(BodyRow {
        body: body.map_err(|error| failed(&place(), error))?,
        program: packed.program,
        step: packed.step,
        kind: packed.kind,
        at_us: packed.at_us,
    })
}

/// The name of a body's object. Parts from outside are escaped.
fn name(packed: &Packed) -> String {
    let mut name = String::new();
    for byte in packed.program.bytes().chain([0]).chain(packed.kind.bytes()) {
        if byte.is_ascii_alphanumeric() {
            name.push(byte.into());
        } else {
            let _ = write!(name, "_{byte:02x}");
        }
    }
    // File names are limited to 255 bytes; longer ones are cut and made unique by a digest.
    if name.len() > NAME_BYTES_MAX {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let digest = hasher.finish();
        name.truncate(NAME_BYTES_MAX);
        let _ = write!(name, "-{digest:016x}");
    }
    format!("{name}-{}.zst", packed.step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_leave_no_folder_and_differ() {
        let packed = |program: &str, kind: &str| Packed {
            program: program.into(),
            kind: kind.into(),
            step: 7,
            at_us: 0,
            size_bytes: 0,
            object: None,
            body: Vec::new(),
        };
        assert_eq!(name(&packed("a/..", "x")), "a_2f_2e_2e_00x-7.zst");
        let long = "p".repeat(400);
        let names = [
            name(&packed(&long, "a")),
            name(&packed(&long, "b")),
            name(&packed("a", "b")),
            name(&packed("ab", "")),
        ];
        for (n, one) in names.iter().enumerate() {
            assert!(one.len() < 240, "{one}");
            assert!(!names[..n].contains(one), "{one}");
        }
    }
}
