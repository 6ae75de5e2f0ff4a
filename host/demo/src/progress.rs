//! How far it is: a bar on a terminal, plain lines otherwise, on standard error.

use super::outcome::{Outcome, VARIANTS, Variant};
use super::plan::Plan;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use treadle_report::table::number;

const BAR: &str = "{msg} [{bar:30}] {percent:>3}% of all, {eta} left";

/// Reports progress.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    from_us: u64,
    to_us: u64,
    /// Arms and their halves, warm-up and window, that were announced.
    announced: AtomicUsize,
}

impl Progress {
    /// Reports what happens next.
    pub(super) fn new(plan: &Plan) -> Self {
        let window = plan.window;
        let variants = VARIANTS.len() as u64;
        let on_terminal = std::io::stderr().is_terminal() && !plan.simulated_clock;
        let bar = on_terminal.then(|| ProgressBar::new(window.to_us * variants / 1_000_000));
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template(BAR)) {
            bar.set_style(style.progress_chars("=> "));
        }
        let progress = Self {
            bar,
            from_us: window.from_us,
            to_us: window.to_us,
            announced: AtomicUsize::new(0),
        };
        progress.line(&introduction(plan));
        progress
    }

    /// An arm is so far, and so many steps were answered in its window.
    pub(super) fn at(&self, variant: Variant, now_us: u64, steps: u64) {
        let place = VARIANTS
            .iter()
            .position(|each| *each == variant)
            .unwrap_or(0);
        let in_window = now_us >= self.from_us;
        if let Some(bar) = &self.bar {
            let state = if in_window {
                format!("{steps} steps")
            } else {
                "warm-up".to_owned()
            };
            let number = place + 1;
            bar.set_message(format!(
                "{number}/{} {}: {state}",
                VARIANTS.len(),
                variant.name
            ));
            bar.set_position((self.to_us * place as u64 + now_us.min(self.to_us)) / 1_000_000);
            return;
        }
        let part = place * 2 + 1 + usize::from(in_window);
        if self.announced.fetch_max(part, Ordering::Relaxed) < part {
            let what = if in_window { "measuring" } else { "warming up" };
            self.line(&format!("{}: {what} ...", variant.name));
        }
    }

    /// An arm's daemon has a console, as long as it runs.
    pub(super) fn watched(&self, variant: Variant, url: &str) {
        self.line(&format!(
            "{}: watch it at {url}/ while it runs",
            variant.name
        ));
    }

    /// An arm is done.
    pub(super) fn ended(&self, outcome: &Outcome) {
        let (name, rate) = (outcome.variant.name, number(outcome.steps_per_min));
        self.line(&format!("{name}: {rate} steps/min"));
    }

    /// All are done.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // A closed output means that no report is wanted.
            None => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }
}

fn introduction(plan: &Plan) -> String {
    let Plan {
        programs,
        engines,
        workload,
        ..
    } = plan;
    let what = format!(
        "{programs} programs live at once ({workload}) on {engines} SIMULATED engines ({}), under \
         {} schedulers",
        plan.profile.name,
        VARIANTS.len()
    );
    if plan.simulated_clock {
        return format!("{what}, in virtual time");
    }
    let seconds = plan.window.to_us as f64 / 1e6 / plan.time_scale * VARIANTS.len() as f64;
    let scale = plan.time_scale;
    format!("{what}, over HTTP at {scale}x time: about {seconds:.0} s")
}
