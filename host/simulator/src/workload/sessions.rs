//! Sessions of coding agents with the medians published for agentic serving in September 2026
//! (vLLM's agentic benchmark): 43 turns per session, 142,000 input and 444 output tokens per
//! request, more than 96% of the prompt tokens seen before, and subagents in 44% of the sessions.
//!
//! Only medians are published. The spreads, the times of tools, and the number and lifetimes of
//! subagents are assumptions of this file.

use super::{AgentRun, LognormalAgents, LognormalParameter, WorkloadError};
use std::collections::BTreeMap;
use treadle_engine_model::engine::content_hash;

/// Percentage of sessions with subagents.
const WITH_SUBAGENTS: u64 = 44;
/// Maximum number of concurrent subagents.
const SUBAGENTS_MAX: u64 = 3;
/// Divisor of all token counts, the same as for recorded runs.
pub const SESSION_TOKEN_DIVISOR: u32 = 4;

/// Programs that one program starts concurrently after a step, and waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Subagents {
    /// Index of the step after which they start.
    pub after_step: usize,
    /// Their runs; ids begin with the parent's.
    pub runs: Vec<AgentRun>,
}

/// Sessions and their subagents, by the id of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSessions {
    /// The sessions themselves.
    pub runs: Vec<AgentRun>,
    /// Those of the sessions that have any.
    pub subagents: BTreeMap<String, Subagents>,
}

impl AgentSessions {
    /// Generates sessions, the same for the same seed.
    pub fn generate(sessions: usize, seed: u64) -> Result<Self, WorkloadError> {
        let runs = shape(sessions, seed, 43.0).generate()?;
        let mut subagents = BTreeMap::new();
        // Separate streams, so that sessions do not depend on their subagents.
        let pool = shape(sessions * SUBAGENTS_MAX as usize, !seed, 12.0).generate()?;
        for (index, (run, pool)) in runs
            .iter()
            .zip(pool.chunks(SUBAGENTS_MAX as usize))
            .enumerate()
        {
            let draw = |purpose| content_hash(&[seed, 4, index as u64, purpose]);
            // After the last step nobody waits for them.
            let steps = run.steps.len() as u64 - 1;
            if steps == 0 || draw(0) % 100 >= WITH_SUBAGENTS {
                continue;
            }
            let count = 1 + (draw(1) % SUBAGENTS_MAX) as usize;
            let started = Subagents {
                after_step: (draw(2) % steps) as usize,
                runs: (pool.iter().take(count).enumerate())
                    .map(|(number, each)| AgentRun {
                        id: format!("{}.{number}", run.id),
                        ..each.clone()
                    })
                    .collect(),
            };
            subagents.insert(run.id.clone(), started);
        }
        Ok(Self { runs, subagents })
    }
}

/// Programs that share tools and system prompt, each with a project of its own.
fn shape(programs: usize, seed: u64, turns: f64) -> LognormalAgents {
    let tokens = |median: f64, sigma| LognormalParameter {
        median: median / f64::from(SESSION_TOKEN_DIVISOR),
        sigma,
    };
    LognormalAgents {
        programs,
        group_size: 1,
        system_tokens: 20_000 / SESSION_TOKEN_DIVISOR,
        group_tokens: tokens(8_000.0, 0.6),
        steps: LognormalParameter {
            median: turns,
            sigma: 0.6,
        },
        group_steps_sigma: 0.0,
        steps_max: 256,
        observation_tokens: tokens(2_500.0, 0.9),
        output_tokens: tokens(444.0, 0.8),
        seed,
        ..LognormalAgents::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(mut values: Vec<u64>) -> f64 {
        values.sort_unstable();
        values[values.len() / 2] as f64
    }

    fn within(value: f64, wanted: f64, share: f64) {
        let off = (value / wanted - 1.0).abs();
        assert!(off <= share, "{value}, not {wanted}");
    }

    #[test]
    fn medians_are_the_published_ones() {
        let sessions = AgentSessions::generate(8_000, 3).unwrap();
        let turns = sessions.runs.iter().map(|run| run.steps.len() as u64);
        within(median(turns.collect()), 43.0, 0.05);
        let steps = || sessions.runs.iter().flat_map(|run| &run.steps);
        let divisor = f64::from(SESSION_TOKEN_DIVISOR);
        let input = median(steps().map(|step| step.input_tokens.into()).collect());
        within(input * divisor, 142_000.0, 0.05);
        let output = median(steps().map(|step| step.output_tokens.into()).collect());
        within(output * divisor, 444.0, 0.05);
        let (all, reused) = steps().fold((0, 0), |(all, reused), step| {
            (
                all + u64::from(step.input_tokens),
                reused + u64::from(step.reused_tokens),
            )
        });
        assert!(
            reused as f64 / all as f64 > 0.96,
            "{}",
            reused as f64 / all as f64
        );
        let share = sessions.subagents.len() as f64 / sessions.runs.len() as f64;
        within(share, 0.44, 0.05);
    }

    #[test]
    fn subagents_start_between_two_steps_of_their_session() {
        let sessions = AgentSessions::generate(200, 1).unwrap();
        assert_eq!(sessions, AgentSessions::generate(200, 1).unwrap());
        let steps: BTreeMap<&str, usize> = (sessions.runs.iter())
            .map(|run| (run.id.as_str(), run.steps.len()))
            .collect();
        for (id, started) in &sessions.subagents {
            assert!(started.after_step + 1 < steps[id.as_str()]);
            assert!((1..=SUBAGENTS_MAX as usize).contains(&started.runs.len()));
            assert!(
                started
                    .runs
                    .iter()
                    .all(|run| run.id.starts_with(id.as_str()))
            );
        }
    }
}
