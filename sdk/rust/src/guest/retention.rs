//! Glue between the bindings of `retention-policy` and [`RetentionPolicy`].

use std::marker::PhantomData;

use super::Exported;
use super::plugin::Failure;
use crate::{RetentionColumns, RetentionPolicy};

super::bindings!("guest-retention", "treadle_plugin::guest::retention::raw");

use raw::exports::treadle::policy::retention_policy as world;

/// Exports `retention-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + RetentionPolicy> world::Guest for Guest<P> {
    fn retain(
        capacity_tokens: u64,
        free_tokens: i64,
        wanted_tokens: u64,
        tokens: Vec<u64>,
        phase_ms: Vec<u64>,
        idle_ms: Vec<u64>,
        soonest_ms: Vec<u64>,
        back_ms: Vec<u64>,
        moved_ms: Vec<u64>,
        prefill_ms: Vec<u64>,
        steps: Vec<u32>,
        extra: Vec<f32>,
    ) -> Result<Vec<u8>, Failure> {
        let columns = RetentionColumns {
            tokens: &tokens,
            phase_ms: &phase_ms,
            idle_ms: &idle_ms,
            soonest_ms: &soonest_ms,
            back_ms: &back_ms,
            moved_ms: &moved_ms,
            prefill_ms: &prefill_ms,
            steps: &steps,
            extra: &extra,
        };
        let fates =
            P::ask(|policy| policy.retain(capacity_tokens, free_tokens, wanted_tokens, &columns))?;
        Ok(fates.into_iter().map(crate::Fate::code).collect())
    }
}
