//! The world `eviction`: which programs keep their KV cache on a worker, and which come back first.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::bound;
use super::retention::{Retention, RetentionCode};
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Bindings, Description, Instance};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{
    ActingColumns, ActiveColumns, Fate, RetentionColumns, ServiceColumns, WaitingColumns,
};

bound!("eviction", Eviction, EvictionPre);

/// A running policy of the world `eviction`, or of `eviction-retention`.
pub struct EvictionInstance(pub(crate) Instance<Guest>);

/// The exports of a component of the world, and those of the larger world where it
/// has them.
pub(crate) struct Guest {
    eviction: raw::Eviction,
    retention: Option<Retention>,
}

/// What a [`Guest`] is made from.
#[derive(Clone)]
pub(crate) struct Pre {
    linked: InstancePre<Sandbox>,
    eviction: raw::EvictionIndices,
    retention: Option<RetentionCode>,
}

impl Bindings for Guest {
    type Pre = Pre;

    fn prepare(linked: InstancePre<Sandbox>) -> wasmtime::Result<Pre> {
        Ok(Pre {
            eviction: raw::EvictionIndices::new(&linked)?,
            retention: RetentionCode::of(&linked)?,
            linked,
        })
    }

    fn instantiate(pre: &Pre, store: &mut Store<Sandbox>) -> wasmtime::Result<Self> {
        let instance = pre.linked.instantiate(&mut *store)?;
        let retention = pre.retention.as_ref();
        Ok(Self {
            eviction: pre.eviction.load(&mut *store, &instance)?,
            retention: retention.map(|r| r.load(store, &instance)).transpose()?,
        })
    }

    fn describe(&self, store: &mut Store<Sandbox>) -> wasmtime::Result<Description> {
        self.eviction.describe(store)
    }

    fn configure(&self, store: &mut Store<Sandbox>, json: &str) -> Answer<()> {
        self.eviction.configure(store, json)
    }

    fn snapshot(&self, store: &mut Store<Sandbox>) -> Answer<Vec<u8>> {
        self.eviction.snapshot(store)
    }

    fn restore(&self, store: &mut Store<Sandbox>, snapshot: &[u8]) -> Answer<()> {
        self.eviction.restore(store, snapshot)
    }
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
                guest.eviction.treadle_policy_eviction_policy().call_weigh(
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
                guest
                    .eviction
                    .treadle_policy_eviction_policy()
                    .call_pause_order(
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
                guest
                    .eviction
                    .treadle_policy_eviction_policy()
                    .call_restore_order(
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
                guest
                    .eviction
                    .treadle_policy_eviction_policy()
                    .call_drop_order(
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

    /// Whether the policy decides what to do with caches: it is of the larger world.
    pub fn retains(&self) -> bool {
        self.0.pre().retention.is_some()
    }

    /// For each program that acts at a worker what becomes of its cache.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    /// [`PolicyFault::NotSupported`] for a policy of the smaller world.
    pub fn retain(
        &mut self,
        context: &CallContext,
        capacity_tokens: u64,
        free_tokens: i64,
        wanted_tokens: u64,
        programs: &RetentionColumns<'_>,
    ) -> Result<Vec<Fate>, PolicyFault> {
        self.0
            .admit(&[programs.len()], programs.extra.len(), |extra| {
                programs.check(extra)
            })?;
        let codes = self.0.ask(
            context,
            Urgency::Hot,
            |guest, store| match &guest.retention {
                Some(guest) => {
                    guest.retain(store, capacity_tokens, free_tokens, wanted_tokens, programs)
                }
                None => Ok(Err(treadle_plugin::PolicyError::not_supported().into())),
            },
            |codes| answers::fates("fates", codes, programs.len()),
        )?;
        Ok(codes.into_iter().filter_map(Fate::of_code).collect())
    }
}
