//! Logging to standard error, as configured in `[logging]`, and tracing, as in `[traces]`.

use std::fmt;
use std::io::IsTerminal;

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::environment;
use super::error::CliError;
use super::output::harmless;
use super::traces::Traces;
use treadle_config::{Config, LogFormat};
use treadle_gateway::TRACE_TARGET;

/// Log target of the broker's client for undeliverable messages, with their bodies.
const RETURNED_MESSAGES: &str = "lapin::returned_messages";

/// Starts logging and tracing. A second call in one process is an error.
pub(super) fn start(config: &Config) -> Result<Traces, CliError> {
    let traces = Traces::start(config)?;
    let filter = &config.logging.filter;
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        CliError::Usage(format!(
            "`logging.filter` is `{filter}`: {error}; write a level such as `info`, or `info,treadle_core=debug`"
        ))
    })?;
    // Spans of steps are not log lines, and undeliverable messages contain the output of actions.
    let filter = [TRACE_TARGET, RETURNED_MESSAGES]
        .into_iter()
        .filter_map(|target| format!("{target}=off").parse().ok())
        .fold(filter, EnvFilter::add_directive);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = match config.logging.format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && !environment::no_color();
            let fields = debug_fn(field).delimited(" ");
            log.fmt_fields(fields).with_ansi(colours).boxed()
        }
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let started = tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(traces.layer())
        .try_init();
    started.map_err(|error| CliError::Failed(format!("logging can't be started: {error}")))?;
    Ok(traces)
}

/// Writes a field. Values may come from clients and engines, so terminal controls are escaped.
fn field(line: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = harmless(&value);
    match field.name() {
        "message" => write!(line, "{value}"),
        name => write!(line, "{name}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_that_is_logged_acts_on_a_terminal() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .finish();
        tracing::subscriber::with_default(log, || {
            let cause = "\u{1b}[2Jno\u{9b}m";
            tracing::warn!(url = "http://a", %cause, quoted = cause, "it failed\u{7}: {cause}");
        });
        let line = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(
            line.ends_with('\n') && !line.trim_end().contains(char::is_control),
            "{line:?}"
        );
        assert!(line.contains("it failed\\u0007"), "{line}");
        assert!(line.contains("cause=\\u001b[2Jno\\u009bm"), "{line}");
        assert!(line.contains("url=\"http://a\""), "{line}");
    }
}
