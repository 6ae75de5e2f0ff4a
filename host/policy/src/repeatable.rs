//! The engine for repeatable runs.

use treadle_policy_runtime::{Limits, PolicyEngine, RuntimeError};

/// Fuel for one decision, about one unit per instruction.
const FUEL_PER_CALL: u64 = 100_000_000;

/// An engine that limits calls by fuel instead of time, so that every run is the same.
pub fn repeatable_engine(limits: Limits) -> Result<PolicyEngine, RuntimeError> {
    PolicyEngine::deterministic(limits, FUEL_PER_CALL)
}
