//! The world `eviction`: which programs keep their KV cache on a worker, and which come back first.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{record, world};
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

impl EvictionInstance {
    /// For each acting program the share of its tokens that counts against capacity, from 0 to 1.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn weigh(
        &mut self,
        context: &CallContext,
        programs: &ActingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit("weigh", &[programs.len()], |extra| programs.check(extra))?;
        let columns = record!(given::ActingColumns of programs { tokens, phase_ms, extra });
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_eviction_policy()
                    .call_weigh(store, columns)
            },
            |weights| answers::shares("weights", weights, programs.len()),
        )
    }

    /// A score for each active program; the highest is paused first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn pause_order(
        &mut self,
        context: &CallContext,
        programs: &ActiveColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0.admit("pause-order", &[programs.len()], |extra| {
            programs.check(extra)
        })?;
        let columns = given::ActiveColumns {
            tokens: programs.tokens,
            phase: &phases(programs.phase),
            phase_ms: programs.phase_ms,
            steps: programs.steps,
            extra: programs.extra,
        };
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_eviction_policy()
                    .call_pause_order(store, columns)
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// A score for each waiting program; the highest is restored first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn restore_order(
        &mut self,
        context: &CallContext,
        programs: &WaitingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0.admit("restore-order", &[programs.len()], |extra| {
            programs.check(extra)
        })?;
        let columns = given::WaitingColumns {
            tokens: programs.tokens,
            phase: &phases(programs.phase),
            waited_ms: programs.waited_ms,
            steps: programs.steps,
            extra: programs.extra,
        };
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_eviction_policy()
                    .call_restore_order(store, columns)
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// A cache action for each acting program at a worker.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance if needed.
    pub fn retain(
        &mut self,
        context: &CallContext,
        programs: &RetentionColumns<'_>,
    ) -> Result<Vec<CacheAction>, PolicyFault> {
        self.0
            .admit("retain", &[programs.len()], |extra| programs.check(extra))?;
        let columns = record!(given::RetentionColumns of programs {
            capacity_tokens, free_tokens, wanted_tokens, tokens, phase_ms, idle_ms, soonest_ms,
            back_ms, moved_ms, prefill_ms, steps, extra,
        });
        let actions = self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest
                    .treadle_policy_eviction_policy()
                    .call_retain(store, columns)
            },
            |actions| answers::length("actions", actions.len(), programs.len()),
        )?;
        Ok(actions.into_iter().map(Into::into).collect())
    }
}
