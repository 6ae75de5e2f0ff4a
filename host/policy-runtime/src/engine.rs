//! The WebAssembly engine, its deadlines, and what is shared by all policies.

use std::sync::Arc;

use wasmtime::{Config, Engine, OptLevel};

use crate::compiler::Compiler;
use crate::error::{LoadError, RuntimeError, UploadRefusal};
use crate::inspect::{self, Candidate, Inspection};
use crate::limits::Limits;
use crate::ticker::Ticker;
use crate::worlds::eviction::{EvictionInstance, EvictionModule};

/// What instances share.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    pub(crate) compiler: Compiler,
    pub(crate) ticker: Ticker,
}

/// Compiles and runs policies. Clones share one engine and one deadline thread,
/// which sleeps while nothing runs.
#[derive(Clone)]
pub struct PolicyEngine {
    core: Arc<Core>,
}

impl PolicyEngine {
    /// An engine with these bounds for every policy, which compiles in this process.
    ///
    /// # Errors
    /// As [`with_compiler`](Self::with_compiler).
    pub fn new(limits: Limits) -> Result<Self, RuntimeError> {
        Self::with_compiler(limits, Compiler::in_process())
    }

    /// An engine with these bounds for every policy, which has them compiled by
    /// `compiler`.
    ///
    /// # Errors
    /// A bound too small to run anything, or a machine on which the engine or its
    /// thread does not start.
    pub fn with_compiler(limits: Limits, compiler: Compiler) -> Result<Self, RuntimeError> {
        limits.check()?;
        let engine = Engine::new(&config(&limits))
            .map_err(|error| RuntimeError::Engine(format!("{error:#}")))?;
        let ticker = Ticker::start(engine.clone()).map_err(RuntimeError::Ticker)?;
        Ok(Self {
            core: Arc::new(Core {
                engine,
                limits,
                compiler,
                ticker,
            }),
        })
    }

    /// The bounds of this engine.
    pub fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// Checks what an upload is, without compiling or running anything of it: size,
    /// validity, imports, world. The first part of [`inspect`](Self::inspect).
    ///
    /// # Errors
    /// A refusal that says what is wrong, where, and what to do.
    pub fn examine(&self, bytes: &[u8]) -> Result<Candidate, UploadRefusal> {
        inspect::examine(&self.core.limits, bytes)
    }

    /// Takes an upload, a core module with embedded WIT or a component, through
    /// every check. Takes tens of milliseconds and more: not for an async thread.
    ///
    /// # Errors
    /// A refusal that says what is wrong, where, and what to do.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, UploadRefusal> {
        inspect::inspect(&self.core, bytes)
    }

    /// Compiles a component that [`inspect`](Self::inspect) gave, once for any number of
    /// instances.
    ///
    /// # Errors
    /// [`LoadError::Component`].
    pub fn compile(&self, component_bytes: &[u8]) -> Result<EvictionModule, LoadError> {
        EvictionModule::compile(&self.core, component_bytes)
    }

    /// Compiles a component and starts one instance of it.
    ///
    /// # Errors
    /// The component is none of the world `eviction`, refuses its configuration, or
    /// fails when started.
    pub fn load(
        &self,
        component_bytes: &[u8],
        config_json: &str,
    ) -> Result<EvictionInstance, LoadError> {
        self.compile(component_bytes)?.instance(config_json)
    }
}

pub(crate) fn config(limits: &Limits) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .cranelift_opt_level(OptLevel::Speed)
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        .max_wasm_stack(limits.stack_bytes_max);
    config
}
