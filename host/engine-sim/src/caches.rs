//! Export and import of KV caches: copies in host memory, and the links that transfers use. Part of
//! the task that owns the engine model; all times are virtual.
//!
//! A copy consists of the hashes of its blocks. Each engine has its own links: PCIe to the host
//! memory of its node, and the node's network card to other nodes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use treadle_engine_model::engine::{BLOCK_TOKENS, Engine};
use treadle_engine_model::links::{Done, Links, Topology, TransferEnd, TransferId, Worker};

/// The engine's own node, and any other one.
const HERE: u32 = 0;
const ELSEWHERE: u32 = 1;

/// Limits of copies in host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyLimits {
    pub(super) bytes_per_token: u64,
    pub(super) host_bytes_max: u64,
}

/// A copy of a program's cache; also the form in which engines exchange it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CopyRecord {
    /// The program, as named by the client that requested the copy.
    pub(super) program: Value,
    /// What the cache was computed with, as named by that client.
    pub(super) tags: Value,
    pub(super) tokens: u64,
    pub(super) bytes: u64,
    pub(super) blocks: Vec<u64>,
}

/// Why a copy or an import failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CopyError {
    #[error("nothing of the prompt is in the cache")]
    Nothing,
    #[error("a copy of this name exists or is in progress")]
    Known,
    #[error("host memory has no room for it")]
    HostFull,
    #[error("the engine's memory has no room for it")]
    EngineFull,
}

/// An operation on copies.
pub(super) enum CopyCommand {
    /// Copy the cached part of a prompt.
    Export {
        id: TransferId,
        copy: String,
        program: Value,
        tags: Value,
        blocks: Vec<u64>,
        done: oneshot::Sender<Result<CopyRecord, CopyError>>,
    },
    /// Import a copy from host memory, here or elsewhere; returns its tokens.
    Import {
        id: TransferId,
        record: CopyRecord,
        is_here: bool,
        done: oneshot::Sender<Result<u64, CopyError>>,
    },
    /// Cancel a transfer whose receiver is gone.
    Cancel(TransferId),
    /// Look up a copy.
    Find {
        copy: String,
        found: oneshot::Sender<Option<CopyRecord>>,
    },
    /// Delete a copy, or cancel one in progress.
    Drop(String),
}

enum Moving {
    Out {
        copy: String,
        record: CopyRecord,
        done: oneshot::Sender<Result<CopyRecord, CopyError>>,
    },
    In {
        record: CopyRecord,
        done: oneshot::Sender<Result<u64, CopyError>>,
    },
}

/// Copies in host memory, and transfers in progress.
pub(super) struct Copies {
    limits: CopyLimits,
    links: Links,
    moving: BTreeMap<TransferId, Moving>,
    held: HashMap<String, CopyRecord>,
    /// Bytes of copies, finished or in progress.
    bytes: u64,
    ended: Vec<Done>,
}

impl Copies {
    pub(super) fn new(limits: CopyLimits) -> Self {
        let worker = Worker {
            node: HERE,
            gpus: 1,
        };
        Self {
            limits,
            links: Links::new(Topology::new(vec![worker])),
            moving: BTreeMap::new(),
            held: HashMap::new(),
            bytes: 0,
            ended: Vec::new(),
        }
    }

    /// Time of the next transfer's end, in microseconds.
    pub(super) fn next_event_at(&self) -> Option<u64> {
        self.links.next_event_at()
    }

    /// Completes the transfers that end by this time.
    pub(super) fn advance(&mut self, now_us: u64, engine: &mut Engine) {
        self.links.advance(now_us, &mut self.ended);
        for done in std::mem::take(&mut self.ended) {
            match self.moving.remove(&done.id) {
                Some(Moving::Out { copy, record, done }) => {
                    let bytes = record.bytes;
                    if done.send(Ok(record.clone())).is_ok() {
                        self.held.insert(copy, record);
                    } else {
                        self.bytes -= bytes;
                    }
                }
                Some(Moving::In { record, done }) => {
                    let blocks = engine.import(now_us, &record.blocks);
                    let tokens = u64::from(blocks) * u64::from(BLOCK_TOKENS);
                    let _ = done.send(match tokens {
                        0 => Err(CopyError::EngineFull),
                        tokens => Ok(tokens),
                    });
                }
                None => {}
            }
        }
    }

    /// Executes a command; the links have been advanced to this time.
    pub(super) fn handle(&mut self, now_us: u64, engine: &Engine, command: CopyCommand) {
        match command {
            CopyCommand::Export {
                id,
                copy,
                program,
                tags,
                mut blocks,
                done,
            } => {
                let tokens = engine.cached_prefix_tokens(&blocks);
                blocks.truncate((tokens / u64::from(BLOCK_TOKENS)) as usize);
                let record = CopyRecord {
                    program,
                    tags,
                    tokens,
                    bytes: tokens * self.limits.bytes_per_token,
                    blocks,
                };
                if let Err(error) = self.may_come(&copy, &record) {
                    let _ = done.send(Err(error));
                    return;
                }
                let (from, to) = (TransferEnd::Worker(0), TransferEnd::Host(HERE));
                self.bytes += record.bytes;
                self.links.start(now_us, id, from, to, record.bytes);
                self.moving.insert(id, Moving::Out { copy, record, done });
            }
            CopyCommand::Import {
                id,
                record,
                is_here,
                done,
            } => {
                let from = TransferEnd::Host(if is_here { HERE } else { ELSEWHERE });
                self.links
                    .start(now_us, id, from, TransferEnd::Worker(0), record.bytes);
                self.moving.insert(id, Moving::In { record, done });
            }
            CopyCommand::Cancel(id) => {
                self.links.cancel(now_us, id);
                if let Some(Moving::Out { record, .. }) = self.moving.remove(&id) {
                    self.bytes -= record.bytes;
                }
            }
            CopyCommand::Find { copy, found } => {
                let _ = found.send(self.held.get(&copy).cloned());
            }
            CopyCommand::Drop(copy) => self.forget(now_us, &copy),
        }
    }

    fn may_come(&self, copy: &str, record: &CopyRecord) -> Result<(), CopyError> {
        if record.tokens == 0 {
            return Err(CopyError::Nothing);
        }
        let is_coming =
            |moving: &Moving| matches!(moving, Moving::Out { copy: c, .. } if c == copy);
        if self.held.contains_key(copy) || self.moving.values().any(is_coming) {
            return Err(CopyError::Known);
        }
        if self.bytes.saturating_add(record.bytes) > self.limits.host_bytes_max {
            return Err(CopyError::HostFull);
        }
        Ok(())
    }

    fn forget(&mut self, now_us: u64, name: &str) {
        if let Some(record) = self.held.remove(name) {
            self.bytes -= record.bytes;
        }
        let coming = self.moving.iter().find_map(|(id, moving)| match moving {
            Moving::Out { copy, .. } if copy == name => Some(*id),
            _ => None,
        });
        if let Some(id) = coming {
            self.links.cancel(now_us, id);
            if let Some(Moving::Out { record, .. }) = self.moving.remove(&id) {
                self.bytes -= record.bytes;
            }
        }
    }
}
