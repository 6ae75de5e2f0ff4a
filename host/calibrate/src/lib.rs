//! `treadle calibrate`: measures an OpenAI-compatible engine and fits the simulator's engine model
//! to it.
//!
//! Prompts are drawn again for each request, so no prefix cache hides the speed of prefill; counts
//! of tokens are the engine's own. `docs/calibration.md` has what is measured and how far the
//! result can be trusted. With `--validate` a small agent workload runs on the engine and on the
//! model, and their makespans are compared.

mod args;
mod client;
mod disturbance;
mod error;
mod fit;
mod least_squares;
mod limits;
mod measure;
mod prompts;
mod report;
mod sample;
#[cfg(test)]
mod tests;
mod validate;
mod workload;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use treadle_engine_model::engine::EngineProfile;

use client::Target;
use limits::{blank_profile, plan};
use measure::measure;

pub use args::CalibrateArgs;
pub use error::CalibrateError;
pub use fit::{Fit, Residual, fit};
pub use report::Outcome;
pub use sample::{Measured, Sample};
pub use validate::Validation;

/// Largest file that is read as a profile, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

impl CalibrateArgs {
    /// Measures, fits, compares if asked to, writes and prints.
    pub async fn run(self) -> Result<(), CalibrateError> {
        let timeout = Duration::from_secs(self.timeout_s);
        let slow = |_| CalibrateError::Slow {
            seconds: self.timeout_s,
        };
        let outcome = tokio::time::timeout(timeout, self.outcome()).await;
        let outcome = outcome.map_err(slow)??;
        let text = if self.json {
            format!("{:#}", outcome.json())
        } else {
            outcome.text()
        };
        let mut out = std::io::stdout().lock();
        Ok(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush())?)
    }

    /// Measures, fits, writes the file, and compares if asked to.
    pub async fn outcome(&self) -> Result<Outcome, CalibrateError> {
        let target = Target::find(&self.url, self.model.as_deref()).await?;
        let mut outcome = match &self.from {
            Some(path) => Outcome::known(&target, read(path)?),
            None => self.calibrated(&target).await?,
        };
        if let Some(path) = &self.out {
            let document = format!("{:#}\n", outcome.document());
            let cause = |cause| CalibrateError::File {
                path: path.clone(),
                cause,
            };
            std::fs::write(path, document).map_err(cause)?;
        }
        for run in 0..self.validate.unwrap_or(0) {
            report_progress(&format!(
                "workload {} on the engine and on its model",
                run + 1
            ));
            let seed = self.seed.wrapping_add(u64::from(run));
            let compared = validate::validate(&target, &outcome.profile, seed).await?;
            outcome.validations.push(compared.kept);
            outcome.discarded.extend(compared.discarded);
        }
        Ok(outcome)
    }

    async fn calibrated(&self, target: &Target) -> Result<Outcome, CalibrateError> {
        let mut profile = blank_profile(self, target)?;
        let plan = plan(self, target, &profile);
        let measured = measure(target, &plan, &mut |what| report_progress(&what)).await?;
        let cut = self.batched_tokens_max.or(measured.batched_tokens_max);
        profile.batched_tokens_max = cut.unwrap_or(profile.batched_tokens_max);
        let samples = measured.samples.len();
        let fit = fit(&measured.samples, &profile).ok_or(CalibrateError::NoFit { samples })?;
        Ok(Outcome::fitted(target, fit, cut.is_some()))
    }
}

fn read(path: &Path) -> Result<EngineProfile, CalibrateError> {
    let file = |cause| CalibrateError::File {
        path: path.to_owned(),
        cause,
    };
    let size = std::fs::metadata(path).map_err(file)?.len();
    if size > FILE_BYTES_MAX {
        return Err(file(std::io::Error::other("it is too large for a profile")));
    }
    let text = std::fs::read_to_string(path).map_err(file)?;
    EngineProfile::from_json(&text).map_err(|cause| CalibrateError::Profile {
        path: path.to_owned(),
        cause,
    })
}

/// Reports progress on standard error.
fn report_progress(progress: &str) {
    // A closed output means that no report is wanted.
    let _ = writeln!(std::io::stderr(), "calibrate: {progress}");
}
