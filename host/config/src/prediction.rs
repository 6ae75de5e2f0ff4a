//! `[prediction]`: an external prediction service, instead of a plugin.

use http::Uri;

use super::section::section;
use super::{ConfigError, conflict};

section! {
    /// A service that predicts the remaining work of programs, instead of a plugin; docs/prediction-service.md describes its requests and answers.
    PredictionConfig in "prediction" {
        /// URL of the service, such as `http://127.0.0.1:9000`; without one the bound policies predict.
        url: String = String::new(), "";
        /// Timeout of an answer; after it the bound policies predict instead.
        deadline_ms: u64 = 500, "milliseconds", 1 ..= 60_000;
        /// Jobs of the tenant `default` whose prompts are sent to the service, as text or token ids: the newest prompt of each program, or the beginning and the end of a long one. Prompts of other jobs are never sent.
        share_prompts_of_jobs: Vec<String> = Vec::new(), "";
        fixed {
            /// Largest answer; a larger one is refused.
            answer_bytes_max: usize = 4 << 20, "bytes", 1024 ..= 1_073_741_824;
        }
    }
}

impl PredictionConfig {
    /// Jobs whose prompts are sent to the service; none without a service.
    pub fn shared_jobs(&self) -> &[String] {
        if self.url.is_empty() {
            return &[];
        }
        &self.share_prompts_of_jobs
    }

    /// The service's address, if there is one.
    ///
    /// # Errors
    /// An invalid address.
    pub fn service(&self) -> Result<Option<Uri>, ConfigError> {
        if self.url.is_empty() {
            return Ok(None);
        }
        let parsed: Option<Uri> = self.url.parse().ok();
        let is_served = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
        let known = parsed.filter(|uri| is_served(uri) && uri.host().is_some());
        known.map(Some).ok_or_else(|| {
            conflict(
                "prediction.url",
                format!("is `{}`", self.url),
                "give an address such as http://127.0.0.1:9000 or https://predict.internal",
            )
        })
    }
}
