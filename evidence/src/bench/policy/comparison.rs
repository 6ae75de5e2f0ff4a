//! One policy twice, as a component and linked natively, with one question for
//! both.

use super::guests::GuestFolder;
use super::rows::Draw;
use crate::bench::BenchError;
use darts_shaping::DartsShaping;
use default_allocation::DefaultAllocation;
use default_placement::DefaultPlacement;
use default_prediction::DefaultPrediction;
use default_priority::DefaultPriority;
use default_reward::DefaultReward;
use std::hint::black_box;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_model::World;
use treadle_plugin::harness::{Actions, Finished, Groups};
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{
    AllocationPolicy, EvictionPolicy, PlacementPolicy, Policy, PredictionPolicy, PriorityPolicy,
    RewardPolicy, ShapingPolicy,
};
use treadle_policy_runtime::{
    CallContext, InstanceOptions, PolicyEngine, PolicyFault, PolicyInstance, PolicyModule,
};

/// With a deadline, as every call has one, but not one that other processes on
/// this machine could make a call miss.
const CONTEXT: CallContext = CallContext {
    now_ms: 1,
    seed: 1,
    deadline_ms: Some(10_000),
};
/// Rows that the prediction learns from first.
const LEARNT_ROWS: usize = 512;

/// A question that both answer, again and again.
pub(in crate::bench) struct Comparison {
    /// Has the natively linked policy answer.
    pub(in crate::bench) native: Box<dyn FnMut()>,
    /// Has the sandboxed one answer.
    pub(in crate::bench) sandboxed: Box<dyn FnMut() -> Result<(), PolicyFault>>,
}

/// The policy that is measured in each world.
pub(super) const fn policy_of(world: World) -> &'static str {
    match world {
        World::Prediction => "default-prediction",
        World::Priority => "default-priority",
        World::Placement => "default-placement",
        World::Allocation => "default-allocation",
        World::Eviction => "thunderagent-eviction",
        World::Reward => "default-reward",
        World::Shaping => "darts-shaping",
    }
}

/// Loads a built policy, through the checks that an upload goes through.
pub(in crate::bench) fn load(
    engine: &PolicyEngine,
    guests: &GuestFolder,
    policy: &str,
) -> Result<PolicyModule, BenchError> {
    let failed = |cause: &dyn std::fmt::Display| BenchError::Comparison {
        policy: policy.to_owned(),
        cause: cause.to_string(),
    };
    let candidate = engine.examine(&guests.read(policy)?);
    let candidate = candidate.map_err(|refusal| failed(&refusal))?;
    engine
        .compile(&candidate.component)
        .map_err(|error| failed(&error))
}

/// Builds the two sides of a comparison, unless their answers differ.
macro_rules! comparison {
    ($world:expr, $native:expr, $instance:expr, $as_mut:ident, $call:ident, $question:expr) => {{
        let (mut native, mut instance) = ($native, $instance);
        let (for_native, for_sandboxed) = ($question, $question);
        let found = match instance.$as_mut() {
            Some(policy) => policy.$call(&CONTEXT, &for_sandboxed.columns()),
            None => return Err(differs($world, "the component is of another world")),
        };
        let found = found.map_err(|fault| differs($world, &fault.to_string()))?;
        let expected = native.$call(&for_native.columns());
        if expected.as_ref() != Ok(&found) {
            return Err(differs(
                $world,
                "its answer is not that of the native build",
            ));
        }
        Ok(Comparison {
            native: Box::new(move || {
                let answer = native.$call(black_box(&for_native.columns()));
                // It has been seen to answer; an error would be as fast.
                let _ = black_box(answer);
            }),
            sandboxed: Box::new(move || {
                let Some(policy) = instance.$as_mut() else {
                    return Ok(());
                };
                let answer = policy.$call(&CONTEXT, black_box(&for_sandboxed.columns()))?;
                black_box(answer);
                Ok(())
            }),
        })
    }};
}

/// The comparison of a world, for a number of rows.
pub(super) fn comparison(
    module: &PolicyModule,
    world: World,
    rows: usize,
) -> Result<Comparison, BenchError> {
    let instance = start(module, world)?;
    match world {
        World::Prediction => prediction(instance, rows),
        World::Priority => {
            let queue = || Draw::new().queue(rows);
            let native: DefaultPriority = configured(world)?;
            comparison!(world, native, instance, as_priority_mut, score, queue())
        }
        World::Placement => {
            let native: DefaultPlacement = configured(world)?;
            let programs = || Placed::draw(rows);
            comparison!(
                world,
                native,
                instance,
                as_placement_mut,
                assign,
                programs()
            )
        }
        World::Allocation => {
            arrangement::<DefaultAllocation>(module, "{}", &Draw::new().actions(rows))
        }
        World::Eviction => {
            let native: ThunderAgentEviction = configured(world)?;
            let active = || Draw::new().active(rows);
            comparison!(
                world,
                native,
                instance,
                as_eviction_mut,
                pause_order,
                active()
            )
        }
        World::Reward => {
            let native: DefaultReward = configured(world)?;
            let answers = || Draw::new().answers(rows);
            comparison!(world, native, instance, as_reward_mut, score, answers())
        }
        World::Shaping => {
            let native: DartsShaping = configured(world)?;
            let groups = || Groups::draw(&mut SplitMix64::new(1), rows);
            comparison!(world, native, instance, as_shaping_mut, size, groups())
        }
    }
}

/// The comparison of a policy that shares out units, for one question.
pub(in crate::bench) fn arrangement<P: AllocationPolicy + 'static>(
    module: &PolicyModule,
    config: &str,
    actions: &Actions,
) -> Result<Comparison, BenchError> {
    let world = World::Allocation;
    let instance = module.instance(&InstanceOptions::configured(config));
    let instance = instance.map_err(|error| differs(world, &error.to_string()))?;
    let native = P::configure(config).map_err(|error| differs(world, &error.to_string()))?;
    comparison!(
        world,
        native,
        instance,
        as_allocation_mut,
        arrange,
        actions.clone()
    )
}

/// A comparison of the call that does nothing: both give a snapshot of what they have learnt, and
/// it is empty.
pub(super) fn idle(module: &PolicyModule) -> Result<Comparison, BenchError> {
    let world = World::Eviction;
    let native: ThunderAgentEviction = configured(world)?;
    let mut instance = start(module, world)?;
    Ok(Comparison {
        native: Box::new(move || {
            let _ = black_box(black_box(&native).snapshot());
        }),
        sandboxed: Box::new(move || {
            black_box(instance.snapshot(&CONTEXT)?);
            Ok(())
        }),
    })
}

fn prediction(mut instance: PolicyInstance, rows: usize) -> Result<Comparison, BenchError> {
    let world = World::Prediction;
    let mut native: DefaultPrediction = configured(world)?;
    let finished: Finished = Draw::new().finished(LEARNT_ROWS);
    let failed = |cause: &dyn std::fmt::Display| differs(world, &cause.to_string());
    let learnt = native.learn(&finished.columns());
    learnt.map_err(|error| failed(&error))?;
    if let Some(policy) = instance.as_prediction_mut() {
        let learnt = policy.learn(&CONTEXT, &finished.columns());
        learnt.map_err(|fault| failed(&fault))?;
    }
    let live = || Draw::new().live(rows);
    comparison!(world, native, instance, as_prediction_mut, predict, live())
}

/// Programs to be placed, and the workers.
struct Placed(
    treadle_plugin::harness::Assign,
    treadle_plugin::harness::Workers,
);

impl Placed {
    fn draw(rows: usize) -> Self {
        let mut draw = Draw::new();
        let workers = draw.workers(rows);
        Self(draw.assign(rows), workers)
    }

    fn columns(&self) -> treadle_plugin::AssignColumns<'_> {
        self.0.columns_with(&self.1)
    }
}

fn start(module: &PolicyModule, world: World) -> Result<PolicyInstance, BenchError> {
    let instance = module.instance(&InstanceOptions::default());
    instance.map_err(|error| differs(world, &error.to_string()))
}

fn configured<P: Policy>(world: World) -> Result<P, BenchError> {
    P::configure("{}").map_err(|error| differs(world, &error.to_string()))
}

fn differs(world: World, cause: &str) -> BenchError {
    BenchError::Comparison {
        policy: policy_of(world).to_owned(),
        cause: cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_policy_runtime::Limits;

    #[test]
    fn both_builds_of_every_policy_give_the_same_answers() {
        let engine = PolicyEngine::new(Limits::default()).unwrap();
        let guests = GuestFolder::of_checkout();
        for world in World::ALL {
            let module = load(&engine, &guests, policy_of(*world)).unwrap();
            let mut comparison = comparison(&module, *world, 100).unwrap();
            (comparison.native)();
            (comparison.sandboxed)().unwrap();
        }
    }
}
