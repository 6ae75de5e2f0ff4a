//! Figures of a comparison suite: one number each, beside what was aimed at and the paper's.

use super::{BaselineSystem, Outcome, Part, Suite, parts};
use crate::comparison::{FULL, System};
use serde::Serialize;
use treadle_simulator::workload::{AgentModel, AgentTask};

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, as `vs.verl.coding.qwen3-14b`.
    pub name: String,
    /// It: a median over seeds, or the best or worst of such.
    pub value: f64,
    /// Its unit; `ratio` of throughputs or of times.
    pub unit: &'static str,
    /// What it should be.
    pub goal: Option<Goal>,
    /// What the paper has.
    pub reference: Option<&'static str>,
}

/// The least that the full set should be better by than any whole system.
const WORST_GOAL: f64 = 1.1;
/// How near to the bound the full set should come somewhere.
const BOUND_GOAL: f64 = 1.25;

impl Suite {
    /// All figures, the ones that sum up first. Those of parts that were not run are not there.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        self.summary(&mut figures);
        for part in &self.options.parts {
            self.part(*part, &mut figures);
        }
        self.bounds(&mut figures);
        figures
    }

    fn summary(&self, figures: &mut Vec<Figure>) {
        if self.options.parts.contains(&Part::Tuned) {
            let all = Part::Tuned.baselines();
            let all = all.iter().flat_map(|one| self.ratios(Part::Tuned, one));
            figures.extend(all.reduce(f64::min).map(|worst| Figure {
                goal: Some(Goal::AtLeast(WORST_GOAL)),
                ..ratio("worst_vs.tuned".to_owned(), worst)
            }));
        }
        let mut all = Vec::new();
        if self.options.parts.contains(&Part::Systems) {
            for baseline in Part::Systems.baselines() {
                let ratios = self.ratios(Part::Systems, &baseline);
                let goal = match baseline.name {
                    "verl" => 2.3,
                    "verl_hybrid" => 2.4,
                    _ => 2.5,
                };
                if let Some(best) = ratios.iter().copied().reduce(f64::max) {
                    let figure = ratio(format!("best_vs.{}", baseline.name), best);
                    figures.push(Figure {
                        goal: Some(Goal::AtLeast(goal)),
                        reference: Part::Systems.reference(baseline.name),
                        ..figure
                    });
                }
                all.extend(ratios);
            }
        }
        if let Some(worst) = all.into_iter().reduce(f64::min) {
            figures.push(Figure {
                goal: Some(Goal::AtLeast(WORST_GOAL)),
                reference: Some("Heddle 1.1 (§7.1)"),
                ..ratio("worst_vs.any".to_owned(), worst)
            });
        }
        let cells = self.cells();
        let distances = cells.filter_map(|(task, model)| {
            self.median(|seed| {
                let outcome = self.outcome(task, model, seed, &FULL)?;
                Some(outcome.ratio())
            })
        });
        if let Some(best) = distances.reduce(f64::min) {
            figures.push(Figure {
                goal: Some(Goal::AtMost(BOUND_GOAL)),
                ..ratio("distance_to_bound.best".to_owned(), best)
            });
        }
    }

    /// Ratios of throughput, and for the order at engines how long the longest program waited.
    fn part(&self, part: Part, figures: &mut Vec<Figure>) {
        let baselines = part.baselines();
        for same in baselines.chunk_by(|one, next| one.name == next.name) {
            for (task, model) in self.cells().filter(|(_, model)| part.has(*model)) {
                let ratios = same.iter().filter_map(|one| self.ratio(one, task, model));
                let Some(value) = ratios.reduce(f64::min) else {
                    continue;
                };
                let cell = Self::cell_name(part, task, model);
                let name = format!("{}.{}.{cell}", part.prefix(), same[0].name);
                figures.push(Figure {
                    reference: part.reference(same[0].name),
                    ..ratio(name, value)
                });
            }
        }
        if part == Part::Scheduling {
            let baselines = part.baselines();
            let all = baselines
                .iter()
                .map(|baseline| (baseline.name, &baseline.system));
            for (name, system) in std::iter::once(("heddle", &FULL)).chain(all) {
                self.waits(name, system, figures);
            }
        }
    }

    fn waits(&self, name: &str, system: &System, figures: &mut Vec<Figure>) {
        for (task, model) in self.cells().filter(|(_, m)| Part::Scheduling.has(*m)) {
            let wait = self.median(|seed| {
                let outcome = self.outcome(task, model, seed, system)?;
                Some(outcome.report.longest_waited_s)
            });
            figures.extend(wait.map(|value| Figure {
                name: format!("longest_waited_s.{name}.{}", task.name()),
                value,
                unit: "s",
                goal: None,
                reference: None,
            }));
        }
    }

    fn bounds(&self, figures: &mut Vec<Figure>) {
        let mut systems: Vec<System> = Vec::new();
        for outcome in &self.outcomes {
            if !systems.contains(&outcome.system) && !parts::is_tuned(&outcome.system) {
                systems.push(outcome.system);
            }
        }
        for system in &systems {
            for (task, model) in self.cells() {
                let distance =
                    self.median(|seed| self.outcome(task, model, seed, system).map(Outcome::ratio));
                let system = system.name.replace(", ", "_").replace([' ', '-'], "_");
                let name = |distance| {
                    let name = format!(
                        "distance_to_bound.{system}.{}.{}",
                        task.name(),
                        model.name()
                    );
                    ratio(name, distance)
                };
                figures.extend(distance.map(name));
            }
        }
    }

    fn ratios(&self, part: Part, baseline: &BaselineSystem) -> Vec<f64> {
        let cells = self.cells().filter(|(_, model)| part.has(*model));
        let ratios = cells.filter_map(|(task, model)| self.ratio(baseline, task, model));
        ratios.collect()
    }

    /// The champion's throughput as a multiple of the baseline's.
    fn ratio(&self, baseline: &BaselineSystem, task: AgentTask, model: AgentModel) -> Option<f64> {
        self.median(|seed| {
            let champion = self.outcome(task, model, seed, &baseline.champion)?;
            let other = self.outcome(task, model, seed, &baseline.system)?;
            Some(champion.report.tokens_per_s / other.report.tokens_per_s)
        })
    }

    /// Over seeds.
    fn median(&self, value: impl Fn(u64) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self
            .options
            .seeds
            .iter()
            .copied()
            .filter_map(value)
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(values[middle]),
            _ => Some(f64::midpoint(values[middle - 1], values[middle])),
        }
    }

    fn cells(&self) -> impl Iterator<Item = (AgentTask, AgentModel)> + '_ {
        let tasks = self.options.tasks.iter();
        tasks.flat_map(|task| self.options.models.iter().map(|model| (*task, *model)))
    }

    /// Parts with one model leave its name out.
    fn cell_name(part: Part, task: AgentTask, model: AgentModel) -> String {
        let alone = AgentModel::ALL.iter().filter(|m| part.has(**m)).count() == 1;
        if alone {
            task.name().to_owned()
        } else {
            format!("{}.{}", task.name(), model.name())
        }
    }
}

fn ratio(name: String, value: f64) -> Figure {
    Figure {
        name,
        value,
        unit: "ratio",
        goal: None,
        reference: None,
    }
}
