//! Instructions about steps to their gateways.

use std::sync::Arc;
use std::time::Duration;
use treadle_core::programs::Refusal;
use treadle_model::{EngineKind, Tenant, WorkerId};

/// An instruction to a waiting handler about its step.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Send the request to a worker.
    Dispatch(Dispatch),
    /// Answer with an error; the step is over.
    Refuse(Refusal),
    /// Answer that the client's tenant has reached its limit of live programs.
    RefuseLive {
        /// The limit.
        programs_max: u64,
    },
    /// Drop the engine's request and report the failure, unless the answer has begun.
    Abort(Box<str>),
    /// Drop the engine's request and report the failure, also if the answer has begun: the step's
    /// member was cut.
    Cut,
    /// Drop the engine's request and keep its output so far: the next dispatch continues from
    /// there.
    Preempt,
    /// The scheduler has changed and does not know the step.
    Forget,
}

/// The destination of a request.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The worker.
    pub worker: WorkerId,
    /// Its base URL.
    pub url: Arc<str>,
    /// Its software.
    pub engine: EngineKind,
    /// The slot to pin the request to.
    pub slot: Option<u32>,
    /// The step's priority, greater is more urgent; only in the mode in which engines order their
    /// steps by it.
    pub priority: Option<i32>,
    /// True if it may be preempted, and continued later.
    pub interruptible: bool,
    /// The engine that computes its prompt first, if one does.
    pub prefill: Option<PrefillAt>,
}

/// The engine that computes a step's prompt before the one that answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrefillAt {
    /// The worker.
    pub worker: WorkerId,
    /// Its base URL.
    pub url: Arc<str>,
    /// The port at which the other engine meets it, for `SGLang`.
    pub bootstrap_port: Option<u16>,
    /// How long it may take.
    pub within: Duration,
}

/// A limit on a tenant's live programs.
#[derive(Clone, Debug)]
pub struct LiveLimit {
    /// The tenant.
    pub tenant: Tenant,
    /// The limit.
    pub programs_max: u64,
}
