//! One instance of a policy of any world: how it is started, called, checked and replaced.

use std::sync::Arc;

use serde::Serialize;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::call::{CallContext, Urgency};
use crate::engine::Core;
use crate::error::PolicyFault;
use crate::guarded::guarded;
use crate::policy_log::{LogLevel, LogLine};
use crate::sandbox::{Belongings, Sandbox};
use crate::state::BindingState;
use crate::worlds::host::Failure;

/// A policy's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Description {
    /// Lower-case words joined by hyphens.
    pub name: String,
    /// A semantic version.
    pub version: String,
    /// One sentence.
    pub summary: String,
    /// Functions of its world that it answers.
    pub functions: Vec<String>,
    /// Columns that it requests in `extra`, in this order.
    pub columns: Vec<String>,
    /// A JSON Schema of its configuration; empty if it gives none.
    pub config_schema: String,
}

impl Description {
    /// Whether the policy implements a function of its world.
    pub fn answers(&self, function: &str) -> bool {
        self.functions.iter().any(|known| known == function)
    }
}

/// The result of a guest's function: outside an engine error, inside an answer or the policy's own
/// error.
pub(crate) type Answer<T> = wasmtime::Result<Result<T, Failure>>;

/// The result of checking an answer; the error names the fault and its place.
pub(crate) type Check = Result<(), String>;

/// The generated bindings of a world, as far as all worlds have in common.
pub(crate) trait Bindings: Sized + Send {
    /// The bindings before instantiation: names checked, code compiled.
    type Pre: Clone + Send + Sync;

    fn prepare(component: InstancePre<Sandbox>) -> wasmtime::Result<Self::Pre>;
    fn instantiate(pre: &Self::Pre, store: &mut Store<Sandbox>) -> wasmtime::Result<Self>;
    fn describe(&self, store: &mut Store<Sandbox>) -> wasmtime::Result<Description>;
    fn configure(&self, store: &mut Store<Sandbox>, json: &str) -> Answer<()>;
    fn snapshot(&self, store: &mut Store<Sandbox>) -> Answer<Vec<u8>>;
    fn restore(&self, store: &mut Store<Sandbox>, snapshot: &[u8]) -> Answer<()>;
}

/// Operations on an instance of any world.
pub(crate) trait Lifecycle: Send {
    fn description(&self) -> &Description;
    fn restarts(&self) -> u64;
    fn memory_bytes(&self) -> usize;
    fn log_lines(&self) -> Vec<LogLine>;
    fn state(&self) -> Option<&BindingState>;
    fn set_state(&mut self, state: BindingState);
    fn fuel_used(&self) -> Option<u64>;
    fn warm(&mut self, context: &CallContext) -> Result<(), PolicyFault>;
    fn snapshot(&mut self, context: &CallContext) -> Result<Vec<u8>, PolicyFault>;
    fn restore(&mut self, context: &CallContext, snapshot: &[u8]) -> Result<(), PolicyFault>;
}

struct Live<B> {
    store: Store<Sandbox>,
    bindings: B,
    /// Memory right after the start.
    start_bytes: usize,
}

/// An instance that is replaced when its store is no longer usable.
pub(crate) struct Instance<B: Bindings> {
    core: Arc<Core>,
    pre: B::Pre,
    description: Description,
    live: Option<Live<B>>,
    /// Here while no store lives, otherwise in the store, so that they outlive restarts.
    belongings: Option<Belongings>,
    /// The last snapshot taken or restored; a replacement starts with it.
    snapshot: Vec<u8>,
    restarts: u64,
}

impl<B: Bindings> Instance<B> {
    /// Starts an instance and asks for its description.
    pub(crate) fn start(
        core: Arc<Core>,
        pre: B::Pre,
        belongings: Belongings,
        snapshot: Vec<u8>,
    ) -> Result<Self, PolicyFault> {
        let mut instance = Self {
            core,
            pre,
            description: Description::default(),
            live: None,
            belongings: Some(belongings),
            snapshot,
            restarts: 0,
        };
        let context = CallContext::default();
        let describe = |bindings: &B, store: &mut Store<Sandbox>| bindings.describe(store).map(Ok);
        instance.description = instance.ask(&context, Urgency::Background, describe, |_| Ok(()))?;
        if let Some(live) = &mut instance.live {
            let log = &mut live.store.data_mut().belongings.log;
            log.set_policy(&instance.description.name);
        }
        Ok(instance)
    }

    /// Runs `ask` under a deadline, starting the instance if it is not running, and checks the
    /// answer. After a fault the instance is dropped.
    pub(crate) fn ask<T>(
        &mut self,
        context: &CallContext,
        urgency: Urgency,
        ask: impl FnOnce(&B, &mut Store<Sandbox>) -> Answer<T>,
        check: impl FnOnce(&T) -> Check,
    ) -> Result<T, PolicyFault> {
        self.warm(context)?;
        let Some(live) = &mut self.live else {
            return Err(nothing_to_start_from());
        };
        let answer = guarded(&self.core, &mut live.store, context, urgency, |store| {
            ask(&live.bindings, store)
        })
        .and_then(|answer| match check(&answer) {
            Ok(()) => Ok(answer),
            Err(detail) => Err(PolicyFault::BadOutput { detail }),
        });
        let bytes = live.store.data().memory_bytes();
        let outgrown = bytes > live.start_bytes && bytes >= self.core.limits.memory_recycle_bytes();
        if outgrown || answer.as_ref().is_err_and(ends_the_instance) {
            self.discard();
        }
        answer
    }

    /// Checks the caller's columns for a function, and whether the policy implements it: `entries`
    /// are their lengths; `check` gets the number of extra columns that the policy requested.
    pub(crate) fn admit(
        &self,
        function: &str,
        entries: &[usize],
        check: impl FnOnce(usize) -> Result<(), treadle_plugin::PolicyError>,
    ) -> Result<(), PolicyFault> {
        let max = self.core.limits.output_rows_max;
        if let Some(found) = entries.iter().find(|&&entries| entries > max) {
            let detail = format!("{found} rows; ask for at most {max} at once");
            return Err(PolicyFault::BadInput { detail });
        }
        check(self.description.columns.len()).map_err(|error| PolicyFault::BadInput {
            detail: error.message,
        })?;
        if self.description.answers(function) {
            return Ok(());
        }
        Err(PolicyFault::NotSupported)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn into_state(mut self) -> BindingState {
        self.discard();
        self.belongings.map(|kept| kept.state).unwrap_or_default()
    }

    /// Drops the running instance; the next call restarts it.
    fn discard(&mut self) {
        if let Some(live) = self.live.take() {
            self.belongings = Some(live.store.into_data().belongings);
            self.restarts += 1;
        }
    }

    fn belongings(&self) -> Option<&Belongings> {
        let of_live = self.live.as_ref().map(|live| &live.store.data().belongings);
        of_live.or(self.belongings.as_ref())
    }

    /// The running instance, or a new one with the last snapshot if the policy accepts it.
    fn revive(&mut self, context: &CallContext) -> Result<Live<B>, PolicyFault> {
        let mut live = self.begin(context)?;
        if self.snapshot.is_empty() {
            return Ok(live);
        }
        let restored = guarded(
            &self.core,
            &mut live.store,
            context,
            Urgency::Background,
            |store| live.bindings.restore(store, &self.snapshot),
        );
        let Err(fault) = restored else {
            return Ok(live);
        };
        self.snapshot = Vec::new();
        let message = format!("starts without its predecessor's snapshot: {fault}");
        live.store.data_mut().write_log(LogLevel::Warn, &message);
        if !ends_the_instance(&fault) {
            return Ok(live);
        }
        self.belongings = Some(live.store.into_data().belongings);
        self.begin(context)
    }

    /// A new, configured instance without learnt state.
    fn begin(&mut self, context: &CallContext) -> Result<Live<B>, PolicyFault> {
        let core = Arc::clone(&self.core);
        let Some(belongings) = self.belongings.take() else {
            return Err(nothing_to_start_from());
        };
        let config_json = Arc::clone(&belongings.config_json);
        let mut store = Store::new(&core.engine, Sandbox::new(&core.limits, belongings));
        store.limiter(Sandbox::limiter);
        store.set_hostcall_fuel(core.limits.hostcall_bytes_max());
        let urgency = Urgency::Background;
        let started = guarded(&core, &mut store, context, urgency, |store| {
            B::instantiate(&self.pre, store).map(Ok)
        })
        .and_then(|bindings| {
            guarded(&core, &mut store, context, urgency, |store| {
                bindings.configure(store, &config_json)
            })
            .map(|()| bindings)
        });
        match started {
            Ok(bindings) => Ok(Live {
                start_bytes: store.data().memory_bytes(),
                store,
                bindings,
            }),
            Err(fault) => {
                self.belongings = Some(store.into_data().belongings);
                Err(fault)
            }
        }
    }
}

/// Unreachable: an instance always has a store, or the parts of one.
fn nothing_to_start_from() -> PolicyFault {
    PolicyFault::Trap {
        detail: "nothing to restart from; bind the policy again".to_owned(),
    }
}

/// Whether the store is unusable, or its guest not trustworthy, after this fault.
fn ends_the_instance(fault: &PolicyFault) -> bool {
    !matches!(
        fault,
        PolicyFault::PolicyError(_) | PolicyFault::NotSupported | PolicyFault::BadInput { .. }
    )
}

impl<B: Bindings> Lifecycle for Instance<B> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn restarts(&self) -> u64 {
        self.restarts
    }

    fn memory_bytes(&self) -> usize {
        let live = self.live.as_ref();
        live.map_or(0, |live| live.store.data().memory_bytes())
    }

    fn log_lines(&self) -> Vec<LogLine> {
        let lines = self.belongings().map(|kept| kept.log.lines());
        lines.into_iter().flatten().cloned().collect()
    }

    fn state(&self) -> Option<&BindingState> {
        self.belongings().map(|kept| &kept.state)
    }

    fn set_state(&mut self, state: BindingState) {
        let of_live = self
            .live
            .as_mut()
            .map(|l| &mut l.store.data_mut().belongings);
        if let Some(belongings) = of_live.or(self.belongings.as_mut()) {
            belongings.state = state;
        }
    }

    fn fuel_used(&self) -> Option<u64> {
        self.core.fuel_per_call()?;
        self.belongings().map(|kept| kept.fuel_used)
    }

    fn warm(&mut self, context: &CallContext) -> Result<(), PolicyFault> {
        if self.live.is_none() {
            let live = self.revive(context)?;
            self.live = Some(live);
        }
        Ok(())
    }

    fn snapshot(&mut self, context: &CallContext) -> Result<Vec<u8>, PolicyFault> {
        let max = self.core.limits.snapshot_bytes_max;
        let snapshot = self.ask(
            context,
            Urgency::Background,
            B::snapshot,
            |snapshot: &Vec<u8>| match snapshot.len() {
                found if found > max => Err(format!("snapshot: {found} bytes, at most {max}")),
                _ => Ok(()),
            },
        )?;
        self.snapshot.clone_from(&snapshot);
        Ok(snapshot)
    }

    fn restore(&mut self, context: &CallContext, snapshot: &[u8]) -> Result<(), PolicyFault> {
        let (found, max) = (snapshot.len(), self.core.limits.snapshot_bytes_max);
        if found == 0 || found > max {
            return Err(PolicyFault::BadInput {
                detail: format!("snapshot: {found} bytes; give at least 1 and at most {max}"),
            });
        }
        self.ask(
            context,
            Urgency::Background,
            |bindings, store| bindings.restore(store, snapshot),
            |()| Ok(()),
        )?;
        self.snapshot = snapshot.to_vec();
        Ok(())
    }
}
