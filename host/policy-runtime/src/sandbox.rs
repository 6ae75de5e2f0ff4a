//! The environment of a running guest: its memory limiter, its clock, its random stream, its log
//! and its state.

use std::sync::Arc;

use treadle_plugin::random::SplitMix64;
use wasmtime::ResourceLimiter;

use crate::call::CallContext;
use crate::limits::Limits;
use crate::policy_log::{LogLevel, PolicyLog};
use crate::state::BindingState;

/// Maximum number of core instances, memories and tables of one component. Toolchains make a few of
/// each; scripts' runtimes make more.
const CORE_INSTANCES_MAX: usize = 64;
const MEMORIES_MAX: usize = 16;
const TABLES_MAX: usize = 32;

/// The data of a binding, which passes from store to store.
pub(crate) struct Belongings {
    pub(crate) log: PolicyLog,
    pub(crate) state: BindingState,
    pub(crate) config_json: Arc<str>,
    pub(crate) seed: u64,
    /// Fuel used so far, on a deterministic engine.
    pub(crate) fuel_used: u64,
}

/// The data of one store.
pub(crate) struct Sandbox {
    pub(crate) belongings: Belongings,
    pub(crate) limits: Arc<Limits>,
    pub(crate) now_ms: u64,
    pub(crate) random: SplitMix64,
    memory: Memory,
    /// The last line of level error in this call, with which a guest reports the cause of a panic.
    last_error: Option<String>,
}

struct Memory {
    bytes: usize,
    bytes_max: usize,
    table_elements: usize,
    table_elements_max: usize,
    refused: bool,
}

impl Sandbox {
    pub(crate) fn new(limits: &Arc<Limits>, belongings: Belongings) -> Self {
        Self {
            belongings,
            limits: Arc::clone(limits),
            now_ms: 0,
            random: SplitMix64::new(0),
            memory: Memory {
                bytes: 0,
                bytes_max: limits.memory_bytes_max,
                table_elements: 0,
                table_elements_max: limits.table_elements_max,
                refused: false,
            },
            last_error: None,
        }
    }

    /// Prepares a call.
    pub(crate) fn begin(&mut self, context: &CallContext) {
        self.now_ms = context.now_ms;
        self.random = stream(self.belongings.seed, context.seed);
        self.memory.refused = false;
        self.last_error = None;
    }

    pub(crate) fn write_log(&mut self, level: LogLevel, message: &str) {
        if level == LogLevel::Error {
            let cut = message.floor_char_boundary(512);
            self.last_error = Some(message[..cut].to_owned());
        }
        self.belongings.log.write(self.now_ms, level, message);
    }

    /// Memory in use, all memories together.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Whether this call was refused memory.
    pub(crate) fn memory_was_refused(&self) -> bool {
        self.memory.refused
    }

    pub(crate) fn take_last_error(&mut self) -> Option<String> {
        self.last_error.take()
    }

    /// For `Store::limiter`.
    pub(crate) fn limiter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.memory
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = grown(self.bytes, current, desired, self.bytes_max);
        match grown {
            Some(bytes) => self.bytes = bytes,
            None => self.refused = true,
        }
        Ok(grown.is_some())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = grown(
            self.table_elements,
            current,
            desired,
            self.table_elements_max,
        );
        match grown {
            Some(elements) => self.table_elements = elements,
            None => self.refused = true,
        }
        Ok(grown.is_some())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }
}

/// The random stream of one call. The binding's seed is hashed first, so that nearby seeds of
/// bindings and calls do not lead to the same stream.
fn stream(binding_seed: u64, call_seed: u64) -> SplitMix64 {
    let mixed = SplitMix64::new(binding_seed).next_u64();
    SplitMix64::new(mixed ^ call_seed)
}

/// The new sum if one of its parts grows, `None` if it would exceed `max`.
fn grown(sum: usize, current: usize, desired: usize, max: usize) -> Option<usize> {
    let sum = sum.checked_add(desired.checked_sub(current)?)?;
    (sum <= max).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(limits: Limits) -> Sandbox {
        let belongings = Belongings {
            log: PolicyLog::new(&limits, None),
            state: BindingState::default(),
            config_json: "{}".into(),
            seed: 7,
            fuel_used: 0,
        };
        Sandbox::new(&Arc::new(limits), belongings)
    }

    #[test]
    fn a_call_draws_the_same_numbers_again_and_another_call_others() {
        let mut sandbox = sandbox(Limits::default());
        let mut draw = |seed| {
            sandbox.begin(&CallContext {
                seed,
                ..CallContext::default()
            });
            [0; 3].map(|_: u64| sandbox.random.next_u64())
        };
        let first = draw(1);
        assert_ne!(draw(2), first);
        assert_eq!(draw(1), first);
        assert_ne!(stream(8, 1), stream(7, 1));
    }

    #[test]
    fn all_memories_count_together() {
        let mut sandbox = sandbox(Limits {
            memory_bytes_max: 100,
            ..Limits::default()
        });
        let limiter = sandbox.limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(60, 100, None).unwrap());
        assert!(sandbox.memory_was_refused());
        assert_eq!(sandbox.memory_bytes(), 100);
    }
}
