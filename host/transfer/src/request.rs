//! What executors are asked for.

use std::sync::Arc;

use bytes::Bytes;
use treadle_model::{EngineKind, ProgramId};

use crate::{KvCopy, Tags};

/// A worker, as executors need to know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerRef {
    /// Its base URL.
    pub url: Box<str>,
    /// Its software.
    pub kind: EngineKind,
    /// The address of the tier's server on its node; `None` for this process's own tier.
    pub node: Option<Box<str>>,
}

/// The prompt of a program: what an engine that knows KV by its tokens has to be asked with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prompt {
    /// All tokens so far.
    Ids(Arc<[u32]>),
    /// The body of the last request, JSON, and the path that it went to.
    Body {
        /// Path, from the slash.
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
    /// Where it is.
    pub worker: WorkerRef,
    /// The slot that it is in (llama.cpp).
    pub slot: Option<u32>,
    /// Whose it is.
    pub program: ProgramId,
    /// The scheduler that asks, where copies of several are in one tier.
    pub owner: Box<str>,
    /// Tokens of its context, as the scheduler counts them; 0 if it does not know. A slot with less
    /// than half or more than twice as many is taken for another program's.
    pub tokens: u64,
    /// What it was computed from, or the beginning of that. Engines other than llama.cpp need it;
    /// that one's copies are compared with it.
    pub prompt: Option<Prompt>,
    /// The salt of its requests' prefix cache, if they had one.
    pub cache_salt: Option<Box<str>>,
    /// What the worker computes with.
    pub tags: Tags,
}

/// Bring a copy to a worker.
#[derive(Clone, Debug)]
pub struct Import {
    /// Where to.
    pub worker: WorkerRef,
    /// The slot that is to hold it (llama.cpp).
    pub slot: Option<u32>,
    /// Whose KV it has to be.
    pub program: ProgramId,
    /// The program's prompt. SGLang needs it; copies of others are compared with it.
    pub prompt: Option<Prompt>,
    /// The salt of its requests' prefix cache, if they had one.
    pub cache_salt: Option<Box<str>>,
    /// What the worker computes with.
    pub tags: Tags,
    /// The copy.
    pub copy: KvCopy,
}

/// What an import brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Imported {
    /// Tokens whose KV the worker took over.
    pub tokens: u64,
    /// Bytes that went into it; 0 where the engine does not report them.
    pub bytes: u64,
}

impl Import {
    /// Compares the copy with what it is wanted for, before anything is moved.
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
