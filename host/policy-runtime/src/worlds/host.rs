//! The host functions for policies, `treadle:policy/host`, shared by all worlds.

use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::policy_log::LogLevel;
use crate::sandbox::Sandbox;
use crate::state::StateError;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
pub(crate) mod raw {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package treadle:runtime;
            world offered {
                import treadle:policy/types@1.0.0;
                import treadle:policy/host@1.0.0;
            }
        ",
        world: "treadle:runtime/offered",
    });
}

use raw::treadle::policy::{host, types};

/// An error that a policy returns or gets.
pub(crate) use types::PolicyError as Failure;

impl From<treadle_plugin::PolicyError> for Failure {
    fn from(error: treadle_plugin::PolicyError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

/// Phases in the contract's type.
pub(crate) fn phases(phases: &[treadle_plugin::Phase]) -> Vec<types::Phase> {
    let known = |phase: &treadle_plugin::Phase| match phase {
        treadle_plugin::Phase::Reasoning => types::Phase::Reasoning,
        treadle_plugin::Phase::Acting => types::Phase::Acting,
    };
    phases.iter().map(known).collect()
}

impl From<types::CacheAction> for treadle_plugin::CacheAction {
    fn from(action: types::CacheAction) -> Self {
        match action {
            types::CacheAction::Keep => Self::Keep,
            types::CacheAction::Offload => Self::Offload,
            types::CacheAction::Migrate => Self::Migrate,
            types::CacheAction::Drop => Self::Drop,
        }
    }
}

/// The linker of every instance.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    raw::Offered::add_to_linker::<_, HasSelf<_>>(&mut linker, |sandbox| sandbox)?;
    Ok(linker)
}

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

    fn random_u64(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn config(&mut self) -> String {
        self.belongings.config_json.as_ref().to_owned()
    }

    fn state_get(&mut self, key: String) -> Option<Vec<u8>> {
        self.belongings.state.get(&key).map(<[u8]>::to_vec)
    }

    fn state_set(&mut self, key: String, value: Vec<u8>) -> Result<(), types::PolicyError> {
        let state = &mut self.belongings.state;
        state
            .set(&key, value, &self.limits)
            .map_err(|error| types::PolicyError {
                code: code(&error).to_owned(),
                message: error.to_string(),
            })
    }

    fn state_delete(&mut self, key: String) -> bool {
        self.belongings.state.delete(&key)
    }
}

fn code(error: &StateError) -> &'static str {
    match error {
        StateError::Key { .. } => "invalid-input",
        _ => "state-full",
    }
}
