//! One instance of a policy of any world: how it is started, called, judged and
//! replaced.

use std::sync::Arc;

use wasmtime::component::InstancePre;
use wasmtime::{Store, Trap};

use crate::engine::Core;
use crate::error::PolicyFault;
use crate::policy_log::{LogLine, PolicyLog};
use crate::sandbox::Sandbox;
use crate::ticker::TICK_MS;

/// What a policy says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Lower-case words joined by hyphens.
    pub name: String,
    /// A semantic version.
    pub version: String,
    /// One sentence.
    pub summary: String,
}

/// An error that the policy answered with.
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What a guest's function gives: outside an engine error, inside an answer or the
/// policy's own error.
pub(crate) type Answer<T> = wasmtime::Result<Result<T, Failure>>;

/// The generated bindings of a world, as far as all worlds are alike.
pub(crate) trait Bindings: Sized {
    /// The bindings before instantiation: names checked, code compiled.
    type Pre: Clone;

    fn prepare(component: InstancePre<Sandbox>) -> wasmtime::Result<Self::Pre>;
    fn instantiate(pre: &Self::Pre, store: &mut Store<Sandbox>) -> wasmtime::Result<Self>;
    fn describe(&self, store: &mut Store<Sandbox>) -> wasmtime::Result<Description>;
    fn configure(&self, store: &mut Store<Sandbox>, json: &str) -> Answer<()>;
}

struct Live<B> {
    store: Store<Sandbox>,
    bindings: B,
    /// Memory right after the start.
    start_bytes: usize,
}

/// An instance that is replaced when its store has died.
pub(crate) struct Instance<B: Bindings> {
    core: Arc<Core>,
    pre: B::Pre,
    config_json: String,
    live: Option<Live<B>>,
    /// Here while nothing lives, else in the store, so that it outlives restarts.
    log: Option<PolicyLog>,
    restarts: u64,
}

impl<B: Bindings> Instance<B> {
    /// Not started yet; the first call starts it.
    pub(crate) fn new(core: Arc<Core>, pre: B::Pre, config_json: String) -> Self {
        let log = PolicyLog::new(&core.limits);
        Self {
            core,
            pre,
            config_json,
            live: None,
            log: Some(log),
            restarts: 0,
        }
    }

    /// Starts it where it is not running, and asks what it is.
    pub(crate) fn start(&mut self) -> Result<Description, PolicyFault> {
        let deadline_ms = self.core.limits.background_deadline_ms;
        let description = self.call(0, deadline_ms, |bindings, store| {
            bindings.describe(store).map(Ok)
        })?;
        if let Some(live) = &mut self.live {
            live.store.data_mut().log.set_policy(&description.name);
        }
        Ok(description)
    }

    /// Runs `ask` under a deadline, starting the instance where it is not running.
    /// After a fault of the engine's the instance is dropped.
    pub(crate) fn call<T>(
        &mut self,
        now_ms: u64,
        deadline_ms: u64,
        ask: impl FnOnce(&B, &mut Store<Sandbox>) -> Answer<T>,
    ) -> Result<T, PolicyFault> {
        let Live {
            mut store,
            bindings,
            start_bytes,
        } = match self.live.take() {
            Some(live) => live,
            None => self.revive(now_ms)?,
        };
        let answer = guarded(&self.core, &mut store, now_ms, deadline_ms, |store| {
            ask(&bindings, store)
        });
        let bytes = store.data().memory_bytes();
        let outgrown = bytes > start_bytes && bytes >= self.core.limits.memory_recycle_bytes();
        let is_sound = matches!(answer, Ok(_) | Err(PolicyFault::PolicyError(_)));
        self.live = Some(Live {
            store,
            bindings,
            start_bytes,
        });
        if outgrown || !is_sound {
            self.discard();
        }
        answer
    }

    /// Drops what runs; the next call starts anew.
    pub(crate) fn discard(&mut self) {
        if let Some(live) = self.live.take() {
            self.log = Some(live.store.into_data().log);
            self.restarts += 1;
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    pub(crate) fn log_lines(&self) -> Vec<LogLine> {
        let of_live = self.live.as_ref().map(|live| &live.store.data().log);
        let log = of_live.or(self.log.as_ref());
        log.map(|log| log.lines().cloned().collect())
            .unwrap_or_default()
    }

    fn revive(&mut self, now_ms: u64) -> Result<Live<B>, PolicyFault> {
        let limits = &self.core.limits;
        let log = self.log.take().unwrap_or_else(|| PolicyLog::new(limits));
        let mut store = Store::new(&self.core.engine, Sandbox::new(limits, log));
        store.limiter(Sandbox::limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes_max());
        let deadline_ms = limits.background_deadline_ms;
        let started = guarded(&self.core, &mut store, now_ms, deadline_ms, |store| {
            B::instantiate(&self.pre, store).map(Ok)
        })
        .and_then(|bindings| {
            guarded(&self.core, &mut store, now_ms, deadline_ms, |store| {
                bindings.configure(store, &self.config_json)
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
                self.log = Some(store.into_data().log);
                Err(fault)
            }
        }
    }
}

/// Runs guest code: the deadline is set before, the outcome classified after.
fn guarded<T>(
    core: &Core,
    store: &mut Store<Sandbox>,
    now_ms: u64,
    deadline_ms: u64,
    run: impl FnOnce(&mut Store<Sandbox>) -> Answer<T>,
) -> Result<T, PolicyFault> {
    store.data_mut().begin(now_ms);
    // One more, because the tick under way is partly over.
    store.set_epoch_deadline(deadline_ms / TICK_MS + 1);
    let running = core.ticker.run();
    let answer = run(store);
    drop(running);
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(PolicyFault::PolicyError(format!(
            "{}: {}",
            cut(failure.code, 64),
            cut(failure.message, 1024)
        ))),
        Err(error) => Err(classify(&error, store.data_mut(), deadline_ms, core)),
    }
}

fn classify(
    error: &wasmtime::Error,
    sandbox: &mut Sandbox,
    deadline_ms: u64,
    core: &Core,
) -> PolicyFault {
    let trap = error.downcast_ref::<Trap>();
    match trap {
        Some(Trap::Interrupt) => PolicyFault::Timeout { deadline_ms },
        Some(Trap::StackOverflow) => PolicyFault::Stack,
        _ if sandbox.memory_was_refused() => PolicyFault::Memory {
            max: core.limits.memory_bytes_max,
        },
        Some(trap) => PolicyFault::Trap {
            detail: sandbox
                .take_last_error()
                .unwrap_or_else(|| trap.to_string()),
        },
        // No trap: the engine could not read what the guest handed over.
        None => PolicyFault::BadOutput {
            detail: cut(error.root_cause().to_string(), 512),
        },
    }
}

/// At most `bytes_max` bytes of a guest's text.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}
