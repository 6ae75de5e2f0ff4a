//! KV caches outside of engines: host memory, links, and the copies that are held and moved.

use super::Cluster;
use std::collections::BTreeMap;
use std::sync::Arc;
use treadle_core::Event;
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_engine_model::links::{CompletedTransfer, Links, Topology, TransferEnd, Worker};
use treadle_model::{ProgramId, WorkerId};

/// GPUs of one node.
const NODE_GPUS: u32 = 8;

/// The size of caches, and the links for moving them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOptions {
    /// Size of a token's KV cache, in bytes.
    pub kv_bytes_per_token: u64,
    /// Number of GPUs per worker, each with its own PCIe and NVLink.
    pub gpus: u32,
}

impl Default for TransferOptions {
    /// Qwen3-32B on one GPU: keys and values of 64 layers with 8 heads of dimension 128, in 16
    /// bits.
    fn default() -> Self {
        Self {
            kv_bytes_per_token: 64 * 8 * 128 * 2 * 2,
            gpus: 1,
        }
    }
}

impl TransferOptions {
    /// Speed of transfers between one engine and host memory in one direction, without contention,
    /// in tokens per second.
    pub fn host_tokens_per_s(&self) -> u64 {
        let pcie = Topology::new(Vec::new()).pcie_bytes_per_s;
        pcie * u64::from(self.gpus) / self.kv_bytes_per_token.max(1)
    }

    /// The node that an engine is on.
    pub fn node_of(&self, engine: u32) -> u32 {
        engine * self.gpus.max(1) / NODE_GPUS
    }

    /// Speed of transfers between two engines of a node in one direction, without contention, in
    /// tokens per second.
    pub fn migration_tokens_per_s(&self) -> u64 {
        let nvlink = Topology::new(Vec::new()).nvlink_bytes_per_s;
        nvlink * u64::from(self.gpus) / self.kv_bytes_per_token.max(1)
    }
}

/// A transfer in progress.
enum InFlight {
    Offload {
        tokens: u64,
        node: u32,
        blocks: Arc<[u64]>,
    },
    Load {
        to: WorkerId,
    },
    Migrate {
        to: WorkerId,
        blocks: Arc<[u64]>,
    },
}

/// Host memory and links.
pub(super) struct Transfers {
    links: Links,
    options: TransferOptions,
    in_flight: BTreeMap<ProgramId, InFlight>,
    /// Caches in host memory, with the node that holds each.
    held: BTreeMap<ProgramId, (u32, Arc<[u64]>)>,
}

impl Transfers {
    pub(super) fn new(workers: u32, options: TransferOptions) -> Self {
        let worker = |worker: u32| Worker {
            node: options.node_of(worker),
            gpus: options.gpus,
        };
        Self {
            links: Links::new(Topology::new((0..workers).map(worker).collect())),
            options,
            in_flight: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    pub(super) fn next_event_at(&self) -> Option<u64> {
        self.links.next_event_at()
    }

    fn node_of(&self, worker: WorkerId) -> u32 {
        self.options.node_of(worker.0)
    }

    fn start(
        &mut self,
        now: u64,
        program: ProgramId,
        from: TransferEnd,
        to: TransferEnd,
        tokens: u64,
    ) {
        let bytes = tokens * self.options.kv_bytes_per_token;
        self.links.start(now, program.0, from, to, bytes);
    }

    /// Cancels a program's transfer.
    pub(super) fn cancel(&mut self, now: u64, program: ProgramId) {
        self.in_flight.remove(&program);
        self.links.cancel(now, program.0);
    }

    /// Frees a program's copy.
    pub(super) fn drop_copy(&mut self, program: ProgramId) {
        self.held.remove(&program);
    }
}

impl Cluster<'_> {
    /// Starts the transfer of a command; ignores other commands.
    pub(super) fn carry_out_transfer(&mut self, command: &ProgramCommand) {
        match *command {
            ProgramCommand::OffloadProgram {
                program,
                from,
                tokens,
                ..
            } => {
                let (blocks, cached) = self.cached(program, from);
                let tokens = tokens.min(cached);
                let node = self.transfers.node_of(from);
                let (worker, host) = (TransferEnd::Worker(from.0), TransferEnd::Host(node));
                self.transfers
                    .start(self.now, program, worker, host, tokens);
                let moving = InFlight::Offload {
                    tokens,
                    node,
                    blocks,
                };
                self.transfers.in_flight.insert(program, moving);
            }
            ProgramCommand::LoadProgram {
                program,
                to,
                tokens,
                ..
            } => {
                let held = self.transfers.held.get(&program);
                let node = held.map_or(self.transfers.node_of(to), |(node, _)| *node);
                let (host, worker) = (TransferEnd::Host(node), TransferEnd::Worker(to.0));
                self.transfers
                    .start(self.now, program, host, worker, tokens);
                self.transfers
                    .in_flight
                    .insert(program, InFlight::Load { to });
            }
            ProgramCommand::MigrateProgram {
                program,
                from,
                to,
                tokens,
                ..
            } => {
                let (blocks, cached) = self.cached(program, from);
                let (source, target) = (TransferEnd::Worker(from.0), TransferEnd::Worker(to.0));
                let tokens = tokens.min(cached);
                self.transfers
                    .start(self.now, program, source, target, tokens);
                let moving = InFlight::Migrate { to, blocks };
                self.transfers.in_flight.insert(program, moving);
            }
            ProgramCommand::CancelTransfer { program } => self.transfers.cancel(self.now, program),
            ProgramCommand::DropCopy { program, .. } => self.transfers.drop_copy(program),
            _ => {}
        }
    }

    /// The blocks of a program's cache that an engine has not evicted yet, and their number of
    /// tokens.
    fn cached(&self, program: ProgramId, worker: WorkerId) -> (Arc<[u64]>, u64) {
        let Some(agent) = self.agents_by_program.get(&program) else {
            return (Arc::from([]), 0);
        };
        let engine = self.engine_of(worker);
        let mut blocks = self.agents.blocks(*agent);
        let tokens = engine.cached_prefix_tokens(&blocks);
        blocks.truncate((tokens / u64::from(engine.profile().block_tokens)) as usize);
        (blocks.into(), tokens)
    }

    /// Reports completed transfers to the core.
    pub(super) fn end_transfers(&mut self) {
        if self
            .transfers
            .next_event_at()
            .is_none_or(|at| at > self.now)
        {
            return;
        }
        let mut done: Vec<CompletedTransfer> = Vec::new();
        self.transfers.links.advance(self.now, &mut done);
        for ended in done {
            let program = ProgramId(ended.id);
            let Some(moving) = self.transfers.in_flight.remove(&program) else {
                continue;
            };
            let event = self.arrived(program, moving);
            self.handle(&event);
        }
    }

    fn arrived(&mut self, program: ProgramId, moving: InFlight) -> Event {
        match moving {
            InFlight::Offload { blocks, .. } if blocks.is_empty() => {
                Event::Program(ProgramEvent::OffloadFailed {
                    program,
                    cause: "the engine has evicted it".into(),
                })
            }
            InFlight::Offload {
                tokens,
                node,
                blocks,
            } => {
                self.transfers.held.insert(program, (node, blocks));
                Event::Program(ProgramEvent::ProgramOffloaded {
                    program,
                    copy: program.to_string().into(),
                    tokens,
                    bytes: tokens * self.transfers.options.kv_bytes_per_token,
                })
            }
            InFlight::Load { to } => {
                let held = self.transfers.held.get(&program);
                let blocks = held.map_or_else(|| Arc::from([]), |(_, blocks)| blocks.clone());
                self.import(to, &blocks);
                Event::Program(ProgramEvent::ProgramLoaded { program, to })
            }
            InFlight::Migrate { to, blocks } => {
                self.import(to, &blocks);
                Event::Program(ProgramEvent::ProgramMigrated { program, to })
            }
        }
    }
}
