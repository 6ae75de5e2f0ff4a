//! The world `eviction`: which programs keep their place in a worker's KV cache, and
//! which come back first.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::world;
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{ActingColumns, ActiveColumns, ServiceColumns, WaitingColumns};

world! {
    /// A running policy of the world `eviction`.
    EvictionInstance: "eviction", Eviction, EvictionPre
}

impl EvictionInstance {
    /// For each acting program the share of its tokens that counts against capacity,
    /// within 0 and 1.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn weigh(
        &mut self,
        context: &CallContext,
        programs: &ActingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit(&[programs.len()], programs.extra.len(), |extra| {
                programs.check(extra)
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_eviction_policy().call_weigh(
                    store,
                    programs.tokens,
                    programs.phase_ms,
                    programs.extra,
                )
            },
            |weights| answers::shares("weights", weights, programs.len()),
        )
    }

    /// For each active program its score; the highest is paused first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn pause_order(
        &mut self,
        context: &CallContext,
        programs: &ActiveColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit(&[programs.len()], programs.extra.len(), |extra| {
                programs.check(extra)
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_eviction_policy().call_pause_order(
                    store,
                    programs.tokens,
                    programs.acting,
                    programs.phase_ms,
                    programs.steps,
                    programs.extra,
                )
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// For each waiting program its score; the highest is restored first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn restore_order(
        &mut self,
        context: &CallContext,
        programs: &WaitingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit(&[programs.len()], programs.extra.len(), |extra| {
                programs.check(extra)
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_eviction_policy().call_restore_order(
                    store,
                    programs.tokens,
                    programs.reasoning,
                    programs.waited_ms,
                    programs.steps,
                    programs.extra,
                )
            },
            |scores| answers::finite("scores", scores, programs.len()),
        )
    }

    /// For each service its score; the highest is unloaded first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn drop_order(
        &mut self,
        context: &CallContext,
        services: &ServiceColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.0
            .admit(&[services.len()], services.extra.len(), |extra| {
                services.check(extra)
            })?;
        self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| {
                guest.treadle_policy_eviction_policy().call_drop_order(
                    store,
                    services.bytes,
                    services.idle_ms,
                    services.load_ms,
                    services.uses,
                    services.extra,
                )
            },
            |scores| answers::finite("scores", scores, services.len()),
        )
    }
}
