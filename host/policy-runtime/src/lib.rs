//! Runs policies as sandboxed WebAssembly components.
//!
//! [`PolicyEngine::inspect`] takes an upload through every check and gives a component that may
//! run, or an [`UploadRefusal`] with the remedy. [`PolicyEngine::compile`] turns it into a
//! [`PolicyModule`], whatever its world, and that starts a [`PolicyInstance`], which is called
//! through the handle of its world, such as [`EvictionInstance`]. An instance belongs to one thread
//! at a time and is called synchronously; each call has a deadline, bounded memory and stack, and
//! its answer is checked. A failed call gives a [`PolicyFault`]; the caller then uses its built-in
//! default, and the instance replaces itself before its next call. A policy's stored state,
//! [`BindingState`], outlives its instances. [`Breaker`] decides when to stop calling a policy.
//!
//! [`PolicyEngine::deterministic`] counts instructions instead of time, so that the same calls give
//! the same bits.
//!
//! This crate does not deal with programs, workers and jobs, nor with when to call which policy; no
//! type of the WebAssembly engine leaves it.

mod answers;
mod artifacts;
mod breaker;
mod call;
mod columns;
mod compiler;
mod engine;
mod error;
mod guarded;
mod inspect;
mod instance;
mod limits;
mod log_sink;
mod module;
mod policy_log;
mod sandbox;
mod schema;
mod signature;
mod smoke;
mod state;
mod ticker;
mod worlds;

pub use artifacts::{ArtifactStore, ArtifactStoreError};
pub use breaker::{Breaker, BreakerLimits, BreakerState};
pub use call::CallContext;
pub use columns::{COST_COLUMNS, ENDED_COLUMN, PROGRAM_COLUMNS, columns_of};
pub use compiler::{CompileFault, Compiler, CompilerCommand, CompilerLimits, compiler_main};
pub use engine::PolicyEngine;
pub use error::{LoadError, PolicyFault, RuntimeError, UploadRefusal};
pub use inspect::{Candidate, Inspection, embed_contract};
pub use instance::Description;
pub use limits::Limits;
pub use log_sink::{LogSink, LogTail};
pub use module::{InstanceOptions, PolicyInstance, PolicyModule};
pub use policy_log::{LogLevel, LogLine};
pub use signature::{
    KeyError, SecretKey, SignaturePolicy, SignedBy, TrustedKeys, generate_key, sign, upload_digest,
};
pub use smoke::SmokeTiming;
pub use state::{BindingState, StateError};
pub use worlds::allocation::{
    ActionColumns, AllocationInstance, ParallelismColumns, PoolColumns, RunningColumns,
};
pub use worlds::eviction::{
    ActingColumns, ActiveColumns, CacheAction, EvictionInstance, RetentionColumns, WaitingColumns,
};
pub use worlds::placement::{
    AssignColumns, MigrateColumns, NO_CLASS, NO_GROUP, NOWHERE, PlacementInstance, RouteColumns,
    WorkerColumns,
};
pub use worlds::prediction::{Estimates, FinishedColumns, LiveColumns, PredictionInstance};
pub use worlds::priority::{PreemptColumns, PriorityInstance, QueueColumns};
pub use worlds::reward::{AnswerColumns, RewardInstance, Scores};
pub use worlds::shaping::{GroupColumns, MemberColumns, ShapingInstance, Verdict};
