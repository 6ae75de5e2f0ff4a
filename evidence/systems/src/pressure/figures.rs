//! Figures of a comparison under memory pressure.

use super::systems::{THUNDERAGENT, THUNDERAGENT_DEFAULT};
use super::{ABLATIONS, LIMITS, Outcome, SHARES, System, TTLS};
use treadle_simulator::cluster::Report;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this.
    AtMost(f64),
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its goal, if it has one.
    pub goal: Option<Goal>,
}

/// What reports of several seeds come to in the mean.
#[derive(Clone, Copy)]
struct MeanFigures {
    steps_per_min: f64,
    step_p99_s: f64,
}

impl MeanFigures {
    fn of(reports: &[&Report]) -> Option<Self> {
        let count = reports.len() as f64;
        let mean = |of: fn(&Report) -> f64| reports.iter().copied().map(of).sum::<f64>() / count;
        (count > 0.0).then(|| Self {
            steps_per_min: mean(|report| report.steps_per_min),
            step_p99_s: mean(|report| report.step_p99_s),
        })
    }
}

/// Reports of one scenario at one share of memory.
struct Cell<'a> {
    outcomes: Vec<&'a Outcome>,
}

impl Cell<'_> {
    fn of(&self, system: &str) -> Option<MeanFigures> {
        let of_system = self.outcomes.iter().filter(|o| o.system == system);
        let reports: Vec<&Report> = of_system.map(|outcome| &outcome.report).collect();
        MeanFigures::of(&reports)
    }

    /// The one of several with the most steps a minute.
    fn fastest(&self, of: &[System]) -> Option<MeanFigures> {
        let all = of.iter().filter_map(|system| self.of(system.name));
        all.max_by(|a, b| a.steps_per_min.total_cmp(&b.steps_per_min))
    }

    fn named(&self, system: &str) -> Option<MeanFigures> {
        match system {
            "ttl_pin" => self.fastest(&TTLS),
            "thunderagent.best" => self.fastest(&[THUNDERAGENT, THUNDERAGENT_DEFAULT]),
            other => self.of(other),
        }
    }
}

/// Systems that figures compare with.
const BASELINES: [&str; 4] = ["least_load", "sticky", "ttl_pin", "thunderagent"];

/// All figures of a scenario, whose name is at the end of theirs: between means over the seeds of
/// its outcomes. `free` is the same scenario with room for all, of each seed; `bounds` are steps a
/// minute that each share allows at most.
pub fn figures(
    scene: &str,
    outcomes: &[Outcome],
    free: &[Report],
    bounds: &[f64; SHARES.len()],
) -> Vec<Figure> {
    let mut all = Vec::new();
    let Some(free) = MeanFigures::of(&free.iter().collect::<Vec<_>>()) else {
        return all;
    };
    for ((share, _), bound) in SHARES.iter().zip(bounds) {
        let here = |o: &&Outcome| o.scene == scene && o.share == *share;
        let cell = Cell {
            outcomes: outcomes.iter().filter(here).collect(),
        };
        let mut push = |name: &str, value: f64, goal: Option<Goal>| {
            let name = format!("{name}.{share}.{scene}");
            all.push(Figure { name, value, goal });
        };
        let Some(ours) = cell.of("foresight") else {
            continue;
        };
        for baseline in BASELINES {
            if let Some(theirs) = cell.named(baseline) {
                let goal = (baseline == "thunderagent").then_some(Goal::AtLeast(1.0));
                push(&format!("vs_{baseline}"), faster(ours, theirs), goal);
            }
        }
        if let Some(sticky) = cell.of("sticky") {
            let ratio = ours.step_p99_s / sticky.step_p99_s;
            push("step_p99_vs_sticky", ratio, Some(Goal::AtMost(1.0)));
        }
        // `vs_thunderagent` has the paper's settings; this one the better of those and the
        // plugin's default.
        if let Some(theirs) = cell.named("thunderagent.best") {
            push(
                "foresight_vs_thunderagent",
                faster(ours, theirs),
                Some(Goal::AtLeast(1.0)),
            );
        }
        let goal = (*share == "kv_third").then_some(Goal::AtLeast(0.9));
        push("share_of_no_pressure", faster(ours, free), goal);
        push("share_of_memory_estimate", ours.steps_per_min / bound, None);
        no_tier(&cell, &mut push);
        for system in &ABLATIONS {
            if let Some(less) = cell.of(system.name) {
                push(
                    &format!("gain.{}", gain_of(system.name)),
                    faster(ours, less),
                    None,
                );
                let tail = ours.step_p99_s / less.step_p99_s;
                push(&format!("step_p99.{}", gain_of(system.name)), tail, None);
            }
        }
    }
    all
}

/// Without a tier: as fast as the best of the others, and its tail compared with that one's.
fn no_tier(cell: &Cell<'_>, push: &mut impl FnMut(&str, f64, Option<Goal>)) {
    let Some(ours) = cell.of("foresight.no_tier") else {
        return;
    };
    let baselines = BASELINES.iter().chain(&["thunderagent.best"]);
    let baselines = baselines.filter_map(|baseline| cell.named(baseline));
    let best = baselines.max_by(|a, b| a.steps_per_min.total_cmp(&b.steps_per_min));
    if let Some(best) = best {
        push(
            "no_tier.vs_best",
            faster(ours, best),
            Some(Goal::AtLeast(1.0)),
        );
        let tail = ours.step_p99_s / best.step_p99_s;
        push("no_tier.step_p99_vs_best", tail, Some(Goal::AtMost(1.0)));
    }
    for system in &LIMITS {
        if let Some(limit) = cell.of(system.name) {
            push(system.name, faster(limit, ours), None);
            let tail = limit.step_p99_s / ours.step_p99_s;
            push(&format!("step_p99.{}", system.name), tail, None);
        }
    }
}

fn gain_of(ablation: &str) -> &str {
    ablation.trim_start_matches("without.")
}

fn faster(ours: MeanFigures, theirs: MeanFigures) -> f64 {
    ours.steps_per_min / theirs.steps_per_min
}
