//! Progress on standard error: a bar on a terminal, plain lines otherwise.

use super::outcome::{Outcome, VARIANTS, Variant};
use super::plan::Plan;
use super::run_counters::Look;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use treadle_report::table::number;

const BAR: &str = "[{bar:30}] {percent:>3}%, {eta} left; {msg}";

/// Reports progress.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    from_us: u64,
    to_us: u64,
    /// Progress of the furthest arm, in scaled microseconds, so that the bar never goes back.
    furthest_us: AtomicU64,
    /// Steps of each arm within the window.
    steps: [AtomicU64; VARIANTS.len()],
    /// Number of phases (warm-up, window) that were announced.
    announced: AtomicUsize,
}

impl Progress {
    /// Announces the run.
    pub(super) fn new(plan: &Plan) -> Self {
        let window = plan.window;
        let on_terminal = std::io::stderr().is_terminal() && !plan.simulated_clock;
        let bar = on_terminal.then(|| ProgressBar::new(window.to_us / 1_000_000));
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template(BAR)) {
            bar.set_style(style.progress_chars("=> "));
        }
        let progress = Self {
            bar,
            from_us: window.from_us,
            to_us: window.to_us,
            furthest_us: AtomicU64::new(0),
            steps: Default::default(),
            announced: AtomicUsize::new(0),
        };
        progress.line(&introduction(plan));
        progress
    }

    /// Records the progress of an arm.
    pub(super) fn at(&self, place: usize, look: &Look) {
        self.steps[place].store(look.steps, Ordering::Relaxed);
        let before_us = self.furthest_us.fetch_max(look.now_us, Ordering::Relaxed);
        let furthest_us = before_us.max(look.now_us);
        let in_window = furthest_us >= self.from_us;
        if let Some(bar) = &self.bar {
            let steps = VARIANTS.iter().zip(&self.steps).map(|(variant, steps)| {
                let steps = steps.load(Ordering::Relaxed);
                format!("{} {steps}", variant.name)
            });
            bar.set_message(if in_window {
                format!("steps: {}", steps.collect::<Vec<_>>().join(", "))
            } else {
                "warming up".to_owned()
            });
            bar.set_position(furthest_us.min(self.to_us) / 1_000_000);
            return;
        }
        let half = 1 + usize::from(in_window);
        if self.announced.fetch_max(half, Ordering::Relaxed) < half {
            let what = if in_window { "measuring" } else { "warming up" };
            self.line(&format!("{what} ..."));
        }
    }

    /// Announces the console of an arm's daemon.
    pub(super) fn watched(&self, variant: Variant, url: &str) {
        self.line(&format!(
            "{}: watch it at {url}/ while it runs",
            variant.name
        ));
    }

    /// Announces the end of an arm.
    pub(super) fn ended(&self, outcome: &Outcome) {
        let (name, rate) = (outcome.variant.name, number(outcome.steps_per_min));
        self.line(&format!("{name}: {rate} steps/min"));
    }

    /// Ends the report.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // A closed standard error is ignored.
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
    let seconds = plan.window.to_us as f64 / 1e6 / plan.time_scale;
    let scale = plan.time_scale;
    format!("{what} at once, over HTTP at {scale}x time: about {seconds:.0} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_furthest_arm_and_never_goes_back() {
        let bar = ProgressBar::hidden();
        bar.set_length(100);
        let progress = Progress {
            bar: Some(bar.clone()),
            from_us: 10_000_000,
            to_us: 100_000_000,
            furthest_us: AtomicU64::new(0),
            steps: Default::default(),
            announced: AtomicUsize::new(0),
        };
        let shown = [(0, 5), (1, 12), (2, 9), (0, 11), (1, 120), (2, 99)].map(|(place, s)| {
            let look = Look {
                now_us: s * 1_000_000,
                ..Look::default()
            };
            progress.at(place, &look);
            (bar.position(), bar.message().starts_with("steps"))
        });
        let expected = [5, 12, 12, 12, 100, 100].map(|at| (at, at >= 10));
        assert_eq!(shown, expected);
    }
}
