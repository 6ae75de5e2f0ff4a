//! The result of a calibration, as text, as JSON and as the document of a profile.

use std::fmt::Write;

use serde_json::{Value, json};
use treadle_engine_model::engine::EngineProfile;

use super::client::Target;
use super::fit::Fit;
use super::validate::Validation;

/// The result of a calibration.
pub struct Outcome {
    engine: String,
    model: String,
    /// The profile, measured or read.
    pub profile: EngineProfile,
    fit: Option<Fit>,
    /// Whether `batched_tokens_max` was measured or given, rather than supposed.
    is_cut_known: bool,
    /// Workloads on engine and model.
    pub validations: Vec<Validation>,
    /// Runs of them that were disturbed and made again.
    pub discarded: Vec<Validation>,
}

impl Outcome {
    /// A profile that was read.
    pub(super) fn known(target: &Target, profile: EngineProfile) -> Self {
        Self {
            engine: target.kind.to_string(),
            model: target.model.to_string(),
            profile,
            fit: None,
            is_cut_known: true,
            validations: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// A profile that was fitted.
    pub(super) fn fitted(target: &Target, fit: Fit, is_cut_known: bool) -> Self {
        Self {
            profile: fit.profile.clone(),
            fit: Some(fit),
            is_cut_known,
            ..Self::known(target, EngineProfile::instant())
        }
    }

    /// How well the profile predicts what was measured; `None` if it was read.
    pub fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    fn calibration(&self) -> Value {
        let mut calibration = json!({
            "engine": self.engine,
            "model": self.model,
            "batched_tokens_max_supposed": !self.is_cut_known,
        });
        if let Some(fit) = &self.fit {
            calibration["fit"] = json!(fit);
        }
        calibration
    }

    /// The document that is written to a file.
    pub fn document(&self) -> Value {
        self.profile.to_json(self.calibration())
    }

    /// The document, and the comparisons beside it.
    pub fn json(&self) -> Value {
        let mut all = self.document();
        all["validations"] = json!(self.validations);
        all["discarded"] = json!(self.discarded);
        all
    }

    /// All of it for people.
    pub fn text(&self) -> String {
        let mut text = format!("{} ({})\n\n", self.model, self.engine);
        self.write_profile(&mut text);
        if let Some(fit) = &self.fit {
            write_residuals(&mut text, fit);
        }
        for validation in &self.validations {
            write_validation(&mut text, validation);
        }
        write_summary(&mut text, &self.validations, &self.discarded);
        text
    }

    fn write_profile(&self, text: &mut String) {
        let p = &self.profile;
        let supposed = if self.is_cut_known {
            ""
        } else {
            " (supposed: no prompt was cut)"
        };
        let lines = [
            ("prefill", format!("{} tok/s", p.prefill_tokens_per_s)),
            (
                "prefill, per kilotoken before",
                format!(
                    "{:.3} us a token",
                    p.prefill_per_kilotoken_context_ps as f64 / 1e6
                ),
            ),
            ("decode, base", format!("{} us", p.decode_base_us)),
            (
                "decode, per sequence",
                format!("{} us", p.decode_per_sequence_us),
            ),
            (
                "decode, per kilotoken",
                format!("{:.3} us", p.decode_per_kilotoken_context_ns as f64 / 1e3),
            ),
            ("pass after the first", format!("{} us", p.pass_us)),
            (
                "iteration overhead",
                format!("{} us", p.iteration_overhead_us),
            ),
            ("request overhead", format!("{} us", p.request_overhead_us)),
            (
                "tokens per iteration",
                format!("{}{supposed}", p.batched_tokens_max),
            ),
            ("sequences at once", p.running_max.to_string()),
            ("KV memory", format!("{} tokens", p.kv_tokens())),
            (
                "context limit",
                format!("{} tokens", p.context_limit_tokens),
            ),
        ];
        for (name, value) in lines {
            let _ = writeln!(text, "{name:<30} {value}");
        }
    }
}

fn write_residuals(text: &mut String, fit: &Fit) {
    let _ = writeln!(
        text,
        "\n{:>12} {:>12} {:>8}  of",
        "measured ms", "model ms", "error"
    );
    for residual in &fit.residuals {
        let _ = writeln!(
            text,
            "{:>12.3} {:>12.3} {:>7.1}%  {}",
            residual.sample.us / 1e3,
            residual.predicted_us as f64 / 1e3,
            residual.error * 100.0,
            residual.sample.what.words(),
        );
    }
    let _ = writeln!(
        text,
        "median error {:.1}%, largest {:.1}%",
        fit.error_median * 100.0,
        fit.error_max * 100.0
    );
}

/// All ratios once more, and which of them count.
fn write_summary(text: &mut String, kept: &[Validation], discarded: &[Validation]) {
    let ratios = |of: &dyn Fn(&Validation) -> bool, among: &[Validation]| {
        let told = among.iter().filter(|each| of(each));
        let told: Vec<String> = told
            .map(|each| format!("{:.3}", each.makespan_ratio))
            .collect();
        told.join(", ")
    };
    if kept.is_empty() {
        return;
    }
    let calm = ratios(&|each| !each.is_disturbed, kept);
    let disturbed = ratios(&|each| each.is_disturbed, kept);
    for (what, told) in [
        ("ratios", calm),
        ("ratios of runs that stayed disturbed", disturbed),
        (
            "ratios of disturbed runs, made again",
            ratios(&|_| true, discarded),
        ),
    ] {
        if !told.is_empty() {
            let _ = writeln!(text, "\n{what}: {told}");
        }
    }
}

fn write_validation(text: &mut String, told: &Validation) {
    let waited = told.waited_share.map_or_else(
        || "may have been disturbed: it runs elsewhere".to_owned(),
        |share| {
            let answer = if told.is_disturbed { ": disturbed" } else { "" };
            format!(
                "waited for a processor for {:.1}% of that{answer}; ratio without {:.3}",
                share * 100.0,
                told.calm_ratio.unwrap_or(told.makespan_ratio)
            )
        },
    );
    let _ = writeln!(
        text,
        "\nworkload {}: {} programs, {} steps, {} at once\n  \
         makespan  measured {:.3} s, predicted {:.3} s, ratio {:.3}\n  \
         step      measured {:.3} s, predicted {:.3} s on average\n  \
         engine    {waited}",
        told.seed,
        told.programs,
        told.steps,
        told.lanes,
        told.measured_makespan_s,
        told.predicted_makespan_s,
        told.makespan_ratio,
        told.measured_step_s,
        told.predicted_step_s,
    );
}
