//! The calls of the trial run: every function of every world.

use super::Trial;
use super::rows::Rows;
use crate::call::Urgency::{Background, Hot};
use crate::error::UploadRefusal;
use crate::module::PolicyInstance;
use crate::worlds::allocation::{
    ActionColumns, AllocationInstance, ParallelismColumns, PoolColumns, RunningColumns,
};
use crate::worlds::eviction::{
    ActingColumns, ActiveColumns, EvictionInstance, RetentionColumns, WaitingColumns,
};
use crate::worlds::placement::{
    AssignColumns, MigrateColumns, NO_CLASS, NO_GROUP, PlacementInstance, RouteColumns,
    WorkerColumns,
};
use crate::worlds::prediction::{FinishedColumns, LiveColumns, PredictionInstance};
use crate::worlds::priority::{PreemptColumns, PriorityInstance, QueueColumns};
use crate::worlds::reward::{AnswerColumns, RewardInstance};
use crate::worlds::shaping::{GroupColumns, MemberColumns, ShapingInstance};

/// Three workers: unknown, small, large.
const WORKERS: WorkerColumns<'_> = WorkerColumns {
    capacity_tokens: &[0, 100_000, 1_000_000],
    used_tokens: &[0, 90_000, 500_000],
    running: &[0, 7, 30],
    token_us: &[-1.0, 20_000.0, 7_500.0],
    step_us: &[-1.0, 0.0, 60.0],
    prefill_us: &[-1.0, 100.0, 65.5],
    hardware_class: &[NO_CLASS, 0, 1],
    lockstep_group: &[0, NO_GROUP, 0],
};
/// Three pools: nothing free, some devices, many units.
const POOLS: PoolColumns<'_> = PoolColumns {
    free_units: &[0, 13, 200],
    chunked: &[0, 1, 0],
    free_chunks: &[0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0],
};
const RUNNING: RunningColumns<'_> = RunningColumns {
    pool: &[0, 1, 2],
    units: &[4, 8, 56],
    left_us: &[0, 2_500_000, 90_000_000],
};

type Tried = Result<(), UploadRefusal>;

pub(super) fn all(trial: &mut Trial<'_>, policy: &mut PolicyInstance, rows: &Rows) -> Tried {
    match policy {
        PolicyInstance::Prediction(policy) => prediction(trial, policy, rows),
        PolicyInstance::Priority(policy) => priority(trial, policy, rows),
        PolicyInstance::Placement(policy) => placement(trial, policy, rows),
        PolicyInstance::Allocation(policy) => allocation(trial, policy, rows),
        PolicyInstance::Eviction(policy) => eviction(trial, policy, rows),
        PolicyInstance::Reward(policy) => reward(trial, policy, rows),
        PolicyInstance::Shaping(policy) => shaping(trial, policy, rows),
    }
}

fn prediction(trial: &mut Trial<'_>, policy: &mut PredictionInstance, rows: &Rows) -> Tried {
    let live = LiveColumns {
        group: &rows.groups,
        tokens: &rows.tokens,
        output_tokens: &rows.output_tokens,
        steps: &rows.steps,
        tool_ms: &rows.times_ms,
        extra: &rows.extra,
    };
    trial.time("predict", Background, |context| {
        policy.predict(context, &live)
    })?;
    let finished = FinishedColumns {
        group: &rows.groups,
        tokens: &rows.tokens,
        output_tokens: &rows.output_tokens,
        steps: &rows.steps,
        tool_ms: &rows.times_ms,
        remaining_tokens: &rows.output_tokens,
        remaining_tool_ms: &rows.times_ms,
        extra: &rows.extra,
    };
    trial.time("learn", Background, |context| {
        policy.learn(context, &finished)
    })?;
    // Its answers after learning must be valid too.
    trial.time("predict after learn", Background, |context| {
        policy.predict(context, &live)
    })
}

fn priority(trial: &mut Trial<'_>, policy: &mut PriorityInstance, rows: &Rows) -> Tried {
    let queue = QueueColumns {
        tokens: &rows.tokens,
        output_tokens: &rows.output_tokens,
        steps: &rows.steps,
        waited_ms: &rows.times_ms,
        remaining_tokens: &rows.predicted,
        remaining_tool_s: &rows.predicted,
        extra: &rows.extra,
    };
    trial.time("score", Hot, |context| policy.score(context, &queue))?;
    let preempt = PreemptColumns {
        running_score: &rows.rewards,
        running_ms: &rows.times_ms,
        waiting_score: &rows.predicted[..rows.predicted.len() / 2],
    };
    trial.time("preempt", Hot, |context| policy.preempt(context, &preempt))
}

fn placement(trial: &mut Trial<'_>, policy: &mut PlacementInstance, rows: &Rows) -> Tried {
    let assign = AssignColumns {
        group: &rows.groups,
        tokens: &rows.tokens,
        remaining_tokens: &rows.predicted,
        last_worker: &rows.thirds,
        growth: &rows.predicted,
        tool_us: &rows.predicted,
        preferred_class: &rows.thirds,
        workers: WORKERS,
        extra: &rows.extra,
    };
    trial.time("assign", Hot, |context| policy.assign(context, &assign))?;
    // As many workers as rows.
    let route = RouteColumns {
        tokens: 10_000,
        cached_tokens: &rows.output_tokens,
        workers: WorkerColumns {
            capacity_tokens: &rows.tokens,
            used_tokens: &rows.output_tokens,
            running: &rows.steps,
            token_us: &rows.predicted,
            step_us: &rows.predicted,
            prefill_us: &rows.predicted,
            hardware_class: &rows.thirds,
            lockstep_group: &rows.thirds,
        },
        extra: &rows.extra,
    };
    trial.time("route", Hot, |context| policy.route(context, &route))?;
    let migrate = MigrateColumns {
        at_worker: &rows.thirds,
        tokens: &rows.tokens,
        remaining_tokens: &rows.predicted,
        phase: &rows.phases,
        growth: &rows.predicted,
        tool_us: &rows.predicted,
        preferred_class: &rows.thirds,
        workers: WORKERS,
        extra: &rows.extra,
    };
    trial.time("migrate", Background, |context| {
        policy.migrate(context, &migrate)
    })
}

fn allocation(trial: &mut Trial<'_>, policy: &mut AllocationInstance, rows: &Rows) -> Tried {
    let arrange = ActionColumns {
        pool: &rows.thirds,
        candidate: &rows.candidates,
        waited_us: &rows.times_ms,
        option_start: &rows.option_start,
        option_units: &rows.option_units,
        option_us: &rows.option_us,
        option_load_us: &rows.option_load_us,
        pools: POOLS,
        running: RUNNING,
        extra: &rows.extra,
    };
    trial.time("arrange", Hot, |context| policy.arrange(context, &arrange))?;
    let parallelism = ParallelismColumns {
        gpus: 16,
        degree: &[1, 2, 4, 8],
        token_us: &[20_000.0, 12_000.0, 8_000.0, 6_000.0],
        step_us: &[150.0, 90.0, -1.0, 40.0],
        prefill_us: &[60.0, -1.0, 20.0, 12.0],
        capacity_tokens: &[100_000, 300_000, 700_000, 1_500_000],
        expected_tokens: &rows.tokens,
        prompt_tokens: 2_000,
        growth: 3.0,
        tool_us: -1.0,
    };
    trial.time("parallelism", Background, |context| {
        policy.parallelism(context, &parallelism)
    })
}

fn eviction(trial: &mut Trial<'_>, policy: &mut EvictionInstance, rows: &Rows) -> Tried {
    let acting = ActingColumns {
        tokens: &rows.tokens,
        phase_ms: &rows.times_ms,
        extra: &rows.extra,
    };
    trial.time("weigh", Hot, |context| policy.weigh(context, &acting))?;
    let active = ActiveColumns {
        tokens: &rows.tokens,
        phase: &rows.phases,
        phase_ms: &rows.times_ms,
        steps: &rows.steps,
        extra: &rows.extra,
    };
    trial.time("pause-order", Hot, |context| {
        policy.pause_order(context, &active)
    })?;
    let waiting = WaitingColumns {
        tokens: &rows.tokens,
        phase: &rows.phases,
        waited_ms: &rows.times_ms,
        steps: &rows.steps,
        extra: &rows.extra,
    };
    trial.time("restore-order", Hot, |context| {
        policy.restore_order(context, &waiting)
    })?;
    retention(trial, policy, rows)
}

/// With and without room, and with caches that cannot leave.
fn retention(trial: &mut Trial<'_>, policy: &mut EvictionInstance, rows: &Rows) -> Tried {
    let nowhere = vec![u64::MAX; rows.tokens.len()];
    for (free_tokens, wanted_tokens, other_places) in [
        (1_000_000, 0, &rows.output_tokens),
        (-50_000, 300_000, &nowhere),
    ] {
        let acting = RetentionColumns {
            capacity_tokens: 500_000,
            free_tokens,
            wanted_tokens,
            tokens: &rows.tokens,
            phase_ms: &rows.times_ms,
            idle_ms: &rows.output_tokens,
            soonest_ms: &rows.times_ms,
            back_ms: other_places,
            moved_ms: other_places,
            prefill_ms: &rows.tokens,
            steps: &rows.steps,
            extra: &rows.extra,
        };
        trial.time("retain", Hot, |context| policy.retain(context, &acting))?;
    }
    Ok(())
}

fn reward(trial: &mut Trial<'_>, policy: &mut RewardInstance, rows: &Rows) -> Tried {
    let answers = AnswerColumns {
        answer: &rows.answers,
        reference: &rows.references,
        output_tokens: &rows.output_tokens,
        steps: &rows.steps,
        extra: &rows.extra,
    };
    trial.time("score", Background, |context| {
        policy.score(context, &answers)
    })
}

/// As many groups as rows, and then one group with three in four of the rows to choose.
fn shaping(trial: &mut Trial<'_>, policy: &mut ShapingInstance, rows: &Rows) -> Tried {
    let (count, ones) = (rows.tokens.len(), vec![1; rows.tokens.len()]);
    let groups = GroupColumns {
        prompt: &rows.groups,
        domain: &rows.groups,
        size: &ones,
        size_max: &vec![2; count],
        sampled: &ones,
        postponed: &vec![0; count],
    };
    trial.time("size", Hot, |context| policy.size(context, &groups))?;
    let all = count as u32;
    let states: Vec<u8> = rows.thirds.iter().map(|third| *third as u8).collect();
    let running = MemberColumns {
        group: &vec![0; count],
        state: &states,
        tokens: &rows.output_tokens,
        turns: &rows.steps,
        elapsed_ms: &rows.times_ms,
        lag: &rows.thirds,
        batch_groups: 1,
        ready_groups: 1,
        groups: GroupColumns {
            prompt: &[7],
            domain: &[0],
            size: &[all - all / 4],
            size_max: &[all],
            sampled: &[all],
            postponed: &[0],
        },
    };
    trial.time("curtail", Hot, |context| policy.curtail(context, &running))?;
    let ended = MemberColumns {
        state: &vec![1; count],
        ..running
    };
    trial.time("select", Hot, |context| policy.select(context, &ended))
}
