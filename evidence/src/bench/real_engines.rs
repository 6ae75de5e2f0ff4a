//! Engines that run already.

use crate::bench::BenchError;
use clap::Args;
use futures_util::future::try_join_all;
use serde_json::Value;
use std::time::{Duration, Instant};
use treadle_demo::exchange::{get, step};
use treadle_demo::naming::Naming;
use treadle_http::Upstream;
use treadle_simulator::workload::{AgentRun, AgentStep, ChatScript};

/// For a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Nominal tokens of a prompt that measures them; a shorter context takes half of itself.
const PROMPT_TOKENS_MAX: u64 = 2_000;
/// Part of the longest context that agents plan with: real tokenizers are not foreseen to the token,
/// and chat templates add some to each of a hundred messages.
const CONTEXT_SHARE: f64 = 0.9;
/// Prompts that measure them. The first may find an engine that has computed nothing yet.
const PROMPTS: u64 = 3;
/// Nominal tokens of the prompts before tokens whose time is measured, and how many these are.
const SHORT_TOKENS: u32 = 64;
const DECODED_TOKENS: u32 = 256;

/// Engines that run already, instead of simulated ones.
#[derive(Args, Clone, Debug)]
pub(super) struct RealEnginesArgs {
    /// Engines that run already, instead of simulated ones: their URLs, with commas between. The
    /// agents' token counts are scaled to their memory.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        requires = "engine_tokens"
    )]
    engines: Vec<String>,
    /// Tokens that the KV cache of one of those holds.
    #[arg(long, value_name = "TOKENS", requires = "engines",
        value_parser = clap::value_parser!(u64).range(64..=1_000_000_000))]
    engine_tokens: Option<u64>,
    /// Longest context that they take, in tokens; the whole cache by default.
    #[arg(long, value_name = "TOKENS", requires = "engines",
        value_parser = clap::value_parser!(u32).range(64..))]
    engine_context: Option<u32>,
}

impl RealEnginesArgs {
    /// Whether none are named.
    pub(super) const fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// Finds out what must be known of them, if there are any.
    pub(super) async fn meet(&self, time_scale: f64) -> Result<Option<RealEngines>, BenchError> {
        let Some(tokens) = self.engine_tokens else {
            return Ok(None);
        };
        let longest = self.engine_context.map_or(tokens, u64::from);
        let real_engines = RealEngines::meet(self.engines.clone(), tokens, longest, time_scale);
        real_engines.await.map(Some)
    }
}

/// Real engines, and what was found out about them.
#[derive(Clone, Debug)]
pub(super) struct RealEngines {
    pub(super) urls: Vec<String>,
    /// The model of the first.
    pub(super) model: String,
    /// What the KV cache of one holds.
    pub(super) tokens: u64,
    /// The longest context that they take.
    pub(super) context_tokens: u64,
    /// Prompt tokens that one computes in a scaled second.
    pub(super) prefill_tokens_per_s: f64,
    /// Tokens of the engines' tokenizer to one that the agents plan with.
    pub(super) tokens_per_planned: f64,
}

impl RealEngines {
    /// Finds out what must be known of them.
    pub(super) async fn meet(
        urls: Vec<String>,
        tokens: u64,
        context_tokens: u64,
        time_scale: f64,
    ) -> Result<Self, BenchError> {
        let upstream = Upstream::new(CONNECT_TIMEOUT);
        let mut met = Self {
            urls,
            model: String::new(),
            tokens,
            context_tokens,
            prefill_tokens_per_s: 0.0,
            tokens_per_planned: 1.0,
        };
        for url in &met.urls.clone() {
            met.look_at(&upstream, url, time_scale)
                .await
                .map_err(|cause| BenchError::Process {
                    what: format!("the engine {url}"),
                    cause,
                    command: "none: it was named with --engines".to_owned(),
                })?;
        }
        Ok(met)
    }

    async fn look_at(
        &mut self,
        upstream: &Upstream,
        url: &str,
        time_scale: f64,
    ) -> Result<(), String> {
        let models = get(upstream, url, "/v1/models").await?;
        let models: Value = serde_json::from_slice(&models).map_err(|error| error.to_string())?;
        let model = models["data"][0]["id"].as_str();
        model
            .ok_or("/v1/models lists no model")?
            .clone_into(&mut self.model);
        let planned = PROMPT_TOKENS_MAX.min(self.context_tokens / 2) as u32;
        for number in 0..PROMPTS {
            let (tokens, took) = self.ask(upstream, url, number, planned, 1).await?;
            if tokens == 0 {
                return Err("its answer has no usage.prompt_tokens, which sizes need".to_owned());
            }
            self.tokens_per_planned = tokens as f64 / f64::from(planned);
            self.prefill_tokens_per_s = tokens as f64 / took.as_secs_f64() / time_scale;
        }
        Ok(())
    }

    /// Sends a prompt of `input_tokens` nominal tokens; gives the tokens that it had, and the
    /// time of the answer.
    async fn ask(
        &self,
        upstream: &Upstream,
        url: &str,
        seed: u64,
        input_tokens: u32,
        output_tokens: u32,
    ) -> Result<(u64, Duration), String> {
        let naming = Naming {
            header: None,
            ..Naming::default()
        };
        let run = AgentRun {
            id: format!("look{seed}"),
            group: 0,
            system_tokens: 0,
            group_tokens: 0,
            steps: vec![AgentStep {
                input_tokens,
                output_tokens,
                ..AgentStep::default()
            }],
        };
        let mut script = ChatScript::new(&run, seed);
        script.next_step();
        let (headers, began) = (naming.headers("look".into()), Instant::now());
        let body = script.body(&self.model, false);
        let answer = step(upstream, url, &headers, body).await?;
        Ok((answer.prompt.all, began.elapsed()))
    }

    /// Scaled microseconds for a token of the first engine, while a batch of sequences is at work: by
    /// what more tokens add to the time of an answer.
    pub(super) async fn token_us(&self, batch: u64, time_scale: f64) -> Result<f64, BenchError> {
        let (upstream, url) = (Upstream::new(CONNECT_TIMEOUT), &self.urls[0]);
        let mut took_s = [0.0; 2];
        for (took_s, tokens) in took_s.iter_mut().zip([1, 1 + DECODED_TOKENS]) {
            let each = (0..batch).map(|n| self.ask(&upstream, url, n, SHORT_TOKENS, tokens));
            let answers = try_join_all(each).await.map_err(BenchError::Ended)?;
            let all: f64 = answers.iter().map(|(_, took)| took.as_secs_f64()).sum();
            *took_s = all / batch as f64;
        }
        Ok((took_s[1] - took_s[0]) / f64::from(DECODED_TOKENS) * 1e6 * time_scale)
    }

    /// What the KV caches of all hold, in tokens that agents plan with.
    pub(super) fn planned_tokens(&self) -> f64 {
        self.tokens as f64 * f64::from(self.count()) / self.tokens_per_planned
    }

    /// The longest context that agents should plan with.
    pub(super) fn planned_context_tokens(&self) -> u32 {
        (self.context_tokens as f64 * CONTEXT_SHARE / self.tokens_per_planned) as u32
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.urls.len() as u32
    }
}
