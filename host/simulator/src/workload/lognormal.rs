//! A seeded generator of agent runs with long-tailed sizes and times.

use rand::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use rand_pcg::Pcg64Mcg;

use super::{AgentRun, AgentStep, ToolResult};

/// A lognormal distribution: half of the values lie under `median`; `sigma` is the standard
/// deviation of their logarithm (0.5 mild, 1.0 long-tailed, 1.5 extreme).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LognormalParameter {
    /// The median, in the unit of the field.
    pub median: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

/// Why a generator can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// A distribution is invalid.
    #[error("{field}: the median must be finite and above 0 and sigma finite and at least 0")]
    Parameter {
        /// The field.
        field: &'static str,
    },
    /// A count is invalid.
    #[error("{field} must be at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// The context limit leaves no room for a step.
    #[error(
        "context_limit_tokens is {limit_tokens}, but system and group prompts alone are \
         {prompt_tokens}: raise the limit or shorten them"
    )]
    LimitTooLow {
        /// The limit.
        limit_tokens: u32,
        /// Tokens of the shared prompts, with room for one step.
        prompt_tokens: u32,
    },
}

/// Parameters of the generator. The default resembles coding agents: contexts that end near 25K
/// tokens, a dozen steps, tools of two seconds with a tail of minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct LognormalAgents {
    /// Number of runs to generate.
    pub programs: usize,
    /// Number of rollouts per prompt.
    pub group_size: usize,
    /// Tokens of the prompt that all runs share.
    pub system_tokens: u32,
    /// Tokens of the prompt that a group shares.
    pub group_tokens: LognormalParameter,
    /// Number of steps per run, at least one.
    pub steps: LognormalParameter,
    /// Standard deviation of groups' numbers of steps, in logarithms: some prompts are harder for
    /// all rollouts.
    pub group_steps_sigma: f64,
    /// Maximum number of steps of a run.
    pub steps_max: usize,
    /// Tokens that a tool adds to the context.
    pub observation_tokens: LognormalParameter,
    /// Tokens that a step generates.
    pub output_tokens: LognormalParameter,
    /// Time of a tool, in milliseconds.
    pub tool_ms: LognormalParameter,
    /// Maximum time of a tool, in milliseconds.
    pub tool_ms_max: u64,
    /// Runs end before the step that would exceed this context.
    pub context_limit_tokens: u32,
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for LognormalAgents {
    fn default() -> Self {
        Self {
            programs: 96,
            group_size: 8,
            system_tokens: 2_000,
            group_tokens: LognormalParameter {
                median: 1_200.0,
                sigma: 0.4,
            },
            steps: LognormalParameter {
                median: 12.0,
                sigma: 0.5,
            },
            group_steps_sigma: 0.3,
            steps_max: 128,
            observation_tokens: LognormalParameter {
                median: 900.0,
                sigma: 0.9,
            },
            output_tokens: LognormalParameter {
                median: 220.0,
                sigma: 0.8,
            },
            tool_ms: LognormalParameter {
                median: 2_000.0,
                sigma: 1.2,
            },
            tool_ms_max: 300_000,
            context_limit_tokens: 131_072,
            seed: 1,
        }
    }
}

/// Minimum tokens of a step's messages besides their content, so that a chat rendering of the run
/// has room for role tags.
const STEP_TOKENS_MIN: u32 = 16;

/// The validated distributions of a generator.
struct Shapes {
    group_tokens: LogNormal<f64>,
    group_steps: LogNormal<f64>,
    steps: LogNormal<f64>,
    observation_tokens: LogNormal<f64>,
    output_tokens: LogNormal<f64>,
    tool_ms: LogNormal<f64>,
}

impl LognormalAgents {
    /// The runs, the same for the same parameters. Each run has its own random stream, so more
    /// programs leave the earlier ones unchanged.
    pub fn generate(&self) -> Result<Vec<AgentRun>, WorkloadError> {
        self.check()?;
        let shapes = self.shapes()?;
        let mut runs = Vec::with_capacity(self.programs);
        for index in 0..self.programs {
            let group = index / self.group_size;
            let mut group_stream = stream(self.seed, 1, group);
            let drawn = whole(shapes.group_tokens.sample(&mut group_stream));
            let room = self.context_limit_tokens - self.system_tokens - 3 * STEP_TOKENS_MIN;
            let group_tokens = drawn.min(room);
            let factor = shapes.group_steps.sample(&mut group_stream);
            runs.push(AgentRun {
                id: format!("g{group:04}-r{:02}", index % self.group_size),
                group: group as u32,
                system_tokens: self.system_tokens,
                group_tokens,
                steps: self.steps(
                    &shapes,
                    factor,
                    group_tokens,
                    &mut stream(self.seed, 2, index),
                ),
            });
        }
        Ok(runs)
    }

    fn steps(
        &self,
        shapes: &Shapes,
        factor: f64,
        group_tokens: u32,
        stream: &mut Pcg64Mcg,
    ) -> Vec<AgentStep> {
        let drawn = whole(shapes.steps.sample(stream) * factor) as usize;
        let wanted = drawn.clamp(1, self.steps_max);
        let prompt_tokens = self.system_tokens + group_tokens;
        let mut context = prompt_tokens;
        let mut steps: Vec<AgentStep> = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let observed = whole(shapes.observation_tokens.sample(stream)).max(STEP_TOKENS_MIN);
            let output_tokens = whole(shapes.output_tokens.sample(stream));
            let tool_ms = whole(shapes.tool_ms.sample(stream)).min(u32::MAX - 1);
            // The first step has no tool before it: its task is in the group's prompt.
            let fresh = if index == 0 {
                STEP_TOKENS_MIN
            } else {
                observed
            };
            let input_tokens = context.saturating_add(fresh);
            let next = input_tokens.saturating_add(output_tokens);
            if index > 0 && next > self.context_limit_tokens {
                break;
            }
            let output_tokens = output_tokens.min(self.context_limit_tokens - input_tokens);
            steps.push(AgentStep {
                input_tokens,
                reused_tokens: if index == 0 { 0 } else { context },
                output_tokens,
                tool_us: u64::from(tool_ms).min(self.tool_ms_max) * 1_000,
                tool_result: ToolResult::None,
            });
            context = input_tokens + output_tokens;
        }
        if let Some(last) = steps.last_mut() {
            last.tool_us = 0;
        }
        steps
    }

    fn check(&self) -> Result<(), WorkloadError> {
        if self.group_size == 0 {
            return Err(WorkloadError::Zero {
                field: "group_size",
            });
        }
        if self.steps_max == 0 {
            return Err(WorkloadError::Zero { field: "steps_max" });
        }
        let prompt_tokens = self.system_tokens.saturating_add(4 * STEP_TOKENS_MIN);
        if prompt_tokens > self.context_limit_tokens {
            let limit_tokens = self.context_limit_tokens;
            return Err(WorkloadError::LimitTooLow {
                limit_tokens,
                prompt_tokens,
            });
        }
        Ok(())
    }

    fn shapes(&self) -> Result<Shapes, WorkloadError> {
        let group_steps = LognormalParameter {
            median: 1.0,
            sigma: self.group_steps_sigma,
        };
        Ok(Shapes {
            group_tokens: shape("group_tokens", self.group_tokens)?,
            group_steps: shape("group_steps_sigma", group_steps)?,
            steps: shape("steps", self.steps)?,
            observation_tokens: shape("observation_tokens", self.observation_tokens)?,
            output_tokens: shape("output_tokens", self.output_tokens)?,
            tool_ms: shape("tool_ms", self.tool_ms)?,
        })
    }
}

fn shape(
    field: &'static str,
    parameter: LognormalParameter,
) -> Result<LogNormal<f64>, WorkloadError> {
    let LognormalParameter { median, sigma } = parameter;
    if !(median.is_finite() && median > 0.0 && sigma.is_finite() && sigma >= 0.0) {
        return Err(WorkloadError::Parameter { field });
    }
    LogNormal::new(median.ln(), sigma).map_err(|_| WorkloadError::Parameter { field })
}

fn stream(seed: u64, purpose: u64, index: usize) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(treadle_engine_model::engine::content_hash(&[
        seed,
        purpose,
        index as u64,
    ]))
}

/// Rounds to a whole number from 1 to the largest 32-bit one.
fn whole(value: f64) -> u32 {
    value.round().clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_runs_and_more_programs_keep_the_first() {
        let few = LognormalAgents {
            programs: 10,
            ..LognormalAgents::default()
        };
        let many = LognormalAgents {
            programs: 50,
            ..LognormalAgents::default()
        };
        let (few, many) = (few.generate().unwrap(), many.generate().unwrap());
        assert_eq!(few[..], many[..10]);
        let other = LognormalAgents {
            seed: 2,
            programs: 10,
            ..LognormalAgents::default()
        };
        assert_ne!(few, other.generate().unwrap());
    }

    #[test]
    fn contexts_grow_by_what_was_added_and_stay_in_the_limit() {
        let agents = LognormalAgents {
            programs: 200,
            context_limit_tokens: 12_000,
            ..LognormalAgents::default()
        };
        for run in agents.generate().unwrap() {
            assert!(!run.steps.is_empty());
            let mut context = 0;
            for step in &run.steps {
                assert_eq!(step.reused_tokens, context);
                assert!(step.output_tokens >= 1 && step.input_tokens > step.reused_tokens);
                context = step.context_tokens();
                assert!(context <= 12_000);
            }
        }
    }

    #[test]
    fn the_default_resembles_coding_agents() {
        let runs = LognormalAgents {
            programs: 400,
            ..LognormalAgents::default()
        };
        let runs = runs.generate().unwrap();
        let mut finals: Vec<u32> = runs.iter().map(AgentRun::final_context_tokens).collect();
        finals.sort_unstable();
        let mut tools: Vec<u64> = runs
            .iter()
            .flat_map(|run| &run.steps)
            .map(|step| step.tool_us)
            .filter(|us| *us > 0)
            .collect();
        tools.sort_unstable();
        assert!((15_000..30_000).contains(&finals[200]), "{}", finals[200]);
        assert!((1_500_000..2_500_000).contains(&tools[tools.len() / 2]));
        assert!(tools[tools.len() - 1] <= 300_000_000);
    }

    #[test]
    fn nonsense_is_named() {
        let of = |agents: LognormalAgents| agents.generate().unwrap_err().to_string();
        let steps = LognormalParameter {
            median: f64::NAN,
            sigma: 1.0,
        };
        assert!(
            of(LognormalAgents {
                steps,
                ..LognormalAgents::default()
            })
            .starts_with("steps:")
        );
        let none = LognormalAgents {
            group_size: 0,
            ..LognormalAgents::default()
        };
        assert_eq!(of(none), "group_size must be at least 1");
        let low = LognormalAgents {
            context_limit_tokens: 2_000,
            ..LognormalAgents::default()
        };
        assert!(of(low).starts_with("context_limit_tokens is 2000"));
    }
}
