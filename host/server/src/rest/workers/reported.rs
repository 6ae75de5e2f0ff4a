//! What an engine reports: its capabilities and its load.

use crate::app::App;
use serde::Serialize;
use treadle_core::programs::Worker;
use treadle_engines::EngineDetails;
use treadle_model::WorkerId;
use treadle_wire::LogprobKind;
use utoipa::ToSchema;

/// Capabilities of an engine, as detected when it last became reachable; unknown ones are absent.
#[derive(Serialize, ToSchema)]
pub(super) struct Capabilities {
    /// Whether a program's KV cache can be offloaded to host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<bool>,
    /// Whether a KV cache can be moved to another engine of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    migrate: Option<bool>,
    /// What it lacks for offloads and moves, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Box<str>>,
    /// Whether it serves steps by priority. vLLM does not report this.
    #[serde(skip_serializing_if = "Option::is_none")]
    priorities: Option<bool>,
    /// Whether a step can be preempted in the middle of its answer and resumed later.
    continues: bool,
    /// Kind of the log-probabilities that it reports, once tokens are captured: raw, temperature,
    /// processed or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'static str>,
}

impl Capabilities {
    pub(super) fn of(
        worker: &Worker,
        details: &EngineDetails,
        logprobs: Option<LogprobKind>,
    ) -> Self {
        let abilities = details.abilities.as_ref();
        let missing = abilities.map(|abilities| &abilities.missing);
        Self {
            offload: abilities.map(|abilities| abilities.offload),
            migrate: abilities.map(|abilities| abilities.migrate),
            missing: missing.filter(|text| !text.is_empty()).cloned(),
            priorities: details.facts.priorities,
            continues: worker.resumes_steps(),
            logprobs: logprobs.map(LogprobKind::name),
        }
    }
}

/// Load that an engine reports.
#[derive(Serialize, ToSchema)]
pub(super) struct ReportedLoad {
    /// Running requests.
    running: Option<u64>,
    /// Waiting requests.
    waiting: Option<u64>,
    /// KV memory in use, in tokens.
    used_tokens: Option<u64>,
    /// Prompt tokens so far.
    prompt_tokens_total: Option<u64>,
    /// Prompt tokens so far that were found in its cache.
    cached_tokens_total: Option<u64>,
}

/// The load that an engine reported last.
pub(super) fn reported(app: &App, worker: WorkerId) -> Option<ReportedLoad> {
    let load = app.engines.load(worker)?;
    Some(ReportedLoad {
        running: load.running,
        waiting: load.waiting,
        used_tokens: load.used_tokens,
        prompt_tokens_total: load.prompt_tokens_total,
        cached_tokens_total: load.cached_tokens_total,
    })
}
