//! The protocol between a gateway and a scheduler in different processes: one JSON object per line.

use crate::{Dispatch, Instruction, LiveLimit, PrefillAt};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use treadle_core::Event;
use treadle_core::programs::OpenStep;
use treadle_core::programs::Refusal;
use treadle_model::Tenant;
use treadle_model::{EngineKind, GatewayId, StepId, WorkerId};

/// Maximum length of a line in bytes; prompts are never sent.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;

/// A message from a gateway.
#[allow(
    clippy::large_enum_variant,
    reason = "moved once through a line; a box would cost every event an allocation"
)]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromGateway {
    /// The first message.
    Hello {
        /// Its id, from the store.
        gateway: GatewayId,
        /// A name for display.
        name: String,
    },
    /// An event.
    Event {
        /// Its number among the gateway's events.
        number: u64,
        /// The event.
        event: Event,
        /// A limit on the tenant's live programs, with a step's arrival.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        live: Option<Live>,
    },
    /// Everything that was not on record has been sent again; these steps are open.
    Open {
        /// The steps.
        steps: Vec<OpenStep>,
    },
}

/// A limit on a tenant's live programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    tenant: String,
    programs_max: u64,
}

/// A message from the scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToGateway {
    /// The reply to a hello: events up to this number were handled.
    Welcome {
        /// The number.
        handled: u64,
    },
    /// An instruction about a step.
    Step {
        /// The step.
        step: StepId,
        /// The instruction.
        word: WireInstruction,
    },
    /// Events up to this number are on record.
    Recorded {
        /// The number.
        number: u64,
    },
    /// Requests to end, as their client or an operator withdrew them.
    Withdraw(Withdrawn),
}

/// Which requests are withdrawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Withdrawn {
    /// Their tenant; all tenants if absent.
    pub tenant: Option<String>,
    /// Only the request with this id, and its parts; all if absent.
    pub id: Option<String>,
    /// The engine is not notified, so connections to engines must be closed.
    pub cut: bool,
}

/// The serialized form of an instruction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum WireInstruction {
    /// Send the request to a worker.
    Dispatch {
        /// The worker.
        worker: WorkerId,

        /// Its base URL.
        url: String,

        /// Its software.
        engine: EngineKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]

        /// The slot to pin the request to.
        slot: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]

        /// The step's priority.
        priority: Option<i32>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]

        /// Whether it may be preempted.
        interruptible: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]

        /// The engine that computes its prompt first.
        prefill: Option<WirePrefill>,
    },
    /// Answer with an error.
    Refuse {
        /// The reason.
        why: Refusal,
    },
    /// The tenant has reached its limit of live programs.
    RefuseLive {
        /// The limit.
        programs_max: u64,
    },
    /// Drop the engine's request.
    Abort {
        /// The cause.
        cause: String,
    },
    /// Drop the engine's request, also if the answer has begun.
    Cut,
    /// Drop the engine's request and keep its output so far.
    Preempt,
    /// The scheduler does not know the step any more.
    Forget,
}

/// The engine that computes a step's prompt first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WirePrefill {
    worker: WorkerId,
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bootstrap_port: Option<u16>,
    within_ms: u64,
}

impl From<PrefillAt> for WirePrefill {
    fn from(at: PrefillAt) -> Self {
        Self {
            worker: at.worker,
            url: at.url.to_string(),
            bootstrap_port: at.bootstrap_port,
            within_ms: u64::try_from(at.within.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<WirePrefill> for PrefillAt {
    fn from(at: WirePrefill) -> Self {
        Self {
            worker: at.worker,
            url: at.url.into(),
            bootstrap_port: at.bootstrap_port,
            within: Duration::from_millis(at.within_ms),
        }
    }
}

impl From<Instruction> for WireInstruction {
    fn from(instruction: Instruction) -> Self {
        match instruction {
            Instruction::Dispatch(dispatch) => Self::Dispatch {
                worker: dispatch.worker,
                url: dispatch.url.to_string(),
                engine: dispatch.engine,
                slot: dispatch.slot,
                priority: dispatch.priority,
                interruptible: dispatch.interruptible,
                prefill: dispatch.prefill.map(Into::into),
            },
            Instruction::Refuse(why) => Self::Refuse { why },
            Instruction::RefuseLive { programs_max } => Self::RefuseLive { programs_max },
            Instruction::Abort(cause) => Self::Abort {
                cause: cause.into(),
            },
            Instruction::Cut => Self::Cut,
            Instruction::Preempt => Self::Preempt,
            Instruction::Forget => Self::Forget,
        }
    }
}

impl From<WireInstruction> for Instruction {
    fn from(word: WireInstruction) -> Self {
        match word {
            WireInstruction::Dispatch {
                worker,
                url,
                engine,
                slot,
                priority,
                interruptible,
                prefill,
            } => Self::Dispatch(Dispatch {
                worker,
                url: url.into(),
                engine,
                slot,
                priority,
                interruptible,
                prefill: prefill.map(Into::into),
            }),
            WireInstruction::Refuse { why } => Self::Refuse(why),
            WireInstruction::RefuseLive { programs_max } => Self::RefuseLive { programs_max },
            WireInstruction::Abort { cause } => Self::Abort(cause.into()),
            WireInstruction::Cut => Self::Cut,
            WireInstruction::Preempt => Self::Preempt,
            WireInstruction::Forget => Self::Forget,
        }
    }
}

impl From<LiveLimit> for Live {
    fn from(limit: LiveLimit) -> Self {
        Self {
            tenant: limit.tenant.name().to_owned(),
            programs_max: limit.programs_max,
        }
    }
}

impl From<Live> for LiveLimit {
    fn from(live: Live) -> Self {
        Self {
            tenant: Tenant::new(&live.tenant),
            programs_max: live.programs_max,
        }
    }
}
