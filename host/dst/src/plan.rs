//! The plan of a simulation: everything that its seed decides in advance.

use super::action_plans::{self, ActionsPlan};
use super::schedule::{self, Fault, FaultKind};
use super::settings::{self, TransferProfile};
use super::{LIVENESS_US_MAX, Options};
use treadle_core::memory::{Capacity, PrefixSegment};
use treadle_core::programs::Parent;
use treadle_core::{ActionsConfig, CoreConfig, KvConfig, Mode, RolloutConfig};
use treadle_dst_outcome::Stream;
use treadle_model::{EngineKind, Span};

const SECOND_US: u64 = 1_000_000;

/// One engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnginePlan {
    pub(crate) kind: EngineKind,
    /// Its true capacity.
    pub(crate) capacity: Capacity,
    /// Whether it is registered with its capacity, instead of reporting it later.
    pub(crate) reported_at_once: bool,
    pub(crate) prefill_tokens_per_s: u64,
    pub(crate) token_us: u64,
}

/// One turn of an agent: a step, or two concurrent ones, then a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Tokens that the prompt grows by.
    pub(crate) grows: u64,
    pub(crate) output: u64,
    pub(crate) output_max: Option<u64>,
    /// Whether the prompt's tokens are counted, not estimated.
    pub(crate) exact: bool,
    pub(crate) branches: usize,
    pub(crate) tool_us: u64,
    /// Time after which the client disconnects, once.
    pub(crate) leaves_us: Option<u64>,
    /// Whether the program is released here, and comes back under its name.
    pub(crate) released_after: bool,
}

/// One agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlan {
    pub(crate) key: Box<str>,
    pub(crate) job: Box<str>,
    pub(crate) starts_us: u64,
    pub(crate) prefix: Vec<PrefixSegment>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) inferred: bool,
    pub(crate) one_shot: bool,
    /// The program that started it, if it names one.
    pub(crate) parent: Option<Parent>,
    /// Whether it releases its program; others are forgotten once they have been idle for long.
    pub(crate) released: bool,
}

/// The timing of parts without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Maximum time of a policy's answer; `None` if policies answer at once, as in the daemon.
    pub(crate) policy_us_max: Option<u64>,
    pub(crate) commit_us_max: u64,
    pub(crate) snapshot_events: u64,
    pub(crate) probe_us: u64,
    pub(crate) publish_us: u64,
    /// Time without a token after which a gateway gives up a request.
    pub(crate) stall_us: u64,
    pub(crate) message_us_max: u64,
    pub(crate) transfers: TransferProfile,
}

/// The plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: CoreConfig,
    /// The scope of a priority policy.
    pub(crate) ranked: Option<&'static str>,
    pub(crate) engines: Vec<EnginePlan>,
    /// For each gateway, whether it is in its own process.
    pub(crate) gateways: Vec<bool>,
    pub(crate) agents: Vec<AgentPlan>,
    pub(crate) actions: ActionsPlan,
    pub(crate) faults: Vec<Fault>,
    /// No fault begins or lasts after this.
    pub(crate) faults_end_us: u64,
    pub(crate) behaviour: Behaviour,
}

impl Plan {
    /// Draws the plan of a seed. What the options exclude is drawn nevertheless, so that the rest
    /// does not change.
    pub(crate) fn draw(seed: u64, options: &Options) -> Self {
        let faults_end_us = Stream::new(seed, "length").between_low(20, 150) * SECOND_US;
        let engines = engines(&mut Stream::new(seed, "engines"));
        let mut agents = agents(&mut Stream::new(seed, "agents"), &engines, faults_end_us);
        let starts = |agent: &AgentPlan| (agent.key.clone(), agent.starts_us);
        let starts: Vec<_> = agents.iter().map(starts).collect();
        agents.truncate(options.programs_max.unwrap_or(usize::MAX));
        let (mut config, ranked) = settings_of(seed);
        let mut submitted = Stream::new(seed, settings::ACTIONS);
        let mut actions = ActionsPlan::default();
        if submitted.percent(15) || options.actions {
            let settings = &mut config.actions;
            actions = action_plans::draw(&mut submitted, faults_end_us, settings);
            let stream = &mut Stream::new(seed, "actions of programs");
            let list = &mut actions.actions;
            action_plans::give_programs(stream, list, &starts, faults_end_us, settings);
            action_plans::share(&mut Stream::new(seed, "shares of actions"), &mut actions);
        }
        let ordinary = FaultKind::ordinary();
        let mut faults = schedule::draw(&mut Stream::new(seed, "faults"), &ordinary, faults_end_us);
        if config.kv != KvConfig::default() {
            let (mut stream, kinds) = (Stream::new(seed, "losses"), FaultKind::OF_TRANSFERS);
            faults.extend(schedule::draw(&mut stream, kinds, faults_end_us));
            let mut means = Stream::new(seed, settings::MEANS);
            if means.percent(25) {
                let kinds = FaultKind::OF_MEANS;
                faults.extend(schedule::draw(&mut means, kinds, faults_end_us));
            }
        }
        let mut operators = Stream::new(seed, settings::OPERATORS);
        if operators.percent(20) {
            let kinds = FaultKind::OF_OPERATORS;
            faults.extend(schedule::draw(&mut operators, kinds, faults_end_us));
        }
        faults.sort_by_key(|fault| fault.at_us);
        faults.retain(|fault| !options.without.contains(&fault.kind));
        faults.truncate(options.faults_max.unwrap_or(usize::MAX));
        let mut habits = Stream::new(seed, "habits");
        let mut disk = Stream::new(seed, "disk");
        let slow_disk_us = disk.between(200_000, 3 * SECOND_US);
        let slow_disk_us = disk.percent(30).then_some(slow_disk_us);
        let mut gateways = Stream::new(seed, "gateways");
        let remote = gateways.pick(&[0, 0, 50, 100]);
        Self {
            config,
            ranked,
            engines,
            gateways: (0..gateways.between(1, 3))
                .map(|_| gateways.percent(remote))
                .collect(),
            agents,
            actions,
            faults,
            faults_end_us,
            behaviour: Behaviour {
                policy_us_max: habits.percent(40).then(|| habits.between(1_000, 400_000)),
                commit_us_max: habits
                    .between_low(1_000, 200_000)
                    .max(slow_disk_us.unwrap_or(0)),
                snapshot_events: habits.between(30, 1_500),
                probe_us: habits.between(500_000, 5 * SECOND_US),
                publish_us: habits.between(50_000, 3 * SECOND_US),
                stall_us: habits.between(10, 60) * SECOND_US,
                message_us_max: habits.between_low(100, 50_000),
                transfers: settings::transfers(&mut Stream::new(seed, "carrier")),
            },
        }
    }
}

impl Plan {
    /// When everything must be over. Where a policy ranks programs, nobody makes room for the less
    /// urgent: each that ends without a release keeps its share, and with it perhaps blocks all
    /// others, until it is taken to be over: twice as late if it waited for others that were.
    pub(crate) fn ends_by_us(&self) -> u64 {
        let silent = self.agents.iter().filter(|agent| !agent.released).count() as u64;
        let held_us = if self.ranked.is_some() {
            2 * silent * self.config.program_idle_max.0
        } else {
            0
        };
        self.faults_end_us + LIVENESS_US_MAX + held_us
    }
}

/// The settings, and the scope of a priority policy that is bound.
fn settings_of(seed: u64) -> (CoreConfig, Option<&'static str>) {
    let mut config = config(&mut Stream::new(seed, "config"));
    let mut ranked = None;
    if let Some(rollout) = settings::rollout(&mut Stream::new(seed, settings::ROLLOUT)) {
        (config.rollout, ranked) = rollout;
    }
    if config.mode == Mode::ProgramAware
        && let Some(kv) = settings::caches(&mut Stream::new(seed, settings::CACHES))
    {
        config.kv = kv;
    } else if config.mode == Mode::ProgramAware
        && let Some(kv) = settings::defaults(&mut Stream::new(seed, settings::DEFAULTS))
    {
        config.kv = kv;
    }
    settings::bounds(&mut Stream::new(seed, settings::BOUNDS), &mut config);
    (config, ranked)
}

fn config(s: &mut Stream) -> CoreConfig {
    let high = s.pick(&[1_000_000, 1_000_000, 950_000, 800_000]);
    let low = s.pick(&[1_000_000, 900_000, 900_000, 700_000]);
    let mut mode = Mode::ProgramAware;
    if s.percent(14) {
        mode = s.pick(&[Mode::Sticky, Mode::LeastLoad]);
    }
    let deferral_s = s.between_low(2, 120);
    CoreConfig {
        mode,
        rollout: RolloutConfig::default(),
        kv: KvConfig::default(),
        actions: ActionsConfig::default(),
        tick: Span::from_millis(s.between(500, 3_000)),
        high_watermark_ppm: high,
        low_watermark_ppm: low.min(high),
        queue_wait_max: Span::from_secs(deferral_s + s.between(10, 600)),
        deferral_max: Span::from_secs(deferral_s),
        // In half of the simulations the bound follows what there is to wait for.
        deferral_min: if deferral_s.is_multiple_of(2) {
            Span::from_secs(deferral_s)
        } else {
            Span::from_millis(500)
        },
        pause_weight_ppm: s.pick(&[0, 100_000, 100_000, 500_000]) as u32,
        quantum_ppm: s.between_low(1, 60) as u32 * 16_000,
        program_idle_max: Span::from_secs(s.between(40, 400)),
        inferred_idle_max: Span::from_secs(s.between(10, 120)),
        programs_max: s.pick(&[8, 20, 1_000, 1_000, 1_000, 1_000, 1_000]),
        queue_steps_max: s.pick(&[4, 12, 1_000, 1_000, 1_000, 1_000, 1_000]),
        candidates_max: s.pick(&[1, 2, 4, 16, 64]),
        ask_deadline: Span::from_millis(s.between_low(100, 5_000)),
        attempts_max: s.between(1, 4) as u32,
        output_tokens_guess: s.pick(&[0, 64, 256]),
        explain: true,
    }
}

fn engines(s: &mut Stream) -> Vec<EnginePlan> {
    let size = s.between(1_500, 8_000);
    (0..s.between_low(1, 6))
        .map(|_| {
            let tokens = size * s.between(50, 200) / 100;
            EnginePlan {
                kind: s.pick(EngineKind::ALL),
                capacity: draw_capacity(s, tokens),
                reported_at_once: s.percent(60),
                prefill_tokens_per_s: s.between(1_000, 50_000),
                token_us: s.between(2_000, 40_000),
            }
        })
        .collect()
}

/// Draws the capacity of an engine with about this many tokens.
pub(crate) fn draw_capacity(s: &mut Stream, tokens: u64) -> Capacity {
    Capacity {
        tokens: (!s.percent(8)).then_some(tokens),
        context_tokens_max: s.percent(35).then(|| tokens * s.between(30, 100) / 100),
        slots: s.percent(25).then(|| s.between(1, 8) as u32),
        gpus: None,
        // Derived from its size: another draw would change the plans of all seeds.
        offloads: tokens.is_multiple_of(4),
    }
}

fn agents(s: &mut Stream, engines: &[EnginePlan], end_us: u64) -> Vec<AgentPlan> {
    let known = engines.iter().filter_map(|engine| engine.capacity.tokens);
    let largest = known.max().unwrap_or(4_000);
    let jobs = s.between(1, 4);
    let programs = s.between_low(5, 60) as usize;
    let mut agents: Vec<AgentPlan> = (0..programs)
        .map(|index| agent(s, index, jobs, largest, end_us))
        .collect();
    // Families of four: a tree of three generations. Nothing is drawn for them, so that seeds that
    // are known stay what they were.
    for index in (0..programs).filter(|index| index % 4 != 0) {
        let program = agents[index / 4 * 4 + index % 4 / 2].key.clone();
        let waits = index % 8 < 6;
        agents[index].parent = Some(Parent { program, waits });
    }
    agents
}

fn agent(s: &mut Stream, index: usize, jobs: u64, largest: u64, end_us: u64) -> AgentPlan {
    let job = s.below(jobs);
    let one_shot = s.percent(8);
    let inferred = one_shot || s.percent(15);
    let turns = if one_shot { 1 } else { s.between_low(1, 10) };
    // Most programs take a third of an engine at most; a few outgrow it.
    let room = if s.percent(5) { largest } else { largest / 3 };
    let step = (room / (turns + 1)).max(20);
    let mut prefix = Vec::new();
    if s.percent(60) {
        let tokens = 20 + job * 40;
        prefix.push(PrefixSegment {
            hash: 1_000 + job,
            tokens,
        });
        if s.percent(50) {
            let group = s.below(3);
            prefix.push(PrefixSegment {
                hash: 2_000 + job * 10 + group,
                tokens: 30 + group * 20,
            });
        }
    }
    let shared: u64 = prefix.iter().map(|segment| segment.tokens).sum();
    let turns = (0..turns)
        .map(|turn| draw_turn(s, step, if turn == 0 { shared } else { 0 }, one_shot))
        .collect();
    AgentPlan {
        key: format!("{}-{index}", if inferred { "auto" } else { "agent" }).into(),
        job: format!("job-{job}").into(),
        starts_us: s.below(end_us * 2 / 3),
        prefix,
        turns,
        inferred,
        one_shot,
        parent: None,
        released: !inferred && s.percent(70),
    }
}

fn draw_turn(s: &mut Stream, step: u64, shared: u64, one_shot: bool) -> Turn {
    let output = s.between_low(1, 400);
    let mut tool_us = s.between_low(10_000, 8 * SECOND_US);
    if s.percent(8) {
        tool_us = s.between(10, 90) * SECOND_US;
    }
    Turn {
        grows: shared + s.between_low(10, 2 * step),
        output,
        output_max: s.percent(50).then(|| output + s.below(200)),
        exact: s.percent(70),
        branches: if !one_shot && s.percent(12) { 2 } else { 1 },
        tool_us,
        leaves_us: s.percent(7).then(|| s.between_low(1_000, 20 * SECOND_US)),
        released_after: !one_shot && s.percent(4),
    }
}
