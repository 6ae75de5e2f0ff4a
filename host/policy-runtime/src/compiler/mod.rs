//! From a checked component to code that runs.
//!
//! Some components take minutes and gigabytes to compile, by accident or on purpose, and no check
//! of their bytes shows which. So a daemon compiles in child processes with limits of their own,
//! few at a time and at low priority: whatever happens there, scheduling goes on. Tools and tests
//! may compile in their own process.

mod child;
mod fault;
mod order;
mod slots;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use wasmtime::Engine;
use wasmtime::component::Component;

pub use child::compiler_main;
pub use fault::CompileFault;

use crate::artifacts::{Artifact, ArtifactKey, ArtifactStore, trusted};
use crate::engine::Settings;
use crate::error::RuntimeError;
use order::Order;
use slots::Slots;

mod supervisor;

/// Bounds on compiling one component, and on how many are compiled at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerLimits {
    /// Wall-clock time of a child. It runs at low priority, so this is more than its processor
    /// time. Default 120.
    pub wall_s_max: u64,
    /// Processor time of a child. Default 60.
    pub cpu_s_max: u64,
    /// Address space of a child. Default 2 GiB.
    pub memory_bytes_max: u64,
    /// Compiled code of one component. Default 256 MiB.
    pub artifact_bytes_max: u64,
    /// Maximum number of concurrent children. Default 1.
    pub children_max: usize,
    /// Maximum number of components that wait for a child. Default 8.
    pub waiting_max: usize,
}

impl Default for CompilerLimits {
    fn default() -> Self {
        Self {
            wall_s_max: 120,
            cpu_s_max: 60,
            memory_bytes_max: 2 << 30,
            artifact_bytes_max: 256 << 20,
            children_max: 1,
            waiting_max: 8,
        }
    }
}

impl CompilerLimits {
    fn check(&self) -> Result<(), RuntimeError> {
        let least = [
            ("wall_s_max", self.wall_s_max, 1),
            ("cpu_s_max", self.cpu_s_max, 1),
            ("memory_bytes_max", self.memory_bytes_max, 64 << 20),
            ("artifact_bytes_max", self.artifact_bytes_max, 1 << 16),
            ("children_max", self.children_max as u64, 1),
        ];
        for (field, value, min) in least {
            if value < min {
                return Err(RuntimeError::Limit { field, value, min });
            }
        }
        Ok(())
    }
}

/// A program that calls [`compiler_main`] with its standard input and output, and writes nothing
/// else there. A daemon uses itself with a hidden subcommand.
#[derive(Debug, Clone)]
pub struct CompilerCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// The arguments that make it compile.
    pub args: Vec<OsString>,
}

/// Compiles components, or finds them compiled. Clones share their children.
#[derive(Clone)]
pub struct Compiler {
    place: CompileIn,
    artifacts: Option<Arc<ArtifactStore>>,
}

#[derive(Clone)]
enum CompileIn {
    Here,
    Child(Arc<Children>),
}

struct Children {
    command: CompilerCommand,
    limits: CompilerLimits,
    slots: Slots,
}

impl Compiler {
    /// Compiles in this process, without limits: for tools that authors run on their own policies,
    /// and for tests.
    pub fn in_process() -> Self {
        Self {
            place: CompileIn::Here,
            artifacts: None,
        }
    }

    /// Compiles in child processes.
    ///
    /// # Errors
    /// A limit that is too small to compile anything.
    pub fn in_children(
        command: CompilerCommand,
        limits: CompilerLimits,
    ) -> Result<Self, RuntimeError> {
        limits.check()?;
        let slots = Slots::new(limits.children_max, limits.waiting_max);
        Ok(Self {
            place: CompileIn::Child(Arc::new(Children {
                command,
                limits,
                slots,
            })),
            artifacts: None,
        })
    }

    /// Stores compiled policies, and looks them up there first.
    pub fn with_artifacts(mut self, artifacts: ArtifactStore) -> Self {
        self.artifacts = Some(Arc::new(artifacts));
        self
    }

    /// Bytes of compiled policies that are stored on disk.
    pub fn artifact_bytes(&self) -> u64 {
        let kept = self.artifacts.as_ref().map(|kept| kept.bytes());
        kept.and_then(Result::ok).unwrap_or(0)
    }

    /// A component ready to be linked. Blocks as long as compiling takes.
    pub(crate) fn component(
        &self,
        engine: &Engine,
        settings: Settings,
        bytes: &[u8],
    ) -> Result<Component, CompileFault> {
        let key = ArtifactKey::of(engine, bytes);
        if let Some(component) = self.kept(engine, &key) {
            return Ok(component);
        }
        let artifact = match &self.place {
            CompileIn::Here => Artifact::seal(&compile(engine, bytes)?, &key),
            CompileIn::Child(children) => {
                let limits = &children.limits;
                let _slot = children.slots.take().ok_or(CompileFault::Busy {
                    waiting_max: limits.waiting_max,
                })?;
                // Another caller may have compiled it in the meantime.
                if let Some(component) = self.kept(engine, &key) {
                    return Ok(component);
                }
                let order = Order::new(limits, settings, &key);
                let sealed = supervisor::run(&children.command, limits, &order, bytes)?;
                Artifact::parse(sealed, &key).map_err(|damage| CompileFault::Unavailable {
                    detail: format!("the child's answer is unusable: {damage}"),
                })?
            }
        };
        if let Some(artifacts) = &self.artifacts {
            artifacts.put(&key, &artifact);
        }
        trusted::component(engine, &artifact).map_err(|error| CompileFault::Failed {
            detail: format!("{error:#}"),
        })
    }

    fn kept(&self, engine: &Engine, key: &ArtifactKey) -> Option<Component> {
        let artifact = self.artifacts.as_ref()?.get(key)?;
        trusted::component(engine, &artifact)
            .inspect_err(
                |error| tracing::warn!(%error, "a stored policy does not load; compiling it again"),
            )
            .ok()
    }
}

/// Compiles without limits.
fn compile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, CompileFault> {
    engine
        .precompile_component(bytes)
        .map_err(|error| CompileFault::Failed {
            detail: format!("{error:#}"),
        })
}

#[cfg(test)]
mod tests;
