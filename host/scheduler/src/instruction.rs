//! Instructions about steps to their gateways.

use std::sync::Arc;
use treadle_core::Refusal;
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
    /// Drop the engine's request and report the failure.
    Abort(Box<str>),
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
}

/// A limit on a tenant's live programs.
#[derive(Clone, Debug)]
pub struct LiveLimit {
    /// The tenant.
    pub tenant: Tenant,
    /// The limit.
    pub programs_max: u64,
}
