//! What the agents do.

use crate::bench::BenchError;
use clap::ValueEnum;
use std::collections::BTreeMap;
use treadle_demo::DemoError;
use treadle_demo::workload;
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::workload::{
    AgentRun, AgentSessions, SESSION_TOKEN_DIVISOR, Subagents, peak_demand_tokens,
};

/// Sessions for each slot: they are longer than the runs of the demo.
const SESSIONS_PER_SLOT: usize = 6;

/// Generated agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum Workload {
    /// Those of the demo: a dozen steps, contexts that end near 25,000 tokens.
    #[default]
    Coding,
    /// Sessions with the medians published for agentic serving in September 2026: 43 turns, 142,000
    /// tokens in and 444 out a request, subagents in 44% of them; token counts are divided by four.
    Sessions,
}

impl Workload {
    /// Its name, for people.
    pub(super) fn name(self) -> String {
        match self {
            Self::Coding => workload::name(None),
            Self::Sessions => format!(
                "sessions with the medians published for agentic serving in September 2026, token \
                 counts divided by {SESSION_TOKEN_DIVISOR}"
            ),
        }
    }

    /// Runs for a number of slots.
    pub(super) fn load(self, slots: usize, seed: u64) -> Result<Load, BenchError> {
        match self {
            Self::Coding => Ok(Load::alone(workload::runs(None, slots, seed)?)),
            Self::Sessions => {
                let sessions = AgentSessions::generate(slots * SESSIONS_PER_SLOT, seed);
                let sessions = sessions.map_err(DemoError::from)?;
                Ok(Load {
                    runs: sessions.runs,
                    subagents: sessions.subagents,
                })
            }
        }
    }
}

/// Runs, and what they start.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) runs: Vec<AgentRun>,
    pub(super) subagents: BTreeMap<String, Subagents>,
}

impl Load {
    /// Runs that start nothing.
    pub(super) fn alone(runs: Vec<AgentRun>) -> Self {
        Self {
            runs,
            subagents: BTreeMap::new(),
        }
    }

    /// Scales token counts until `tokens` are the wanted share of what the runs need at their peak,
    /// their subagents not counted.
    pub(super) fn scale_to(&mut self, slots: usize, share: f64, tokens: f64) {
        let peak = peak_demand_tokens(&self.runs, slots, &EngineProfile::glm46_8xh100());
        let factor = tokens / (share * peak as f64);
        let started = self.subagents.values_mut();
        let started = started.flat_map(|started| &mut started.runs);
        for run in self.runs.iter_mut().chain(started) {
            run.scale_tokens(factor);
        }
    }

    /// Ends runs before what an engine can't hold.
    pub(super) fn truncate_at(&mut self, limit_tokens: u32) {
        for run in &mut self.runs {
            run.truncate_at(limit_tokens);
        }
        self.runs.retain(|run| !run.steps.is_empty());
        for started in self.subagents.values_mut() {
            for run in &mut started.runs {
                run.truncate_at(limit_tokens);
            }
            started.runs.retain(|run| !run.steps.is_empty());
        }
    }
}
