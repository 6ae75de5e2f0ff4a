//! The actions of a simulation, and their resources.

use treadle_core::ActionsConfig;
use treadle_core::actions::{ActionSpec, Demand, Outcome, Resource, Supply};
use treadle_dst_outcome::Stream;
use treadle_model::Span;
use treadle_model::tenant::MARK;

const SECOND_US: u64 = 1_000_000;
/// The quota that refuses requests.
pub(crate) const SEARCH: &str = "search";
/// Services that devices may hold.
pub(crate) const SERVICES: [&str; 3] = ["judge", "reward", "verifier"];

/// An action, with its fate.
#[derive(Clone, Debug)]
pub(crate) struct ActionPlan {
    pub(crate) at_us: u64,
    pub(crate) spec: ActionSpec,
    /// Its maximum wait for the start.
    pub(crate) patience: Option<Span>,
    pub(crate) begins_us: u64,
    pub(crate) runs_us: u64,
    pub(crate) outcome: Outcome,
    /// Number of its attempts that are refused.
    pub(crate) refusals: u32,
    /// Time after its first submission at which its client withdraws it.
    pub(crate) cancelled_us: Option<u64>,
    /// Whether it ignores the request to stop.
    pub(crate) hangs: bool,
    /// Whether it is submitted although its program has ended, as if that had just happened.
    pub(crate) late: bool,
}

/// The resources of actions, and the actions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionsPlan {
    pub(crate) resources: Vec<Resource>,
    pub(crate) actions: Vec<ActionPlan>,
    /// Number of groups of jobs that share the resources, if any.
    pub(crate) parts: Option<u64>,
}

/// Draws actions, which all begin before `end_us`.
pub(crate) fn draw(s: &mut Stream, end_us: u64, settings: &mut ActionsConfig) -> ActionsPlan {
    settings.joint_order = s.percent(40);
    settings.begin_max = Span::from_secs(s.between(20, 200));
    settings.stop_max = Span::from_secs(s.between(1, 30));
    settings.attempts_max = s.between(1, 3) as u32;
    settings.candidates_max = s.pick(&[2, 8, 64]) as usize;
    let units = |name: &str, total| Resource {
        name: name.into(),
        supply: Supply::Units { total },
    };
    let nodes = (0..s.between(1, 3)).map(|_| s.pick(&[4, 6, 8]) as u32);
    let nodes = Supply::Devices {
        nodes: nodes.collect(),
    };
    let period = Span::from_secs(s.between(5, 30));
    let search = Supply::Quota {
        concurrent_max: Some(s.between(2, 6)),
        requests_max: s.percent(70).then(|| s.between(2, 12)),
        period,
    };
    let resources = vec![
        units("cpu", s.between(4, 16)),
        units("memory", s.between(20, 60)),
        Resource {
            name: "gpu".into(),
            supply: nodes,
        },
        Resource {
            name: SEARCH.into(),
            supply: search,
        },
    ];
    let actions = (0..s.between_low(5, 80)).map(|number| action(s, number, end_us));
    ActionsPlan {
        actions: actions.collect(),
        resources,
        parts: None,
    }
}

fn action(s: &mut Stream, number: u64, end_us: u64) -> ActionPlan {
    let demand = |resource: &str, options: &[u64]| Demand {
        resource: resource.into(),
        options: options.to_vec(),
    };
    let memory = demand("memory", &[s.between_low(1, 15)]);
    let demands = match s.below(6) {
        0 => vec![demand("cpu", &[s.between(1, 4)])],
        1 => vec![demand("cpu", &[1, 2, 4]), memory],
        2 => vec![demand(SEARCH, &[s.between(1, 2)])],
        3 => vec![demand("cpu", &[1]), demand(SEARCH, &[1])],
        4 => vec![memory, demand("gpu", &[s.pick(&[1, 2, 4])])],
        _ => vec![demand("gpu", &[1, 2, 4]), memory],
    };
    let has_devices = demands.iter().any(|d| &*d.resource == "gpu");
    let service = (has_devices && s.percent(70)).then(|| s.pick(&SERVICES).into());
    let runs_us = s.between_low(10_000, 20 * SECOND_US);
    let codes = [0, 0, 0, 1].map(|code| Outcome::Exited { code });
    let ends = [Outcome::Unknown, Outcome::OutOfMemory];
    let outcome = if s.percent(85) {
        codes[s.below(4) as usize].clone()
    } else {
        ends[s.below(2) as usize].clone()
    };
    ActionPlan {
        at_us: s.below(end_us),
        spec: ActionSpec {
            program: None,
            job: format!("job-{}", s.below(3)).into(),
            kind: format!("kind-{}", demands.len()).into(),
            demands,
            durations: Vec::new(),
            service,
            run_max: Span(s.pick(&[runs_us / 2 + 1, 60 * SECOND_US, 60 * SECOND_US])),
            start_by: None,
            idempotent: s.percent(40),
            idempotency_key: Some(format!("client-{number}").into()),
            body: format!("body-{number}").into(),
        },
        patience: s
            .percent(10)
            .then(|| Span(s.between_low(1, 60) * SECOND_US)),
        begins_us: s.between_low(1_000, 3 * SECOND_US),
        runs_us,
        outcome,
        refusals: s.between_low(0, 3) as u32,
        cancelled_us: s.percent(10).then(|| s.between_low(1_000, 30 * SECOND_US)),
        hangs: s.percent(10),
        late: false,
    }
}

/// Assigns some of the actions to programs, which know when they begin; some have expected run
/// times, accurate or not.
pub(crate) fn give_programs(
    s: &mut Stream,
    actions: &mut [ActionPlan],
    agents: &[(Box<str>, u64)],
    end_us: u64,
    settings: &mut ActionsConfig,
) {
    settings.joint_retention = s.percent(60);
    settings.starvation = Span::from_secs(s.between_low(1, 90));
    let share = s.pick(&[0, 30, 70, 100]);
    for action in actions {
        if s.percent(40) {
            action.spec.durations = durations(s, action);
        }
        if s.percent(10) {
            action.runs_us = s.between(20, 150) * SECOND_US;
            action.spec.run_max = Span::from_secs(300);
        }
        if !s.percent(share) {
            continue;
        }
        let stranger = s.percent(8);
        let (key, starts_us) = agents[s.below(agents.len() as u64) as usize].clone();
        if s.percent(80) {
            let at_us = starts_us + s.between_low(1_000, 40 * SECOND_US);
            action.at_us = at_us.min(end_us);
        }
        action.late = s.percent(20);
        action.spec.program = Some(if stranger { "nobody".into() } else { key });
    }
}

/// Assigns the jobs of actions to groups that share the resources.
pub(crate) fn share(s: &mut Stream, plan: &mut ActionsPlan) {
    if !s.percent(35) {
        return;
    }
    let parts = s.between(2, 5);
    for action in &mut plan.actions {
        let group = s.between_low(0, parts - 1);
        action.spec.job = format!("{MARK}g{group}{MARK}{}", action.spec.job).into();
    }
    plan.parts = Some(parts);
}

fn durations(s: &mut Stream, action: &ActionPlan) -> Vec<Span> {
    let key = &action.spec.demands[action.spec.key_demand()];
    let runs = |units: &u64| Span(action.runs_us / units * s.between(20, 300) / 100);
    key.options.iter().map(runs).collect()
}
