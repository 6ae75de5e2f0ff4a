//! Glue between the bindings of the world `eviction` and [`EvictionPolicy`].

use std::marker::PhantomData;

use super::plugin::{Failure, phases};
use super::{Exported, lent};
use crate::{ActiveColumns, EvictionPolicy, WaitingColumns};

super::bindings!("guest-eviction", "treadle_plugin::guest::eviction::raw");

use raw::exports::treadle::policy::eviction_policy as world;

/// Exports `eviction-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + EvictionPolicy> world::Guest for Guest<P> {
    fn weigh(given: world::ActingColumns) -> Result<Vec<f64>, Failure> {
        let columns = lent!(ActingColumns of given { tokens, phase_ms, extra });
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.weigh(&columns)
        })
    }

    fn pause_order(given: world::ActiveColumns) -> Result<Vec<f64>, Failure> {
        let columns = ActiveColumns {
            phase: &phases(given.phase),
            tokens: &given.tokens,
            phase_ms: &given.phase_ms,
            steps: &given.steps,
            extra: &given.extra,
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.pause_order(&columns)
        })
    }

    fn restore_order(given: world::WaitingColumns) -> Result<Vec<f64>, Failure> {
        let columns = WaitingColumns {
            phase: &phases(given.phase),
            tokens: &given.tokens,
            waited_ms: &given.waited_ms,
            steps: &given.steps,
            extra: &given.extra,
        };
        P::ask(columns.check(P::COLUMNS.len()), |policy| {
            policy.restore_order(&columns)
        })
    }

    fn retain(given: world::RetentionColumns) -> Result<Vec<world::CacheAction>, Failure> {
        let columns = lent!(RetentionColumns of given {
            tokens, phase_ms, idle_ms, soonest_ms, back_ms, moved_ms, prefill_ms, steps, extra
        } beside { capacity_tokens, free_tokens, wanted_tokens });
        let check = columns.check(P::COLUMNS.len());
        let actions = P::ask(check, |policy| policy.retain(&columns))?;
        Ok(actions.into_iter().map(Into::into).collect())
    }
}
