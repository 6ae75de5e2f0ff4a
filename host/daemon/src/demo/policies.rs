//! Policies from files, for runs in virtual time: sandboxed as in the daemon, but
//! bounded by fuel instead of time, so that a run can be repeated on any machine.

use super::DemoError;
use crate::driver::{BoundPolicy, Change, DeskLimits, PolicyDesk, Scope};
use std::path::PathBuf;
use treadle_core::{Core, Question};
use treadle_model::PolicyRef;
use treadle_policy_runtime::{InstanceOptions, Limits, PolicyEngine};
use treadle_simulator::cluster::{Answered, Answers};

/// Fuel for one decision, about one unit per instruction.
const FUEL_PER_CALL: u64 = 100_000_000;

/// A desk at which the policies of these files sit, each for its world.
pub(super) fn desk(files: &[PathBuf]) -> Result<PolicyDesk, DemoError> {
    let refused = |path: &PathBuf, error: &dyn std::fmt::Display| DemoError::Policy {
        path: path.clone(),
        cause: error.to_string(),
    };
    let mut desk = PolicyDesk::new(DeskLimits {
        restarts_in_place: true,
        ..DeskLimits::default()
    });
    for path in files {
        let bytes = std::fs::read(path).map_err(|error| refused(path, &error))?;
        let engine = PolicyEngine::deterministic(Limits::default(), FUEL_PER_CALL);
        let engine = engine.map_err(|error| refused(path, &error))?;
        let inspected = engine
            .inspect(&bytes)
            .map_err(|error| refused(path, &error))?;
        let instance = engine.load(&inspected.component, &InstanceOptions::default());
        let instance = instance.map_err(|error| refused(path, &error))?;
        let world = instance.world();
        let bound = BoundPolicy {
            extra: Vec::new(),
            policy: PolicyRef(format!("{}@{}", inspected.name, inspected.version)),
            instance,
        };
        let change = Change::Activate(Some(bound));
        desk.change(world, &Scope::Everyone, change, 0)
            .map_err(|error| refused(path, &error))?;
    }
    Ok(desk)
}

impl Answers for PolicyDesk {
    fn answer(&mut self, core: &Core, question: &Question, now_ms: u64) -> Answered {
        let answer = PolicyDesk::answer(self, core, question, now_ms);
        Answered {
            policy: answer.policy,
            verdict: answer.verdict,
            voices: answer.voices,
        }
    }
}
