//! Copies of KV and their tags.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use treadle_model::ProgramId;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::TransferError;

/// Longest handle of a copy, in bytes. vLLM's lists each block of the copy.
pub const HANDLE_BYTES_MAX: usize = 256 << 10;
/// Version of the handle format; others are refused.
const HANDLE_FORM: u32 = 1;

/// Id of a copy. Random, so that a copy can be found only with its handle.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CopyId(u128);

impl CopyId {
    /// A new random id.
    pub fn random() -> Result<Self, TransferError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| TransferError::internal("random numbers", error))?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for CopyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CopyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not 32 hexadecimal digits"))
    }
}

fn parse_hex(text: &str) -> Option<u128> {
    let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A 128-bit XXH3 hash in hexadecimal. It detects damage, not forgery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Digest(pub(crate) u128);

impl Digest {
    /// The digest of a hasher's input.
    pub(crate) fn of(hasher: &Xxh3) -> Self {
        Self(hasher.digest128())
    }

    pub(crate) fn text(self) -> Box<str> {
        format!("{:032x}", self.0).into()
    }
}

/// What the KV of a copy was computed with. KV with different tags is not interchangeable.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tags {
    /// The model's name.
    pub model: Box<str>,
    /// Further properties of model and engine, if the engine reports them (llama.cpp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Box<str>>,
    /// Tokens per block, if the engine reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<u32>,
    /// The number type of the cache, if the engine reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Box<str>>,
}

impl Tags {
    /// Compares a copy's tags with those of the target worker. Of the optional tags, only
    /// contradictions count.
    pub(crate) fn check(&self, worker: &Self) -> Result<(), TransferError> {
        let differ = |field, copy: &dyn fmt::Display, worker: &dyn fmt::Display| {
            Err(TransferError::OtherTags {
                field,
                copy: copy.to_string().into(),
                worker: worker.to_string().into(),
            })
        };
        if self.model != worker.model {
            return differ("model", &self.model, &worker.model);
        }
        if let (Some(copy), Some(worker)) = (&self.shape, &worker.shape)
            && copy != worker
        {
            return differ("shape", copy, worker);
        }
        if let (Some(copy), Some(worker)) = (self.block_tokens, worker.block_tokens)
            && copy != worker
        {
            return differ("block_tokens", &copy, &worker);
        }
        if let (Some(copy), Some(worker)) = (&self.dtype, &worker.dtype)
            && copy != worker
        {
            return differ("dtype", copy, worker);
        }
        Ok(())
    }
}

/// The tokens whose KV a copy holds.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Prefix {
    /// Number of tokens.
    pub tokens: u64,
    /// Their hash ([`Prefix::of`]), if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Box<str>>,
}

impl Prefix {
    /// The prefix consisting of these tokens.
    pub fn of(ids: &[u32]) -> Self {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        Self {
            tokens: ids.len() as u64,
            hash: Some(Digest(xxh3_128(&bytes)).text()),
        }
    }

    /// Whether a prompt may begin with these tokens; `false` only if it is known not to.
    pub fn may_begin(&self, ids: &[u32]) -> bool {
        let Some(head) = usize::try_from(self.tokens)
            .ok()
            .and_then(|tokens| ids.get(..tokens))
        else {
            return false;
        };
        self.hash.is_none() || *self == Self::of(head)
    }
}

/// Where a copy is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub enum CopyLocation {
    /// In the host tier of a node, identified by the address of its server, or by a name that only
    /// its own process knows.
    Tier {
        /// The node.
        node: Box<str>,
        /// The scheduler that owns the copy, if several use the tier.
        #[serde(default)]
        owner: Box<str>,
    },
    /// In the memory of the engine that made it, until another engine fetches it.
    Engine {
        /// The engine.
        url: Box<str>,
        /// Parameters for the fetching engine, in the engine's own format.
        parameters: Value,
    },
    /// In the storage behind the engines, which finds it by its tokens.
    Storage {
        /// The engine that wrote it.
        url: Box<str>,
    },
    /// In a simulated engine's host memory.
    Simulated {
        /// The engine.
        url: Box<str>,
    },
}

/// The handle of a copy of a program's KV. It is compared with the stored copy before use.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct KvCopy {
    /// Its id.
    pub id: CopyId,
    /// The program that the KV belongs to.
    pub program: ProgramId,
    /// What the KV was computed with.
    pub tags: Tags,
    /// The tokens that it covers.
    pub prefix: Prefix,
    /// Its size; 0 if the engine does not report it.
    pub bytes: u64,
    /// Hash of its bytes, if this process has read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Box<str>>,
    /// Where it is.
    pub place: CopyLocation,
}

#[derive(Serialize, Deserialize)]
struct Handle<C> {
    form: u32,
    copy: C,
}

impl KvCopy {
    /// Serializes the handle for the journal.
    pub fn to_handle(&self) -> Result<Box<str>, TransferError> {
        let handle = Handle {
            form: HANDLE_FORM,
            copy: self,
        };
        let text = serde_json::to_string(&handle)
            .map_err(|error| TransferError::internal("a handle", error))?;
        if text.len() > HANDLE_BYTES_MAX {
            return Err(TransferError::wrong_handle(format!(
                "it would have {} bytes, more than {HANDLE_BYTES_MAX}: the engine holds the \
                 copy in too many pieces",
                text.len()
            )));
        }
        Ok(text.into())
    }

    /// Parses a handle.
    pub fn from_handle(text: &str) -> Result<Self, TransferError> {
        if text.len() > HANDLE_BYTES_MAX {
            return Err(TransferError::wrong_handle("it is too long"));
        }
        let handle: Handle<Self> = serde_json::from_str(text)
            .map_err(|error| TransferError::wrong_handle(error.to_string()))?;
        if handle.form != HANDLE_FORM {
            return Err(TransferError::wrong_handle(format!(
                "its format version is {}, supported is {HANDLE_FORM}",
                handle.form
            )));
        }
        Ok(handle.copy)
    }

    /// Whether two handles refer to the same copy, regardless of their locations.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.program == other.program
            && self.tags == other.tags
            && self.prefix == other.prefix
            && self.bytes == other.bytes
            && self.checksum == other.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> KvCopy {
        KvCopy {
            id: CopyId::random().unwrap(),
            program: ProgramId(7),
            tags: Tags {
                model: "m".into(),
                shape: Some("n_params=9".into()),
                block_tokens: None,
                dtype: Some("f16".into()),
            },
            prefix: Prefix::of(&[1, 2, 3]),
            bytes: 12,
            checksum: Some(Digest(5).text()),
            place: CopyLocation::Tier {
                node: "n".into(),
                owner: "o".into(),
            },
        }
    }

    #[test]
    fn a_handle_survives_a_round_trip() {
        let copy = copy();
        let handle = copy.to_handle().unwrap();
        assert_eq!(KvCopy::from_handle(&handle).unwrap(), copy);
        for wrong in [
            "",
            "{}",
            &handle.replace("\"form\":1", "\"form\":2"),
            &handle.replace(&copy.id.to_string(), "../../etc/passwd"),
            &" ".repeat(HANDLE_BYTES_MAX + 1),
        ] {
            let error = KvCopy::from_handle(wrong).unwrap_err();
            assert_eq!(error.code(), "wrong-handle", "{wrong}");
        }
    }

    #[test]
    fn contradicting_tags_are_distinguished() {
        let tags = copy().tags;
        tags.check(&tags).unwrap();
        let unknown = Tags {
            dtype: None,
            block_tokens: Some(16),
            ..tags.clone()
        };
        tags.check(&unknown).unwrap();
        unknown.check(&tags).unwrap();
        let others = [
            Tags {
                model: "n".into(),
                ..tags.clone()
            },
            Tags {
                dtype: Some("f32".into()),
                ..tags.clone()
            },
            Tags {
                shape: Some("n_params=8".into()),
                ..tags.clone()
            },
        ];
        for other in others {
            assert_eq!(tags.check(&other).unwrap_err().code(), "other-tags");
        }
    }

    #[test]
    fn a_prefix_knows_its_prompts() {
        let prefix = Prefix::of(&[1, 2, 3]);
        assert!(prefix.may_begin(&[1, 2, 3]));
        assert!(prefix.may_begin(&[1, 2, 3, 4]));
        assert!(!prefix.may_begin(&[1, 2]));
        assert!(!prefix.may_begin(&[1, 2, 4, 3]));
        let uncertain = Prefix {
            tokens: 2,
            hash: None,
        };
        assert!(uncertain.may_begin(&[9, 9, 9]));
        assert!(!uncertain.may_begin(&[9]));
    }
}
