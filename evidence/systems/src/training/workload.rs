//! What is sampled: prompts of several domains, their trajectories, environments that are slow or
//! fail, and how lengths change with training. All of it is a stated model, and no result.

use super::stream::{Spread, Stream};
use serde::Serialize;

/// What a reward takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scoring {
    /// A rule, on a processor.
    Rule,
    /// A language model that judges.
    Judge,
}

/// A domain of prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Domain {
    /// Its name.
    pub(super) name: &'static str,
    /// Tokens of a prompt.
    pub(super) prompt_tokens: Spread,
    /// Fewest turns.
    pub(super) turns_min: u32,
    /// Most turns.
    pub(super) turns_max: u32,
    /// Tokens that a turn samples.
    pub(super) output_tokens: Spread,
    /// Tokens that an environment adds after a turn.
    pub(super) observation_tokens: Spread,
    /// Time of a reset, in seconds.
    pub(super) reset_s: Spread,
    /// Time of a step of the environment, in seconds.
    pub(super) step_s: StepTime,
    /// How its rewards are computed.
    pub(super) scoring: Scoring,
}

/// Time of a step of an environment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StepTime {
    /// Lognormal, in seconds.
    Lognormal(Spread),
    /// Normal, in seconds, and at least 0: as `RollArt` Figure 11b has it.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sigma: f64,
    },
}

/// Turns by `RollArt` Table 1; what the paper does not print is chosen.
pub(super) const MATH: Domain = Domain {
    name: "math",
    prompt_tokens: Spread::of(300.0, 0.4),
    turns_min: 1,
    turns_max: 4,
    output_tokens: Spread::of(2_200.0, 0.5),
    observation_tokens: Spread::of(150.0, 0.5),
    reset_s: Spread::of(0.2, 0.5),
    step_s: StepTime::Lognormal(Spread::of(1.0, 1.0)),
    scoring: Scoring::Judge,
};

/// GEM's games of one turn.
pub(super) const GAME: Domain = Domain {
    name: "game",
    turns_max: 1,
    output_tokens: Spread::of(4_000.0, 0.5),
    scoring: Scoring::Rule,
    ..MATH
};

/// Web shops.
pub(super) const WEB: Domain = Domain {
    name: "web",
    prompt_tokens: Spread::of(800.0, 0.3),
    turns_min: 5,
    turns_max: 30,
    output_tokens: Spread::of(120.0, 0.5),
    observation_tokens: Spread::of(500.0, 0.7),
    reset_s: Spread::of(2.0, 0.6),
    step_s: StepTime::Lognormal(Spread::of(0.5, 0.8)),
    scoring: Scoring::Rule,
};

/// Visual games: short answers to long observations.
pub(super) const FROZEN_LAKE: Domain = Domain {
    name: "frozen_lake",
    prompt_tokens: Spread::of(600.0, 0.2),
    turns_min: 20,
    turns_max: 100,
    output_tokens: Spread::of(40.0, 0.5),
    observation_tokens: Spread::of(280.0, 0.3),
    reset_s: Spread::of(0.5, 0.5),
    step_s: StepTime::Lognormal(Spread::of(0.1, 0.5)),
    scoring: Scoring::Rule,
};

/// Software engineering in containers, whose resets pull images.
pub(super) const SWE: Domain = Domain {
    name: "swe",
    prompt_tokens: Spread::of(2_000.0, 0.4),
    turns_min: 30,
    turns_max: 50,
    output_tokens: Spread::of(150.0, 0.6),
    observation_tokens: Spread::of(250.0, 0.8),
    reset_s: Spread::of(20.0, 1.0),
    step_s: StepTime::Lognormal(Spread::of(2.0, 1.0)),
    scoring: Scoring::Rule,
};

/// How lengths of trajectories spread and change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Lengths {
    /// Standard deviation of the logarithm between prompts.
    pub(super) prompt_sigma: f64,
    /// Standard deviation of the logarithm between members of a prompt.
    pub(super) member_sigma: f64,
    /// What each training step adds to the logarithm.
    pub(super) growth: f64,
    /// Share of the difference between trained and sampled members, in logarithms, that sampled
    /// lengths move by with each training step; 0 if nothing is learnt.
    pub(super) brevity: f64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            prompt_sigma: 0.4,
            member_sigma: 0.4,
            growth: 0.0,
            brevity: 0.0,
        }
    }
}

/// Environments that fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Failures {
    /// Share of resets that fail.
    pub(super) reset_share: f64,
    /// Time until such a reset is given up, in seconds.
    pub(super) timeout_s: f64,
}

/// The work of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Workload {
    /// Domains, with as many prompts each.
    pub(super) domains: Vec<Domain>,
    /// Prompts of an epoch; each epoch has the same.
    pub(super) prompts: u64,
    /// How lengths spread.
    pub(super) lengths: Lengths,
    /// Failing environments.
    pub(super) failures: Failures,
    /// Longest context, in tokens.
    pub(super) context_tokens: u32,
}

/// A turn of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) output: u32,
    pub(super) observation: u32,
    pub(super) step_us: u64,
}

/// A trajectory, as it will be if nobody ends it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trajectory {
    pub(super) prompt: u32,
    pub(super) turns: Vec<Turn>,
    pub(super) reset_us: u64,
    /// Its environment never comes up.
    pub(super) fails: bool,
    /// The longest context ends it.
    pub(super) truncated: bool,
    pub(super) reward: f64,
}

impl Trajectory {
    /// Tokens that it samples.
    pub(super) fn tokens(&self) -> u64 {
        self.turns.iter().map(|turn| u64::from(turn.output)).sum()
    }
}

const SECOND_US: f64 = 1e6;

fn micros(seconds: f64) -> u64 {
    (seconds.max(0.0) * SECOND_US) as u64
}

impl StepTime {
    fn draw(self, stream: &mut Stream) -> u64 {
        micros(match self {
            Self::Lognormal(spread) => stream.lognormal(spread),
            Self::Normal { mean, sigma } => mean + sigma * stream.normal(),
        })
    }
}

impl Workload {
    /// The domain of a prompt.
    pub(super) fn domain(&self, prompt: u64) -> &Domain {
        &self.domains[(prompt % self.domains.len() as u64) as usize]
    }

    /// What a member of the group with this number does. `shift` is added to the logarithm of its
    /// lengths.
    pub(super) fn draw(&self, seed: u64, group: u64, member: u64, shift: f64) -> Trajectory {
        let prompt = group % self.prompts.max(1);
        let domain = self.domain(prompt);
        let mut of_prompt = Stream::of(seed, &[1, prompt]);
        let difficulty = of_prompt.normal();
        let prompt_tokens = of_prompt.lognormal(domain.prompt_tokens).max(16.0) as u32;
        let turns_high = of_prompt.between(domain.turns_min, domain.turns_max);
        let mut stream = Stream::of(seed, &[2, group, member]);
        let lengths = &self.lengths;
        let own = lengths.member_sigma * stream.normal();
        let factor = (lengths.prompt_sigma * difficulty + own + shift).exp();
        let fails = stream.unit() <= self.failures.reset_share;
        let reset_s = stream.lognormal(domain.reset_s);
        let solved = 1.0 / (1.0 + difficulty.exp());
        let mut trajectory = Trajectory {
            prompt: prompt_tokens.min(self.context_tokens / 4),
            turns: Vec::new(),
            reset_us: micros(if fails {
                self.failures.timeout_s
            } else {
                reset_s
            }),
            fails,
            truncated: false,
            reward: f64::from(u8::from(stream.unit() <= solved)),
        };
        // Members of a prompt differ in their turns by a few.
        let turns = stream.between(domain.turns_min.max(turns_high / 2), turns_high);
        let mut context = trajectory.prompt;
        for _ in 0..turns {
            let output = (stream.lognormal(domain.output_tokens) * factor).max(1.0) as u32;
            let observation = stream.lognormal(domain.observation_tokens).max(1.0) as u32;
            let room = self.context_tokens.saturating_sub(context + 1).max(1);
            trajectory.truncated = output >= room;
            trajectory.turns.push(Turn {
                output: output.min(room),
                observation,
                step_us: domain.step_s.draw(&mut stream),
            });
            context += output.min(room) + observation;
            if context + 1 >= self.context_tokens {
                trajectory.truncated = true;
                break;
            }
        }
        trajectory
    }
}
