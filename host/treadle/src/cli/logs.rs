//! The log: lines on standard error, as configured in `[logging]`; and traces, where they are
//! configured.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::environment;
use super::error::CliError;
use super::traces::Traces;
use treadle_config::{Config, LogFormat};
use treadle_gateway::TRACE_TARGET;

/// Where the client of the broker logs messages that it could not deliver, bodies and all.
const RETURNED_MESSAGES: &str = "lapin::returned_messages";

/// Starts to log, and to trace. A second call in one process is an error.
pub(super) fn start(config: &Config) -> Result<Traces, CliError> {
    let traces = Traces::start(config)?;
    let filter = &config.logging.filter;
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        CliError::Usage(format!(
            "`logging.filter` is `{filter}`: {error}; write a level such as `info`, or `info,treadle_core=debug`"
        ))
    })?;
    // The spans of steps are no lines of a log, and what actions wrote is nobody's to read there.
    let filter = [TRACE_TARGET, RETURNED_MESSAGES]
        .into_iter()
        .filter_map(|target| format!("{target}=off").parse().ok())
        .fold(filter, EnvFilter::add_directive);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = match config.logging.format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && !environment::no_color();
            log.with_ansi(colours).boxed()
        }
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let started = tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(traces.layer())
        .try_init();
    started.map_err(|error| CliError::Failed(format!("the log does not start: {error}")))?;
    Ok(traces)
}
