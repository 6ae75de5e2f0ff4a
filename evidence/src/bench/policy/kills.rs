//! How long a policy in an endless loop lasts.

use super::endless::endless;
use crate::bench::BenchError;
use std::time::Instant;
use treadle_plugin::harness::Queue;
use treadle_policy_runtime::{CallContext, InstanceOptions, PolicyEngine, PolicyFault};
use treadle_report::latencies::Latencies;

/// The time that each call is given.
pub(super) const DEADLINE_MS: u64 = 2;

/// Calls a policy that never answers, a number of times. What counts is the time from
/// the call to its fault; but for the first, each call starts an instance first, as
/// calls after a fault do.
pub(super) fn kills(engine: &PolicyEngine, count: usize) -> Result<Latencies, BenchError> {
    let failed = |cause: &dyn std::fmt::Display| BenchError::Comparison {
        policy: "endless".to_owned(),
        cause: cause.to_string(),
    };
    let candidate = engine.examine(&endless()?);
    let candidate = candidate.map_err(|refusal| failed(&refusal))?;
    let options = InstanceOptions::default();
    let instance = engine.load(&candidate.component, &options);
    let mut instance = instance.map_err(|error| failed(&error))?;
    let queue = Queue::default();
    let context = CallContext {
        deadline_ms: Some(DEADLINE_MS),
        ..CallContext::default()
    };
    let mut times = Latencies::default();
    for _ in 0..count {
        let Some(policy) = instance.as_priority_mut() else {
            return Err(failed(&"it is of another world"));
        };
        let called = Instant::now();
        let answer = policy.score(&context, &queue.columns());
        let took = called.elapsed();
        match answer {
            Err(PolicyFault::Timeout { .. }) => times.push(took),
            Err(fault) => return Err(failed(&fault)),
            Ok(_) => return Err(failed(&"it answered")),
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_policy_runtime::Limits;

    #[test]
    fn each_call_ends() {
        let engine = PolicyEngine::new(Limits::default()).unwrap();
        let mut times = kills(&engine, 3).unwrap();
        assert_eq!(times.count(), 3);
        assert!(times.percentile(0.0).as_millis() >= u128::from(DEADLINE_MS) - 1);
    }
}
