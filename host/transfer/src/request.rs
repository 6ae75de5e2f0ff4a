//! The requests to executors.

use std::sync::Arc;

use bytes::Bytes;
use treadle_model::{EngineKind, ProgramId};

use crate::{KvCopy, Tags};

/// A worker, as described to executors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerRef {
    /// Its base URL.
    pub url: Box<str>,
    /// Its software.
    pub kind: EngineKind,
    /// The address of the tier's server on its node; `None` for this process's own tier.
    pub node: Option<Box<str>>,
}

/// The prompt of a program, for engines that find KV by tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prompt {
    /// All tokens so far.
    Ids(Arc<[u32]>),
    /// The JSON body of the last request, and its path.
    Body {
        /// Path, including the leading slash.
        path: Box<str>,
        /// The body.
        body: Bytes,
    },
}

impl Prompt {
    /// Its tokens, if they are known.
    pub fn ids(&self) -> Option<&[u32]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::Body { .. } => None,
        }
    }
}

/// Copy a program's KV.
#[derive(Clone, Debug)]
pub struct Export {
    /// The worker that holds it.
    pub worker: WorkerRef,
    /// The slot that it is in (llama.cpp).
    pub slot: Option<u32>,
    /// The program that it belongs to.
    pub program: ProgramId,
    /// The scheduler that makes the request; several may share a tier.
    pub owner: Box<str>,
    /// Tokens of its context, as the scheduler counts them; 0 if unknown. A slot with less than
    /// half or more than twice as many is considered another program's.
    pub tokens: u64,
    /// The prompt that it was computed from, or the beginning of that. Engines other than llama.cpp
    /// need it; for llama.cpp, the copy is compared with it.
    pub prompt: Option<Prompt>,
    /// The salt of its requests' prefix cache, if any.
    pub cache_salt: Option<Box<str>>,
    /// The worker's model and weights.
    pub tags: Tags,
}

/// Load a copy into a worker.
#[derive(Clone, Debug)]
pub struct Import {
    /// The target worker.
    pub worker: WorkerRef,
    /// The target slot (llama.cpp).
    pub slot: Option<u32>,
    /// The program that the KV must belong to.
    pub program: ProgramId,
    /// The program's prompt. SGLang needs it; for other engines, the copy is compared with it.
    pub prompt: Option<Prompt>,
    /// The salt of its requests' prefix cache, if any.
    pub cache_salt: Option<Box<str>>,
    /// The worker's model and weights.
    pub tags: Tags,
    /// The copy.
    pub copy: KvCopy,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Imported {
    /// Tokens whose KV the worker has loaded.
    pub tokens: u64,
    /// Bytes that were loaded; 0 if the engine does not report them.
    pub bytes: u64,
}

impl Import {
    /// Checks that the copy belongs to the program and fits the worker, before anything is
    /// transferred.
    pub(crate) fn check(&self) -> Result<(), crate::TransferError> {
        use crate::TransferError;
        if self.copy.program != self.program {
            return Err(TransferError::OtherProgram {
                copy: self.copy.program,
                wanted: self.program,
            });
        }
        self.copy.tags.check(&self.tags)?;
        let ids = self.prompt.as_ref().and_then(Prompt::ids);
        if let Some(ids) = ids
            && !self.copy.prefix.may_begin(ids)
        {
            return Err(TransferError::OtherPrefix {
                why: format!(
                    "the program's {} tokens don't begin with the copy's {}",
                    ids.len(),
                    self.copy.prefix.tokens
                )
                .into(),
            });
        }
        Ok(())
    }
}
