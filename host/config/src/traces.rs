//! `[traces]`: traces of steps for OpenTelemetry.

use super::section::section;
use super::{ConfigError, conflict};
use treadle_trust::{base_url, url_remedy, written};

section! {
    /// Traces of steps, from the request to the engine's last token, for an OpenTelemetry collector.
    TracesConfig in "traces" {
        /// The collector that spans are sent to (OTLP over HTTP, `/v1/traces` behind it), such as `http://127.0.0.1:4318`; without one none are made.
        url: String = String::new(), "";
        /// Share of the steps that are traced; those whose client has a trace are where that one is.
        share: f64 = 1.0, "", 0.0 ..= 1.0;
    }
}

impl TracesConfig {
    /// Finds what is no address of a collector.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.url.is_empty() {
            return Ok(());
        }
        base_url(&self.url).map(|_| ()).map_err(|why| {
            conflict(
                "traces.url",
                format!("is `{}`: {why}", written(&self.url)),
                &url_remedy(&self.url),
            )
        })
    }
}
