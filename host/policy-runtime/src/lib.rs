//! Runs policies as sandboxed WebAssembly components.
//!
//! [`PolicyEngine::inspect`] takes an upload through every check and gives a
//! component that may run, or an [`UploadRefusal`] that says what to do.
//! [`PolicyEngine::load`] makes an instance of it. An instance belongs to one
//! thread at a time and is called synchronously; each call has a deadline, bounded
//! memory and stack, and its answer is checked. A call that goes wrong gives a
//! [`PolicyFault`]; the caller then decides by its built-in default, and the
//! instance replaces itself before its next call. [`Breaker`] says when to stop
//! asking a policy at all.
//!
//! This crate knows nothing of programs, workers and jobs, nor when to ask which
//! policy; no type of the WebAssembly engine leaves it.

mod artifacts;
mod breaker;
mod compiler;
mod engine;
mod error;
mod inspect;
mod instance;
mod limits;
mod policy_log;
mod sandbox;
mod signature;
mod smoke;
mod ticker;
mod worlds;

pub use artifacts::{ArtifactStore, ArtifactStoreError};
pub use breaker::{Breaker, BreakerLimits, BreakerState};
pub use compiler::{CompileFault, Compiler, CompilerCommand, CompilerLimits, compiler_main};
pub use engine::PolicyEngine;
pub use error::{LoadError, PolicyFault, RuntimeError, UploadRefusal};
pub use inspect::{Candidate, Inspection, embed_contract};
pub use instance::Description;
pub use limits::Limits;
pub use policy_log::{LogLevel, LogLine};
pub use signature::{
    KeyError, SecretKey, SignaturePolicy, SignedBy, TrustedKeys, generate_key, sign, upload_digest,
};
pub use smoke::SmokeTiming;
pub use worlds::eviction::{
    ActingColumns, ActiveColumns, EvictionInstance, EvictionModule, WaitingColumns,
};
