//! The world `eviction`: which programs keep their KV cache on a worker, and which come back first.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
use super::host::phases;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{
    ActingColumns, ActiveColumns, CacheAction, RetentionColumns, WaitingColumns,
};

world! {
    /// A running policy of the world `eviction`.
    EvictionInstance: "eviction", Eviction, EvictionPre
}

use raw::exports::treadle::policy::eviction_policy as given;

calls! { EvictionInstance, treadle_policy_eviction_policy:
    /// For each acting program the share of its tokens that counts against capacity, from 0 to 1.
    weigh(programs: ActingColumns) -> Vec<f64> {
        admit "weigh" [programs.len()] |extra| programs.check(extra);
        ask Hot call_weigh(record!(given::ActingColumns of programs { tokens, phase_ms, extra }));
        check |weights| answers::shares("weights", weights, programs.len());
    }

    /// A score for each active program; the highest is paused first.
    pause_order(programs: ActiveColumns) -> Vec<f64> {
        admit "pause-order" [programs.len()] |extra| programs.check(extra);
        ask Hot call_pause_order(record!(given::ActiveColumns of programs {
            tokens, phase_ms, steps, extra; phase: &phases(programs.phase)
        }));
        check |scores| answers::finite("scores", scores, programs.len());
    }

    /// A score for each waiting program; the highest is restored first.
    restore_order(programs: WaitingColumns) -> Vec<f64> {
        admit "restore-order" [programs.len()] |extra| programs.check(extra);
        ask Hot call_restore_order(record!(given::WaitingColumns of programs {
            tokens, waited_ms, steps, extra; phase: &phases(programs.phase)
        }));
        check |scores| answers::finite("scores", scores, programs.len());
    }

    /// A cache action for each acting program at a worker.
    retain(programs: RetentionColumns) -> Vec<CacheAction> {
        admit "retain" [programs.len()] |extra| programs.check(extra);
        ask Hot call_retain(record!(given::RetentionColumns of programs {
            capacity_tokens, free_tokens, wanted_tokens, tokens, phase_ms, idle_ms, soonest_ms,
            back_ms, moved_ms, prefill_ms, steps, extra,
        }));
        check |actions| answers::length("actions", actions.len(), programs.len());
        into actions => actions.into_iter().map(Into::into).collect();
    }
}
