//! Glue between the bindings of the world `eviction` and [`EvictionPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{ActingColumns, ActiveColumns, EvictionPolicy, ServiceColumns, WaitingColumns};

super::bindings!("guest-eviction", "treadle_plugin::guest::eviction::raw");

use raw::exports::treadle::policy::eviction_policy as world;

/// Exports `eviction-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + EvictionPolicy> world::Guest for Guest<P> {
    fn weigh(tokens: Vec<u64>, phase_ms: Vec<u64>, extra: Vec<f32>) -> Result<Vec<f64>, Failure> {
        let columns = ActingColumns {
            tokens: &tokens,
            phase_ms: &phase_ms,
            extra: &extra,
        };
        P::ask(|policy| policy.weigh(&columns))
    }

    fn pause_order(
        tokens: Vec<u64>,
        acting: Vec<u8>,
        phase_ms: Vec<u64>,
        steps: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<f64>, Failure> {
        let columns = ActiveColumns {
            tokens: &tokens,
            acting: &acting,
            phase_ms: &phase_ms,
            steps: &steps,
            extra: &extra,
        };
        P::ask(|policy| policy.pause_order(&columns))
    }

    fn restore_order(
        tokens: Vec<u64>,
        reasoning: Vec<u8>,
        waited_ms: Vec<u64>,
        steps: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<f64>, Failure> {
        let columns = WaitingColumns {
            tokens: &tokens,
            reasoning: &reasoning,
            waited_ms: &waited_ms,
            steps: &steps,
            extra: &extra,
        };
        P::ask(|policy| policy.restore_order(&columns))
    }

    fn drop_order(
        bytes: Vec<u64>,
        idle_ms: Vec<u64>,
        load_ms: Vec<u64>,
        uses: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<f64>, Failure> {
        let columns = ServiceColumns {
            bytes: &bytes,
            idle_ms: &idle_ms,
            load_ms: &load_ms,
            uses: &uses,
            extra: &extra,
        };
        P::ask(|policy| policy.drop_order(&columns))
    }
}
