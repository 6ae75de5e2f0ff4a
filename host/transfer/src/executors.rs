//! Selects the executor by the worker or the copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use treadle_model::EngineKind;

use crate::client::within;
use crate::support::{KvInterface, Support};
use crate::{
    CopyId, CopyLocation, Export, Import, Imported, KvCopy, KvExecutor, Limits, LlamaCpp, Sglang,
    Simulated, Tier, TransferError, Vllm, WorkerRef,
};

/// Workers whose abilities are cached; beyond it they are queried again.
const WORKERS_MAX: usize = 4_096;

/// The settings of [`Executors`].
#[derive(Default)]
pub struct Settings {
    /// This node's tier. Without one, llama.cpp's KV can't be moved.
    pub tier: Option<Tier>,
    /// The shared secret of the nodes.
    pub secret: Option<Box<str>>,
    /// Bounds.
    pub limits: Limits,
}

/// The executors of all engines.
pub struct Executors {
    llama_cpp: Option<LlamaCpp>,
    vllm: Vllm,
    sglang: Sglang,
    simulated: Simulated,
    limits: Limits,
    /// By URL, for workers that were queried.
    known: Mutex<BTreeMap<Box<str>, Support>>,
}

impl Executors {
    /// Executors without any known workers.
    pub fn new(settings: Settings) -> Self {
        let Settings {
            tier,
            secret,
            limits,
        } = settings;
        Self {
            llama_cpp: tier.map(|tier| LlamaCpp::new(tier, secret, limits.clone())),
            vllm: Vllm::new(limits.of_engine_held()),
            sglang: Sglang::new(limits.clone()),
            simulated: Simulated::new(limits.clone()),
            limits,
            known: Mutex::default(),
        }
    }

    /// Removes a worker's cached abilities, for example after its restart.
    pub fn forget(&self, url: &str) {
        self.known(|known| known.remove(url));
    }

    /// Reads another node's evictions into [`Tier::evictions`]; does nothing without a tier here.
    pub async fn hear(&self, node: &str) -> Result<(), TransferError> {
        match &self.llama_cpp {
            Some(llama_cpp) => llama_cpp.hear(node).await,
            None => Ok(()),
        }
    }

    /// Makes another node drop a scheduler's copies except the known ones; does nothing without a
    /// tier here.
    pub async fn keep_only(
        &self,
        node: &str,
        owner: &str,
        known: &BTreeSet<CopyId>,
    ) -> Result<(), TransferError> {
        match &self.llama_cpp {
            Some(llama_cpp) => llama_cpp.keep_only(node, owner, known).await,
            None => Ok(()),
        }
    }

    /// A worker's cached abilities; it is queried if there are none.
    pub async fn support_seen(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        let known = self.known(|known| known.get(&worker.url).cloned());
        match known {
            Some(support) => Ok(support),
            None => self.look(worker).await,
        }
    }

    fn known<T>(&self, work: impl FnOnce(&mut BTreeMap<Box<str>, Support>) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn look(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        let url = worker.url.clone();
        let support = self.ask(worker).await?;
        self.known(|known| {
            if known.len() >= WORKERS_MAX {
                known.clear();
            }
            known.insert(url, support.clone());
        });
        Ok(support)
    }

    async fn ask(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        // Otherwise a simulated engine looks like the engine that it simulates.
        let asked = self.simulated.abilities(&worker);
        let simulated = within("probing the engine", self.limits.probe, asked).await?;
        if let Some(support) = simulated {
            return Ok(support);
        }
        match (worker.kind, &self.llama_cpp) {
            (EngineKind::Llamacpp, Some(llama_cpp)) => llama_cpp.support(worker).await,
            (EngineKind::Llamacpp, None) => Ok(Support::none(
                "no host tier is configured, which llama.cpp's slot files need",
            )),
            (EngineKind::Vllm, _) => self.vllm.support(worker).await,
            (EngineKind::Sglang, _) => self.sglang.support(worker).await,
            (EngineKind::Openai, _) => Ok(Support::none(
                "the OpenAI API has no operations for KV, and the kind of the engine is unknown",
            )),
        }
    }

    /// The executor for a worker, by its abilities.
    async fn of(&self, worker: &WorkerRef) -> Result<&dyn KvExecutor, TransferError> {
        let support = self.support_seen(worker.clone()).await?;
        let executor: Option<&dyn KvExecutor> = match support.interface {
            KvInterface::SlotFiles => self
                .llama_cpp
                .as_ref()
                .map(|executor| executor as &dyn KvExecutor),
            KvInterface::Nixl => Some(&self.vllm),
            KvInterface::HiCache => Some(&self.sglang),
            KvInterface::Simulated => Some(&self.simulated),
            KvInterface::Nothing => None,
        };
        executor.ok_or_else(|| TransferError::unsupported(&worker.url, support.why))
    }
}

#[async_trait]
impl KvExecutor for Executors {
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError> {
        self.look(worker).await
    }

    async fn export(&self, export: Export) -> Result<KvCopy, TransferError> {
        self.of(&export.worker).await?.export(export).await
    }

    async fn import(&self, import: Import) -> Result<Imported, TransferError> {
        self.of(&import.worker).await?.import(import).await
    }

    async fn drop(&self, copy: KvCopy) -> Result<(), TransferError> {
        match (&copy.place, &self.llama_cpp) {
            (CopyLocation::Tier { .. }, Some(llama_cpp)) => llama_cpp.drop(copy).await,
            (CopyLocation::Tier { .. }, None) => Err(TransferError::wrong_handle(
                "it is in a host tier, but none is configured",
            )),
            (CopyLocation::Engine { .. }, _) => self.vllm.drop(copy).await,
            (CopyLocation::Storage { .. }, _) => self.sglang.drop(copy).await,
            (CopyLocation::Simulated { .. }, _) => self.simulated.drop(copy).await,
        }
    }
}
