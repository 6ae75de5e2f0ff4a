//! Moves the KV of programs: out of engines, into host memory, to other engines.
//!
//! Engines own the memory, so each is asked in its own way ([`Means`]); what they have in common is
//! [`KvExecutor`]: `export` gives a [`KvCopy`], `import` brings it to a worker, `drop` forgets it.
//! [`Executors`] is all of them behind that trait.
//!
//! Whatever goes wrong here ends as a [`TransferError`], after which the program's KV is computed
//! again, and never as KV that is not the program's: a copy carries what it was made of (model,
//! weights, layout, tokens, checksum), and is compared with what the worker has before it is handed
//! over. Where an engine holds a copy without looking after it (vLLM), the copy is used once, in
//! time, and by the process that made it.
//!
//! Dropping a future of this crate ends what it began and leaves no partial copy behind.

mod ask;
mod client;
mod copy;
mod error;
mod executors;
mod lanes;
mod limits;
mod llama_cpp;
mod node;
mod request;
mod sglang;
mod simulated;
mod stream;
mod support;
mod tier;
mod vllm;

use std::future::Future;
use std::pin::Pin;

pub use copy::{CopyId, CopyLocation, HANDLE_BYTES_MAX, KvCopy, Prefix, Tags};
pub use error::TransferError;
pub use executors::{Executors, Settings};
pub use limits::{Limits, NodeTls};
pub use llama_cpp::LlamaCpp;
pub use request::{Export, Import, Imported, Prompt, WorkerRef};
pub use sglang::Sglang;
pub use simulated::Simulated;
pub use stream::{TierServer, frame};
pub use support::{Means, Support};
pub use tier::{Evicted, Evictions, Tier, TierSettings, TierUsage};
pub use vllm::Vllm;

/// What a method of [`KvExecutor`] returns: a boxed future, so that the trait can be used as an
/// object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransferError>> + Send + 'a>>;

/// Takes the KV of programs out of engines and brings it back.
///
/// Each method ends within its bound of [`Limits`]. One transfer at a time runs at a worker in each
/// direction; others wait their turn within the same bound.
pub trait KvExecutor: Send + Sync {
    /// Finds out what can be done with a worker, without touching its caches.
    fn support(&self, worker: WorkerRef) -> Answer<'_, Support>;

    /// Copies the KV of a program that is between steps.
    fn export(&self, export: Export) -> Answer<'_, KvCopy>;

    /// Brings a copy to a worker. After an error the worker holds nothing of it.
    fn import(&self, import: Import) -> Answer<'_, Imported>;

    /// Drops a copy. A missing one is not an error.
    fn drop(&self, copy: KvCopy) -> Answer<'_, ()>;
}
