//! What becomes of a step, as its gateway is told.

use std::sync::Arc;
use treadle_core::Refusal;
use treadle_model::{EngineKind, Tenant, WorkerId};

/// An instruction to a waiting handler about its step.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Send the request there.
    Dispatch(Dispatch),
    /// Answer with an error; the step is over.
    Refuse(Refusal),
    /// Answer that the client's tenant has as many live programs as it may.
    RefuseLive {
        /// How many it may have.
        programs_max: u64,
    },
    /// Drop the engine's request and report the failure.
    Abort(Box<str>),
    /// Drop the engine's request and keep what it has generated: the next
    /// dispatch goes on from there.
    Preempt,
    /// The scheduler, which is another than before, does not know the step.
    Forget,
}

/// Where a request goes.
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
    /// How urgent the step is, the greater the more, in the mode in which
    /// engines order their steps by it.
    pub priority: Option<i32>,
    /// True if it may be preempted, and continued later.
    pub interruptible: bool,
}

/// How many programs of a tenant may be live.
#[derive(Clone, Debug)]
pub struct LiveLimit {
    /// Whose.
    pub tenant: Tenant,
    /// How many.
    pub programs_max: u64,
}
