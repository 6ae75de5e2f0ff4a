//! Moves the KV of programs out of engines, into host memory, and to other engines.
//!
//! Engines own the memory, and each kind has its own interface ([`KvInterface`]). [`KvExecutor`] is
//! common to all: `export` makes a [`KvCopy`], `import` loads it into a worker, `drop` removes it.
//! [`Executors`] combines all of them behind that trait.
//!
//! Every failure ends as a [`TransferError`], after which the program's KV is recomputed; wrong KV
//! is never used. A copy records what it was computed from (model, layout, tokens, checksum),
//! which is compared with the worker before the transfer; the core drops copies of other weights. If
//! an engine does not protect a copy (vLLM), it is used only once, within a time limit, and by the
//! process that made it.
//!
//! Dropping a future of this crate aborts its transfer and leaves no partial copy behind.

mod client;
mod copy;
mod error;
mod executors;
mod lanes;
mod limits;
mod llama_cpp;
mod node;
mod prompt_request;
mod request;
mod sglang;
mod simulated;
mod stream;
mod support;
mod tier;
mod vllm;

use async_trait::async_trait;

pub use copy::{CopyId, CopyLocation, HANDLE_BYTES_MAX, KvCopy, Prefix, Tags};
pub use error::TransferError;
pub use executors::{Executors, Settings};
pub use limits::{Limits, NodeTls};
pub use llama_cpp::LlamaCpp;
pub use request::{Export, Import, Imported, Prompt, WorkerRef};
pub use sglang::Sglang;
pub use simulated::Simulated;
pub use stream::{TierServer, frame};
pub use support::{KvInterface, Support};
pub use tier::{Evicted, Evictions, Tier, TierSettings, TierUsage};
pub use vllm::Vllm;

/// Copies the KV of programs out of engines and back.
///
/// Each method ends within its timeout in [`Limits`]. At each worker, one transfer per direction
/// runs at a time; others wait within the same timeout.
#[async_trait]
pub trait KvExecutor: Send + Sync {
    /// Detects what a worker supports, without touching its caches.
    async fn support(&self, worker: WorkerRef) -> Result<Support, TransferError>;

    /// Copies the KV of a program that is between steps.
    async fn export(&self, export: Export) -> Result<KvCopy, TransferError>;

    /// Loads a copy into a worker. After an error the worker holds no part of it.
    async fn import(&self, import: Import) -> Result<Imported, TransferError>;

    /// Drops a copy. A missing one is not an error.
    async fn drop(&self, copy: KvCopy) -> Result<(), TransferError>;
}
