//! The interface `retention-policy` of the world `eviction-retention`, which a policy
//! of the world `eviction` may export beside.

use treadle_plugin::RetentionColumns;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::is_interface;
use crate::instance::Answer;
use crate::sandbox::Sandbox;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod raw {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package treadle:runtime;
            world retained {
                export treadle:policy/retention-policy@1.1.0;
            }
        ",
        world: "treadle:runtime/retained",
        with: {
            "treadle:policy/types": crate::worlds::host::raw::treadle::policy::types,
        },
    });
}

/// The interface, without its version.
pub(crate) const INTERFACE: &str = "retention-policy";

/// Where the interface is in a component.
#[derive(Clone)]
pub(crate) struct RetentionCode(raw::RetainedIndices);

impl RetentionCode {
    /// Nothing for a policy of the smaller world.
    pub(crate) fn of(linked: &InstancePre<Sandbox>) -> wasmtime::Result<Option<Self>> {
        let ty = linked.component().component_type();
        let mut exports = ty.exports(linked.engine()).map(|(name, _)| name);
        if !exports.any(|name| is_interface(name, INTERFACE)) {
            return Ok(None);
        }
        raw::RetainedIndices::new(linked).map(|indices| Some(Self(indices)))
    }

    /// The interface of an instance of the component.
    pub(crate) fn load(
        &self,
        store: &mut Store<Sandbox>,
        instance: &Instance,
    ) -> wasmtime::Result<Retention> {
        self.0.load(store, instance).map(Retention)
    }
}

/// The interface of a running policy.
pub(crate) struct Retention(raw::Retained);

impl Retention {
    /// Codes of cache actions, one for each row.
    pub(crate) fn retain(
        &self,
        store: &mut Store<Sandbox>,
        capacity_tokens: u64,
        free_tokens: i64,
        wanted_tokens: u64,
        programs: &RetentionColumns<'_>,
    ) -> Answer<Vec<u8>> {
        self.0.treadle_policy_retention_policy().call_retain(
            store,
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            programs.tokens,
            programs.phase_ms,
            programs.idle_ms,
            programs.soonest_ms,
            programs.back_ms,
            programs.moved_ms,
            programs.prefill_ms,
            programs.steps,
            programs.extra,
        )
    }
}
