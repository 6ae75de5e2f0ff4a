//! The WebAssembly engine, its deadlines, and what is shared by all policies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmtime::component::Linker;
use wasmtime::{Config, Engine, OptLevel};

use crate::call::Urgency;
use crate::compiler::Compiler;
use crate::error::{LoadError, RuntimeError, UploadRefusal};
use crate::inspect::{self, Candidate, Inspection};
use crate::limits::Limits;
use crate::module::{InstanceOptions, PolicyInstance, PolicyModule};
use crate::sandbox::Sandbox;
use crate::ticker::Ticker;
use crate::worlds::host;

/// Factor on a decision's fuel for starting an instance and for calls that scheduling does not wait
/// for.
const BACKGROUND_FUEL: u64 = 100;
/// Fuel that suffices to start the smallest policy.
const FUEL_MIN: u64 = 10_000;

/// The settings that code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) stack_bytes_max: usize,
    /// Calls are limited by fuel instead of time, and NaN has one pattern.
    pub(crate) is_deterministic: bool,
}

/// What instances share.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<Sandbox>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) budget: Budget,
}

/// The limit on calls.
pub(crate) enum Budget {
    /// Time.
    Time(Ticker),
    /// Number of instructions.
    Fuel { per_call: u64 },
}

impl Core {
    pub(crate) fn fuel_per_call(&self) -> Option<u64> {
        match self.budget {
            Budget::Time(_) => None,
            Budget::Fuel { per_call } => Some(per_call),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            stack_bytes_max: self.limits.stack_bytes_max,
            is_deterministic: matches!(self.budget, Budget::Fuel { .. }),
        }
    }

    pub(crate) fn fuel(&self, urgency: Urgency) -> u64 {
        let per_call = self.fuel_per_call().unwrap_or(0);
        match urgency {
            Urgency::Hot => per_call,
            Urgency::Background => per_call.saturating_mul(BACKGROUND_FUEL),
        }
    }
}

/// Compiles and runs policies. Clones share one engine and one deadline thread,
/// which sleeps while nothing runs.
#[derive(Clone)]
pub struct PolicyEngine {
    core: Arc<Core>,
    compiler: Compiler,
}

impl PolicyEngine {
    /// Creates an engine that compiles in this process, with these limits for every policy.
    ///
    /// # Errors
    /// A limit too small to run anything, or a machine on which the engine or its thread does not
    /// start.
    pub fn new(limits: Limits) -> Result<Self, RuntimeError> {
        Self::with(limits, false, |engine| {
            let ticker = Ticker::start(engine.clone()).map_err(RuntimeError::Ticker)?;
            Ok(Budget::Time(ticker))
        })
    }

    /// Creates an engine on which the same calls give the same bits on any machine, for replay and
    /// for comparing policies. A call ends when it has used `fuel_per_call`, about one unit per
    /// instruction; starting an instance and calls that scheduling does not wait for get a hundred
    /// times as much. NaN has one pattern, and no clock is read. Such an engine is slower.
    ///
    /// # Errors
    /// As [`new`](Self::new); also fuel that is too little to start anything.
    pub fn deterministic(limits: Limits, fuel_per_call: u64) -> Result<Self, RuntimeError> {
        if fuel_per_call < FUEL_MIN {
            return Err(RuntimeError::Limit {
                field: "fuel_per_call",
                value: fuel_per_call,
                min: FUEL_MIN,
            });
        }
        Self::with(limits, true, |_| {
            Ok(Budget::Fuel {
                per_call: fuel_per_call,
            })
        })
    }

    fn with(
        limits: Limits,
        is_deterministic: bool,
        budget: impl FnOnce(&Engine) -> Result<Budget, RuntimeError>,
    ) -> Result<Self, RuntimeError> {
        limits.check()?;
        let broken = |error: wasmtime::Error| RuntimeError::Engine(format!("{error:#}"));
        let settings = Settings {
            stack_bytes_max: limits.stack_bytes_max,
            is_deterministic,
        };
        let engine = Engine::new(&settings.config()).map_err(broken)?;
        let linker = host::linker(&engine).map_err(broken)?;
        Ok(Self {
            core: Arc::new(Core {
                budget: budget(&engine)?,
                engine,
                linker,
                limits: Arc::new(limits),
            }),
            compiler: Compiler::in_process(),
        })
    }

    /// Has policies compiled elsewhere.
    pub fn with_compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = compiler;
        self
    }

    /// The limits of this engine.
    pub fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// Checks an upload without compiling or running any of it: size, validity, imports, world. The
    /// first part of [`inspect`](Self::inspect).
    ///
    /// # Errors
    /// A refusal with the fault, its place and the remedy.
    pub fn examine(&self, bytes: &[u8]) -> Result<Candidate, UploadRefusal> {
        inspect::examine(&self.core.limits, bytes)
    }

    /// Takes an upload, a core module with embedded WIT or a component, through every check. Takes
    /// tens of milliseconds and more, so don't call it on an async thread.
    ///
    /// # Errors
    /// A refusal with the fault, its place and the remedy.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, UploadRefusal> {
        inspect::inspect(self, bytes)
    }

    /// Compiles a component from [`inspect`](Self::inspect), once for any number of instances.
    ///
    /// # Errors
    /// [`LoadError::Compile`] and [`LoadError::Component`].
    pub fn compile(&self, component_bytes: &[u8]) -> Result<PolicyModule, LoadError> {
        let settings = self.core.settings();
        let component = self
            .compiler
            .component(&self.core.engine, settings, component_bytes)?;
        PolicyModule::of(&self.core, &component)
    }

    /// Compiles a component and starts one instance of it.
    ///
    /// # Errors
    /// The component has no known world, refuses its configuration, or fails to start.
    pub fn load(
        &self,
        component_bytes: &[u8],
        options: &InstanceOptions,
    ) -> Result<PolicyInstance, LoadError> {
        self.compile(component_bytes)?.instance(options)
    }
}

impl Settings {
    pub(crate) fn config(self) -> Config {
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .cranelift_opt_level(OptLevel::Speed)
            .relaxed_simd_deterministic(true)
            .wasm_memory64(false)
            .max_wasm_stack(self.stack_bytes_max)
            .epoch_interruption(!self.is_deterministic)
            .consume_fuel(self.is_deterministic)
            .cranelift_nan_canonicalization(self.is_deterministic);
        config
    }
}
