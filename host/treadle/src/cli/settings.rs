//! Flags that set the configuration.

use std::path::PathBuf;

use clap::Args;

use super::environment;
use treadle_config::{Config, ConfigError};

/// Sources of the configuration besides the environment.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Settings {
    /// Configuration file (TOML); `treadle config docs` lists its keys.
    #[arg(long, env = environment::CONFIG, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A configuration value; can be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
}

impl Settings {
    /// Loads the configuration; `flags` are assignments that override all others.
    pub(super) fn load(&self, flags: Vec<String>) -> Result<Config, ConfigError> {
        let sets: Vec<String> = self.sets.iter().cloned().chain(flags).collect();
        Config::load(self.config.as_deref(), environment::all(), &sets)
    }
}
