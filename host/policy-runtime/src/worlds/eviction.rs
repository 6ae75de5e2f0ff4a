//! The world `eviction`: which programs keep their place in a worker's KV cache, and
//! which come back first.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::engine::Core;
use crate::error::{LoadError, PolicyFault};
use crate::instance::{Answer, Bindings, Description, Failure, Instance};
use crate::policy_log::{LogLevel, LogLine};
use crate::sandbox::Sandbox;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod raw {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "eviction",
    });
}

use raw::treadle::policy::{host, types};

impl types::Host for Sandbox {}

impl host::Host for Sandbox {
    fn log(&mut self, level: types::LogLevel, message: String) {
        let level = match level {
            types::LogLevel::Trace => LogLevel::Trace,
            types::LogLevel::Debug => LogLevel::Debug,
            types::LogLevel::Info => LogLevel::Info,
            types::LogLevel::Warn => LogLevel::Warn,
            types::LogLevel::Error => LogLevel::Error,
        };
        self.write_log(level, &message);
    }

    fn now_ms(&mut self) -> u64 {
        self.now_ms
    }
}

impl From<types::PolicyError> for Failure {
    fn from(error: types::PolicyError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

impl Bindings for raw::Eviction {
    type Pre = raw::EvictionPre<Sandbox>;

    fn prepare(component: InstancePre<Sandbox>) -> wasmtime::Result<Self::Pre> {
        raw::EvictionPre::new(component)
    }

    fn instantiate(pre: &Self::Pre, store: &mut Store<Sandbox>) -> wasmtime::Result<Self> {
        pre.instantiate(store)
    }

    fn describe(&self, store: &mut Store<Sandbox>) -> wasmtime::Result<Description> {
        let said = self.treadle_policy_plugin().call_describe(store)?;
        Ok(Description {
            name: said.name,
            version: said.version,
            summary: said.summary,
        })
    }

    fn configure(&self, store: &mut Store<Sandbox>, json: &str) -> Answer<()> {
        let answer = self.treadle_policy_plugin().call_configure(store, json)?;
        Ok(answer.map_err(Failure::from))
    }
}

/// Acting programs on one worker, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActingColumns<'a> {
    /// The time of the decision on the job's clock.
    pub now_ms: u64,
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// Time in the tool call so far.
    pub phase_ms: &'a [u64],
    /// Further columns one after the other, as the configuration names them.
    pub extra: &'a [f32],
}

/// Active programs on one worker, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActiveColumns<'a> {
    /// The time of the decision on the job's clock.
    pub now_ms: u64,
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// 1 while acting, 0 while reasoning.
    pub acting: &'a [u8],
    /// Time in the present phase.
    pub phase_ms: &'a [u64],
    /// LLM calls finished so far.
    pub steps: &'a [u32],
    /// Further columns one after the other, as the configuration names them.
    pub extra: &'a [f32],
}

/// Waiting programs, one row each; all columns have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitingColumns<'a> {
    /// The time of the decision on the job's clock.
    pub now_ms: u64,
    /// Context length in tokens.
    pub tokens: &'a [u64],
    /// 1 when an LLM call is ready to be sent, 0 while an action runs.
    pub reasoning: &'a [u8],
    /// Time in the waiting queue.
    pub waited_ms: &'a [u64],
    /// LLM calls finished so far.
    pub steps: &'a [u32],
    /// Further columns one after the other, as the configuration names them.
    pub extra: &'a [f32],
}

/// A compiled policy. Cheap to clone; makes any number of instances.
#[derive(Clone)]
pub struct EvictionModule {
    core: Arc<Core>,
    pre: raw::EvictionPre<Sandbox>,
}

impl EvictionModule {
    pub(crate) fn compile(core: &Arc<Core>, component_bytes: &[u8]) -> Result<Self, LoadError> {
        let stack_bytes_max = core.limits.stack_bytes_max;
        let component = core
            .compiler
            .component(&core.engine, stack_bytes_max, component_bytes)?;
        let load = || {
            let mut linker = Linker::new(&core.engine);
            raw::Eviction::add_to_linker::<_, HasSelf<_>>(&mut linker, |sandbox| sandbox)?;
            raw::Eviction::prepare(linker.instantiate_pre(&component)?)
        };
        let pre =
            load().map_err(|error: wasmtime::Error| LoadError::Component(format!("{error:#}")))?;
        Ok(Self {
            core: Arc::clone(core),
            pre,
        })
    }

    /// Starts an instance with this configuration, `{}` for the defaults.
    ///
    /// # Errors
    /// The policy refuses the configuration, or fails when started.
    pub fn instance(&self, config_json: &str) -> Result<EvictionInstance, LoadError> {
        let max = self.core.limits.config_bytes_max;
        if config_json.len() > max {
            return Err(LoadError::ConfigTooLarge {
                found: config_json.len(),
                max,
            });
        }
        let core = Arc::clone(&self.core);
        let mut instance = Instance::new(core, self.pre.clone(), config_json.to_owned());
        // Starting includes configuring, the only part that answers with an error.
        let description = instance.start().map_err(|fault| match fault {
            PolicyFault::PolicyError(message) => LoadError::Config(message),
            other => LoadError::Fault(other),
        })?;
        Ok(EvictionInstance {
            instance,
            description,
        })
    }
}

/// A running policy. Called synchronously by one thread at a time.
pub struct EvictionInstance {
    instance: Instance<raw::Eviction>,
    description: Description,
}

impl EvictionInstance {
    /// What the policy says about itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// How often the instance was replaced, after faults or for its memory.
    pub fn restarts(&self) -> u64 {
        self.instance.restarts()
    }

    /// The last lines of the policy's log.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.instance.log_lines()
    }

    /// For each acting program the share of its tokens that counts against capacity,
    /// within 0 and 1.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyFault> {
        let deadline_ms = self.hot_deadline_ms();
        self.weigh_within(deadline_ms, programs)
    }

    /// For each active program its score; the highest is paused first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyFault> {
        let deadline_ms = self.hot_deadline_ms();
        self.pause_order_within(deadline_ms, programs)
    }

    /// For each waiting program its score; the highest is restored first.
    ///
    /// # Errors
    /// A fault; the next call starts from a fresh instance where needed.
    pub fn restore_order(
        &mut self,
        programs: &WaitingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        let deadline_ms = self.hot_deadline_ms();
        self.restore_order_within(deadline_ms, programs)
    }

    pub(crate) fn weigh_within(
        &mut self,
        deadline_ms: u64,
        programs: &ActingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        let rows = programs.tokens.len();
        self.check_columns(
            rows,
            programs.extra,
            &[("phase_ms", programs.phase_ms.len())],
        )?;
        let weights = self
            .instance
            .call(programs.now_ms, deadline_ms, |bindings, store| {
                let world = bindings.treadle_policy_eviction_policy();
                let answer =
                    world.call_weigh(store, programs.tokens, programs.phase_ms, programs.extra)?;
                Ok(answer.map_err(Failure::from))
            })?;
        self.check_answer(rows, weights, |weight| (0.0..=1.0).contains(&weight))
    }

    pub(crate) fn pause_order_within(
        &mut self,
        deadline_ms: u64,
        programs: &ActiveColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        let rows = programs.tokens.len();
        let columns = [
            ("acting", programs.acting.len()),
            ("phase_ms", programs.phase_ms.len()),
            ("steps", programs.steps.len()),
        ];
        self.check_columns(rows, programs.extra, &columns)?;
        let scores = self
            .instance
            .call(programs.now_ms, deadline_ms, |bindings, store| {
                let answer = bindings.treadle_policy_eviction_policy().call_pause_order(
                    store,
                    programs.tokens,
                    programs.acting,
                    programs.phase_ms,
                    programs.steps,
                    programs.extra,
                )?;
                Ok(answer.map_err(Failure::from))
            })?;
        self.check_answer(rows, scores, f64::is_finite)
    }

    pub(crate) fn restore_order_within(
        &mut self,
        deadline_ms: u64,
        programs: &WaitingColumns<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        let rows = programs.tokens.len();
        let columns = [
            ("reasoning", programs.reasoning.len()),
            ("waited_ms", programs.waited_ms.len()),
            ("steps", programs.steps.len()),
        ];
        self.check_columns(rows, programs.extra, &columns)?;
        let scores = self
            .instance
            .call(programs.now_ms, deadline_ms, |bindings, store| {
                let world = bindings.treadle_policy_eviction_policy();
                let answer = world.call_restore_order(
                    store,
                    programs.tokens,
                    programs.reasoning,
                    programs.waited_ms,
                    programs.steps,
                    programs.extra,
                )?;
                Ok(answer.map_err(Failure::from))
            })?;
        self.check_answer(rows, scores, f64::is_finite)
    }

    fn hot_deadline_ms(&self) -> u64 {
        self.instance.core().limits.hot_deadline_ms
    }

    fn check_columns(
        &self,
        rows: usize,
        extra: &[f32],
        columns: &[(&str, usize)],
    ) -> Result<(), PolicyFault> {
        let bad = |detail| Err(PolicyFault::BadInput { detail });
        let rows_max = self.instance.core().limits.output_rows_max;
        if rows > rows_max {
            return bad(format!("{rows} rows; ask for at most {rows_max} at once"));
        }
        for &(name, length) in columns {
            if length != rows {
                return bad(format!("{name} has {length} entries for {rows} rows"));
            }
        }
        let is_whole = extra.len().checked_rem(rows).unwrap_or(extra.len()) == 0;
        if !is_whole {
            return bad(format!(
                "extra has {} entries, no multiple of {rows} rows",
                extra.len()
            ));
        }
        Ok(())
    }

    /// Checks length and values; after a bad answer the instance is replaced.
    fn check_answer(
        &mut self,
        rows: usize,
        answer: Vec<f64>,
        acceptable: impl Fn(f64) -> bool,
    ) -> Result<Vec<f64>, PolicyFault> {
        let detail = if answer.len() != rows {
            format!("{} values for {rows} rows", answer.len())
        } else if let Some(row) = answer.iter().position(|&value| !acceptable(value)) {
            format!("value {} in row {row}", answer[row])
        } else {
            return Ok(answer);
        };
        self.instance.discard();
        Err(PolicyFault::BadOutput { detail })
    }
}
