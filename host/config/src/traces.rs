//! `[traces]`: traces of steps for OpenTelemetry.

use super::section::section;
use super::{ConfigError, conflict};
use treadle_trust::{base_url, url_remedy, written};

section! {
    /// Traces of steps, from the request to the engine's last token, for an OpenTelemetry collector.
    TracesConfig in "traces" {
        /// OTLP/HTTP URL of the collector that spans are sent to (without `/v1/traces`), such as `http://127.0.0.1:4318`; without one, no steps are traced.
        url: String = String::new(), "";
        /// Share of the steps that are traced. A step whose client has a trace follows the client's decision.
        share: f64 = 1.0, "", 0.0 ..= 1.0;
    }
}

impl TracesConfig {
    /// Checks the collector's address.
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
