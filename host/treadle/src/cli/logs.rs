//! The log: lines on standard error, as configured in `[logging]`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::environment;
use super::error::CliError;
use treadle_config::{LogFormat, LoggingConfig};

/// Starts to log. A second call in one process is an error.
pub(super) fn start(config: &LoggingConfig) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| {
        CliError::Usage(format!(
            "`logging.filter` is `{}`: {error}; write a level such as `info`, or `info,treadle_core=debug`",
            config.filter
        ))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match config.format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && !environment::no_color();
            log.with_ansi(colours).try_init()
        }
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| CliError::Failed(format!("the log does not start: {error}")))
}
