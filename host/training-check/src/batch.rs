//! Batches as the trainer received them: `batch-K.json` and `batch-K.safetensors`, and for a batch
//! that it received again `batch-K.1.json` and so on.

use crate::error::Error;
use crate::payload::{Payload, read_payload};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest payload of a batch, in bytes.
const PAYLOAD_MAX: u64 = 4 << 30;
/// Largest batch as JSON, in bytes: a thousand prompts of the largest size that a job may submit.
const BATCH_MAX: u64 = 1 << 30;
/// Most files in a folder.
const FILES_MAX: usize = 1_000_000;
/// Fields that may differ when a batch comes again.
const CHANGING: &[&str] = &["lineage", "trained"];

/// A batch as the trainer received it. Its tokens are hashed while it is read, and not kept:
/// [`crate::Assembled::read`] reads them again.
#[derive(Clone, Debug)]
pub struct Received {
    /// The number in the file's name.
    pub(crate) number: u64,
    pub(crate) content: Content,
    /// Digest of all that stays the same when it comes again.
    pub(crate) unchanging: [u8; 32],
    /// What its payload has, or why it can't be read; `None` without a file.
    pub(crate) payload: Option<Result<Payload, String>>,
    /// The payload's file.
    path: PathBuf,
}

impl Received {
    /// Its number, from the file's name.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The bytes of its payload.
    pub(crate) fn read_payload(&self) -> Result<Vec<u8>, Error> {
        read_file(&self.path, PAYLOAD_MAX)
    }
}

/// A batch as JSON, as far as it is checked.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Content {
    pub(crate) job: String,
    pub(crate) batch: u64,
    pub(crate) trained_on: Option<u64>,
    pub(crate) groups: Vec<Group>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Group {
    #[serde(rename = "group")]
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) lag: u64,
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Member {
    pub(crate) program: String,
    pub(crate) end: String,
    #[serde(default, deserialize_with = "exact")]
    pub(crate) reward: Option<f64>,
    pub(crate) version: u64,
    pub(crate) sample: Option<String>,
}

/// A number with all its bits: the parser of `serde_json` may be off by the last one.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let value = raw
        .get()
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite());
    let wrong = || D::Error::custom("a reward is a finite number or null");
    value.map(Some).ok_or_else(wrong)
}

/// A file that belongs to a batch.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Named {
    number: u64,
    reception: u64,
    stem: String,
}

impl Named {
    fn of(name: &OsStr) -> Option<Self> {
        let stem = name.to_str()?.strip_suffix(".json")?;
        let numbers = stem.strip_prefix("batch-")?;
        let (number, reception) = numbers.split_once('.').unwrap_or((numbers, "0"));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(number) || !is_number(reception) {
            return None;
        }
        Some(Self {
            number: number.parse().ok()?,
            reception: reception.parse().ok()?,
            stem: stem.to_owned(),
        })
    }
}

/// Reads the batches of `job` in a folder, by their numbers; other files are ignored.
///
/// # Errors
/// [`Error`] if a file can't be read, is too large, or is no batch of the job. What is wrong with a
/// payload is in the report instead.
pub fn read_batches(folder: &Path, job: &str) -> Result<Vec<Received>, Error> {
    let failed = |cause| Error::Read {
        path: folder.into(),
        cause,
    };
    let mut files = Vec::new();
    for (index, entry) in std::fs::read_dir(folder).map_err(failed)?.enumerate() {
        if index >= FILES_MAX {
            let (what, limit) = ("files in the folder", FILES_MAX);
            return Err(Error::TooMany { what, limit });
        }
        files.extend(Named::of(&entry.map_err(failed)?.file_name()));
    }
    files.sort();
    let received = files.iter().map(|file| read_batch(folder, file, job));
    received.collect()
}

fn read_batch(folder: &Path, named: &Named, job: &str) -> Result<Received, Error> {
    let file = format!("{}.json", named.stem);
    let bytes = read_file(&folder.join(&file), BATCH_MAX)?;
    let wrong = |cause| Error::Json {
        place: format!("`{file}`"),
        cause,
    };
    let mut value: Value = serde_json::from_slice(&bytes).map_err(wrong)?;
    if value.get("ready") == Some(&Value::Bool(false)) {
        return Err(Error::NotReady { file });
    }
    for field in CHANGING {
        value.as_object_mut().map(|batch| batch.remove(*field));
    }
    let mut hasher = Sha256::new();
    hash(&value, &mut hasher);
    drop(value);
    let content: Content = serde_json::from_slice(&bytes).map_err(wrong)?;
    if content.job != job {
        let (found, job) = (content.job, job.to_owned());
        return Err(Error::OtherJob { file, found, job });
    }
    let path = folder.join(format!("{}.safetensors", named.stem));
    let exists = path.try_exists().map_err(|cause| Error::Read {
        path: path.clone(),
        cause,
    })?;
    let bytes = exists.then(|| read_file(&path, PAYLOAD_MAX)).transpose()?;
    let payload = bytes.map(|bytes| read_payload(&bytes));
    Ok(Received {
        number: named.number,
        content,
        unchanging: hasher.finalize().into(),
        payload,
        path,
    })
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let failed = |cause| Error::Read {
        path: path.into(),
        cause,
    };
    let wrong = || Error::File {
        path: path.into(),
        limit,
    };
    // Asked before it is opened: opening a pipe waits for its other end.
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > limit {
        return Err(wrong());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    if read.map_err(failed)? as u64 > limit {
        return Err(wrong());
    }
    Ok(bytes)
}

/// Hashes JSON so that the order of keys does not matter. The parser bounds its depth.
fn hash(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Array(items) => {
            hasher.update(format!("[{}", items.len()));
            for item in items {
                hash(item, hasher);
            }
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            hasher.update(format!("{{{}", fields.len()));
            for (name, field) in fields {
                hasher.update(format!("{}:{name}", name.len()));
                hash(field, hasher);
            }
        }
        Value::String(text) => hasher.update(format!("\"{}:{text}", text.len())),
        other => hasher.update(format!("{other};")),
    }
}
