//! Policies for runs in virtual time: sandboxed as in the daemon, but limited by fuel instead of
//! time, so that a run is repeatable on any machine.

use super::DemoError;
use std::path::PathBuf;
use treadle_model::{PolicyRef, World};
use treadle_policy::evaluator::{BoundPolicy, Change, EvaluatorLimits, PolicyEvaluator, Scope};
use treadle_policy::repeatable_engine;
use treadle_policy_runtime::{InstanceOptions, Limits};
use treadle_registry::eviction_by_default;

/// An evaluator with these policies, each bound for its world, and the default eviction policy
/// unless one of them is of that world.
pub(super) fn evaluator(files: &[PathBuf]) -> Result<PolicyEvaluator, DemoError> {
    let mut evaluator = PolicyEvaluator::new(EvaluatorLimits {
        is_repeatable: true,
        ..EvaluatorLimits::default()
    });
    let mut decides_eviction = false;
    for path in files {
        let refused = |cause: String| DemoError::Policy {
            path: path.clone(),
            cause,
        };
        let bytes = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        let world = bind(&mut evaluator, &bytes).map_err(refused)?;
        decides_eviction |= world == World::Eviction;
    }
    if !decides_eviction {
        bind(&mut evaluator, eviction_by_default(true)).map_err(DemoError::Ended)?;
    }
    Ok(evaluator)
}

/// Binds a policy for its world and returns the world.
fn bind(evaluator: &mut PolicyEvaluator, module: &[u8]) -> Result<World, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let engine = repeatable_engine(Limits::default());
    let engine = engine.map_err(|error| text(&error))?;
    let inspected = engine.inspect(module).map_err(|error| text(&error))?;
    let options = InstanceOptions::default();
    let instance = engine.load(&inspected.component, &options);
    let instance = instance.map_err(|error| text(&error))?;
    let world = instance.world();
    let said = inspected.description;
    let bound = BoundPolicy {
        id: 0,
        policy: PolicyRef(format!("{}@{}", said.name, said.version)),
        instance,
    };
    let change = Change::Activate(Some(bound));
    evaluator
        .change(world, &Scope::Everyone, change, 0)
        .map_err(|error| text(&error))?;
    Ok(world)
}
