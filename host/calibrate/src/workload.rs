//! A small agent workload: programs whose steps continue their own prompts, with tool calls
//! between, and the engine model's prediction of it.

use std::collections::BTreeMap;

use treadle_engine_model::engine::{
    Engine, EngineProfile, Output, RequestSpec, SubmitError, chain_hash, content_hash,
};

use super::prompts::Prompts;

/// Steps of a program.
const STEPS: std::ops::RangeInclusive<u32> = 3..=5;
/// Tokens of output of a step, where the engine has room for them.
const OUTPUT_TOKENS: std::ops::RangeInclusive<u32> = 16..=64;
/// Contexts are shares of this at most, so that a run stays short.
const CONTEXT_TOKENS_MAX: u32 = 8_192;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// Tokens that its prompt has beyond the step before.
    pub(super) new_tokens: u32,
    /// Tokens that it generates.
    pub(super) output_tokens: u32,
    /// The tool call after it, in microseconds.
    pub(super) tool_us: u64,
}

/// One program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
}

/// `count` programs of different lengths for an engine like `profile`. Tool calls last 0.1 to 0.5
/// of the time of a step by itself: the engine is what the makespan depends on.
pub(super) fn programs(count: u32, lanes: u32, profile: &EngineProfile, seed: u64) -> Vec<Program> {
    let mut random = Prompts::seeded(seed);
    let shared = profile.kv_tokens() / u64::from(lanes.max(1));
    let room = u64::from(profile.sequence_limit_tokens()).min(shared);
    let room = (room as u32).min(CONTEXT_TOKENS_MAX);
    let output_max = (room / 32).clamp(2, *OUTPUT_TOKENS.end());
    let output_min = (*OUTPUT_TOKENS.start()).min(output_max);
    let mut step = |index: u32| {
        let new_tokens = match index {
            0 => random.between(room / 16, room / 4),
            _ => random.between(room / 64, room / 16),
        }
        .max(1);
        let output_tokens = random.between(output_min, output_max);
        let alone_us = profile.ideal_step_us(
            u64::from(new_tokens),
            u64::from(output_tokens),
            u64::from(room / 4),
            1,
        );
        Step {
            new_tokens,
            output_tokens,
            tool_us: alone_us * u64::from(random.between(100, 500)) / 1_000,
        }
    };
    // Lengths differ as agents' do; the order is that of the numbers.
    let lengths = STEPS.end() - STEPS.start() + 1;
    (0..count)
        .map(|number| Program {
            steps: (0..STEPS.start() + number * 7 % lengths)
                .map(&mut step)
                .collect(),
        })
        .collect()
}

/// The model's prediction of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Prediction {
    /// From the first request to the last answer, in microseconds.
    pub(super) makespan_us: u64,
    /// Each step's time, in the order in which they end, in microseconds.
    pub(super) steps_us: Vec<u64>,
}

/// Runs programs on the engine model as [`run`](super::validate::run) runs them on an engine:
/// `lanes` of them at once, the next when one ends.
pub(super) fn predict(
    programs: &[Program],
    lanes: u32,
    profile: &EngineProfile,
) -> Result<Prediction, SubmitError> {
    let mut cluster = Cluster {
        programs,
        profile,
        engine: Engine::new(profile.clone()),
        due: BTreeMap::new(),
        order: 0,
        next_program: 0,
        at_step: vec![0; programs.len()],
        sent_at: vec![0; programs.len()],
        prediction: Prediction::default(),
    };
    for _ in 0..lanes {
        cluster.begin_program(0);
    }
    cluster.run()?;
    Ok(cluster.prediction)
}

struct Cluster<'a> {
    programs: &'a [Program],
    profile: &'a EngineProfile,
    engine: Engine,
    /// Programs whose requests reach the engine, by time.
    due: BTreeMap<(u64, u64), usize>,
    order: u64,
    next_program: usize,
    at_step: Vec<usize>,
    sent_at: Vec<u64>,
    prediction: Prediction,
}

impl Cluster<'_> {
    fn begin_program(&mut self, now_us: u64) {
        if self.next_program < self.programs.len() {
            self.next_program += 1;
            self.send(self.next_program - 1, now_us);
        }
    }

    fn send(&mut self, program: usize, now_us: u64) {
        self.sent_at[program] = now_us;
        self.order += 1;
        let arrives = now_us + self.profile.request_overhead_us;
        self.due.insert((arrives, self.order), program);
    }

    fn run(&mut self) -> Result<(), SubmitError> {
        let mut outputs = Vec::new();
        loop {
            let arrival = self.due.first_key_value().map(|((at, _), _)| *at);
            let Some(now_us) = [arrival, self.engine.next_event_at()]
                .into_iter()
                .flatten()
                .min()
            else {
                return Ok(());
            };
            // A sequence that arrives when an iteration starts is part of it.
            while let Some(first) = self
                .due
                .first_entry()
                .filter(|first| first.key().0 <= now_us)
            {
                let program = first.remove();
                self.engine.submit(now_us, self.request(program))?;
            }
            self.engine.advance(now_us, &mut outputs);
            for output in outputs.drain(..) {
                if let Output::Finished(finished) = output {
                    self.step_ended(finished.id as usize, finished.at_us);
                }
            }
        }
    }

    fn step_ended(&mut self, program: usize, now_us: u64) {
        let step = self.programs[program].steps[self.at_step[program]];
        self.prediction.makespan_us = self.prediction.makespan_us.max(now_us);
        self.prediction
            .steps_us
            .push(now_us - self.sent_at[program]);
        self.at_step[program] += 1;
        if self.at_step[program] < self.programs[program].steps.len() {
            self.send(program, now_us + step.tool_us);
        } else {
            self.begin_program(now_us);
        }
    }

    fn request(&self, program: usize) -> RequestSpec {
        let steps = &self.programs[program].steps[..=self.at_step[program]];
        let prompt_tokens: u32 = steps.iter().map(|step| step.new_tokens).sum();
        let mut chain = 0;
        let block = |block: u32| {
            chain = chain_hash(chain, content_hash(&[program as u64, u64::from(block)]));
            chain
        };
        RequestSpec {
            id: program as u64,
            prompt_tokens,
            output_tokens: steps.last().map_or(1, |step| step.output_tokens.max(1)),
            blocks: (0..prompt_tokens / self.profile.block_tokens)
                .map(block)
                .collect(),
            priority: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> EngineProfile {
        EngineProfile {
            block_tokens: 1,
            kv_blocks: 8_192,
            context_limit_tokens: 2_048,
            running_max: 4,
            request_overhead_us: 500,
            ..EngineProfile::qwen3_8b_h100()
        }
    }

    #[test]
    fn a_lone_program_takes_the_sum_of_its_parts() {
        let steps = vec![
            Step {
                new_tokens: 300,
                output_tokens: 5,
                tool_us: 70_000,
            },
            Step {
                new_tokens: 40,
                output_tokens: 3,
                tool_us: 1_000_000,
            },
        ];
        let profile = profile();
        let load = |prefill_tokens, decode_sequences, decode_context_tokens| {
            let load = treadle_engine_model::engine::IterationLoad {
                prefill_tokens,
                decode_sequences,
                decode_context_tokens,
                ..Default::default()
            };
            profile.iteration_us(load)
        };
        let first: u64 = load(300, 0, 0) + (301..305).map(|n| load(0, 1, n)).sum::<u64>();
        // The prompt before is cached, what was generated is not part of the next prompt.
        let second: u64 = load(40, 0, 0) + (341..343).map(|n| load(0, 1, n)).sum::<u64>();
        let told = predict(&[Program { steps }], 1, &profile).unwrap();
        assert_eq!(told.steps_us, [first + 500, second + 500]);
        assert_eq!(told.makespan_us, first + 500 + 70_000 + second + 500);
    }

    #[test]
    fn programs_fit_and_are_all_run() {
        let profile = profile();
        let programs = programs(12, 4, &profile, 1);
        let steps: usize = programs.iter().map(|program| program.steps.len()).sum();
        assert!((36..=60).contains(&steps));
        for program in &programs {
            let prompt: u32 = program.steps.iter().map(|step| step.new_tokens).sum();
            assert!(prompt <= 1_100, "{prompt}");
        }
        let told = predict(&programs, 4, &profile).unwrap();
        assert_eq!(told.steps_us.len(), steps);
        let alone = predict(&programs, 1, &profile).unwrap();
        assert!(alone.makespan_us > told.makespan_us);
        assert_eq!(predict(&programs, 4, &profile).unwrap(), told);
    }
}
