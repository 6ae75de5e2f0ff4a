//! Glue between the bindings of the world `eviction` and [`EvictionPolicy`].

use std::thread::LocalKey;

use super::Slot;
use crate::{ActingColumns, ActiveColumns, EvictionPolicy, PolicyError, WaitingColumns};

/// The generated bindings.
pub mod raw {
    #![allow(
        unsafe_code,
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic
    )]
    wit_bindgen::generate!({
        path: "../../wit",
        world: "eviction",
        pub_export_macro: true,
        export_macro_name: "export_eviction",
        default_bindings_module: "treadle_plugin::guest::eviction::raw",
    });
}

pub use raw::exports::treadle::policy::{eviction_policy as world, plugin};
pub use raw::treadle::policy::types::{Description, PolicyError as Failure};

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

/// What the policy's package says about itself.
pub fn describe(name: &str, version: &str, summary: &str) -> Description {
    Description {
        name: name.to_owned(),
        version: version.to_owned(),
        summary: summary.to_owned(),
    }
}

/// `plugin.configure`.
pub fn configure<P: EvictionPolicy>(
    slot: &'static LocalKey<Slot<P>>,
    json: &str,
) -> Result<(), Failure> {
    let policy = P::configure(json)?;
    slot.with(|slot| slot.set(policy));
    Ok(())
}

/// `eviction.weigh`.
pub fn weigh<P: EvictionPolicy>(
    slot: &'static LocalKey<Slot<P>>,
    tokens: &[u64],
    phase_ms: &[u64],
    extra: &[f32],
) -> Result<Vec<f64>, Failure> {
    let programs = ActingColumns {
        tokens,
        phase_ms,
        extra,
    };
    Ok(slot.with(|slot| slot.ask(|policy| policy.weigh(&programs)))?)
}

/// `eviction.pause-order`.
pub fn pause_order<P: EvictionPolicy>(
    slot: &'static LocalKey<Slot<P>>,
    tokens: &[u64],
    acting: &[u8],
    phase_ms: &[u64],
    steps: &[u32],
    extra: &[f32],
) -> Result<Vec<f64>, Failure> {
    let programs = ActiveColumns {
        tokens,
        acting,
        phase_ms,
        steps,
        extra,
    };
    Ok(slot.with(|slot| slot.ask(|policy| policy.pause_order(&programs)))?)
}

/// `eviction.restore-order`.
pub fn restore_order<P: EvictionPolicy>(
    slot: &'static LocalKey<Slot<P>>,
    tokens: &[u64],
    reasoning: &[u8],
    waited_ms: &[u64],
    steps: &[u32],
    extra: &[f32],
) -> Result<Vec<f64>, Failure> {
    let programs = WaitingColumns {
        tokens,
        reasoning,
        waited_ms,
        steps,
        extra,
    };
    Ok(slot.with(|slot| slot.ask(|policy| policy.restore_order(&programs)))?)
}
