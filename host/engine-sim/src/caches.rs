//! Export and import of KV caches: copies in host memory, and the links that transfers use. Part of
//! the task that owns the engine model; all times are virtual.
//!
//! A copy consists of the hashes of its blocks. Each rank has its own PCIe link to the host memory
//! of the engine's node, and the engine has the node's network card to other nodes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use treadle_engine_model::engine::{BLOCK_TOKENS, Ranks};
use treadle_engine_model::links::{
    CompletedTransfer, Links, Topology, TransferEnd, TransferId, Worker,
};

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
    /// Copy the cached part of a prompt at a rank.
    Export {
        id: TransferId,
        rank: u32,
        copy: String,
        program: Value,
        tags: Value,
        blocks: Vec<u64>,
        done: oneshot::Sender<Result<CopyRecord, CopyError>>,
    },
    /// Import a copy from host memory, here or elsewhere, to a rank; returns its tokens.
    Import {
        id: TransferId,
        rank: u32,
        record: CopyRecord,
        is_here: bool,
        done: oneshot::Sender<Result<u64, CopyError>>,
    },
    /// Name the cached part of a prompt at a rank for another engine; returns its tokens.
    Hold {
        rank: u32,
        copy: String,
        blocks: Vec<u64>,
        done: oneshot::Sender<Result<u64, CopyError>>,
    },
    /// Fetch what a rank lacks of a prompt's cache from another engine; returns its tokens.
    Take {
        id: TransferId,
        rank: u32,
        record: CopyRecord,
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
        rank: u32,
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
    ended: Vec<CompletedTransfer>,
}

impl Copies {
    pub(super) fn new(limits: CopyLimits, ranks: u32) -> Self {
        let worker = |_| Worker {
            node: HERE,
            gpus: 1,
        };
        let topology = Topology::new((0..ranks).map(worker).collect());
        Self {
            limits,
            links: Links::new(topology),
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
    pub(super) fn advance(&mut self, now_us: u64, engine: &mut Ranks) {
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
                Some(Moving::In { rank, record, done }) => {
                    let blocks = engine.import(now_us, rank, &record.blocks);
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

    /// Executes a command, whose rank exists; the links have been advanced to this time.
    pub(super) fn handle(&mut self, now_us: u64, engine: &Ranks, command: CopyCommand) {
        match command {
            CopyCommand::Export {
                id,
                rank,
                copy,
                program,
                tags,
                blocks,
                done,
            } => {
                let record = CopyRecord {
                    program,
                    tags,
                    ..self.record_of(engine, rank, blocks)
                };
                if let Err(error) = self.may_come(&copy, &record) {
                    let _ = done.send(Err(error));
                    return;
                }
                let (from, to) = (TransferEnd::Worker(rank), TransferEnd::Host(HERE));
                self.bytes += record.bytes;
                self.links.start(now_us, id, from, to, record.bytes);
                self.moving.insert(id, Moving::Out { copy, record, done });
            }
            CopyCommand::Import {
                id,
                rank,
                record,
                is_here,
                done,
            } => {
                let from = TransferEnd::Host(if is_here { HERE } else { ELSEWHERE });
                let to = TransferEnd::Worker(rank);
                self.links.start(now_us, id, from, to, record.bytes);
                self.moving.insert(id, Moving::In { rank, record, done });
            }
            CopyCommand::Hold {
                rank,
                copy,
                blocks,
                done,
            } => {
                let record = self.record_of(engine, rank, blocks);
                let _ = done.send(self.hold(copy, record));
            }
            CopyCommand::Take {
                id,
                rank,
                record,
                done,
            } => {
                let cached = engine.rank(rank).cached_prefix_tokens(&record.blocks);
                let missing = record.tokens.saturating_sub(cached);
                let bytes = missing * self.limits.bytes_per_token;
                let (from, to) = (TransferEnd::Host(ELSEWHERE), TransferEnd::Worker(rank));
                self.links.start(now_us, id, from, to, bytes);
                self.moving.insert(id, Moving::In { rank, record, done });
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

    /// Keeps a record of what is in an engine's cache; returns its tokens.
    fn hold(&mut self, copy: String, record: CopyRecord) -> Result<u64, CopyError> {
        self.may_come(&copy, &record)?;
        let tokens = record.tokens;
        self.bytes += record.bytes;
        self.held.insert(copy, record);
        Ok(tokens)
    }

    /// The cached part of a prompt at a rank.
    fn record_of(&self, engine: &Ranks, rank: u32, mut blocks: Vec<u64>) -> CopyRecord {
        let tokens = engine.rank(rank).cached_prefix_tokens(&blocks);
        blocks.truncate((tokens / u64::from(BLOCK_TOKENS)) as usize);
        CopyRecord {
            program: Value::Null,
            tags: Value::Null,
            tokens,
            bytes: tokens * self.limits.bytes_per_token,
            blocks,
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
