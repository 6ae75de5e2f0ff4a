//! How the systems compare: means over seeds, how far these are apart, and ratios.

use super::PeersArgs;
use super::measure::{Cell, Conditions, Outcome, RunKey};
use super::notes;
use crate::bench::BenchError;
use crate::bench::routers::systems::{STICKY, System, Systems};
use serde_json::{Value, json};
use treadle_report::figures::{Figure, Report};
use treadle_report::table::{number, table};

/// A figure of each system in each cell: its name, its unit, and where it is found.
type Metric = (&'static str, &'static str, fn(&Outcome) -> f64);

const STEPS: Metric = ("steps_per_min", "steps/min", |o| o.steps_per_min);
const P99: Metric = ("step_p99_s", "s", |o| o.step_p99_s);

const METRICS: [Metric; 9] = [
    STEPS,
    ("step_p50_s", "s", |o| o.step_p50_s),
    P99,
    ("failures", "count", |o| o.failures as f64),
    ("hit_rate", "share", |o| o.hit_rate),
    ("host_hit_rate", "share", |o| o.host_hit_rate),
    ("cpu_s_per_1000", "s", |o| o.cpu_s_per_1000),
    ("lag_p99_ms", "ms", |o| o.lag_p99_ms),
    ("engine_late_s", "s", |o| o.engine_late_s),
];

/// Ratios of means to those of another system: steps to sticky's, 99th percentiles to sticky's, and
/// steps to those of the best rival.
const RATIOS: [&str; 3] = ["vs_sticky", "p99_vs_sticky", "vs_best"];

const HEADS: [&str; 13] = [
    "",
    "steps/min",
    "min..max",
    "p50 s",
    "p99 s",
    "failures",
    "hit rate",
    "of host",
    "CPU s/1000",
    "lag ms",
    "late s",
    "x sticky (p99)",
    "x best",
];

/// Mean over seeds, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    mean: f64,
    least: f64,
    most: f64,
}

/// All that was measured.
pub(super) struct Comparison {
    report: Report,
    systems: Vec<System>,
    cells: Vec<Cell>,
    outcomes: Vec<Outcome>,
    /// Runs of systems that did not start, and why.
    missed: Vec<(RunKey, String)>,
    time_scale: f64,
    engines: &'static str,
}

impl Comparison {
    /// Nothing is measured yet.
    pub(super) fn new(
        args: &PeersArgs,
        systems: &Systems,
        cells: Vec<Cell>,
        conditions: &Conditions,
    ) -> Self {
        let mut report = Report::new("peers");
        let workload = args.workload_name();
        report.setting("engines_simulated", conditions.real_engines.is_none());
        report.setting("engines", conditions.engines);
        report.setting("ranks", conditions.ranks);
        match &conditions.real_engines {
            None => report.setting("profile", &*conditions.profile.name),
            Some(real_engines) => {
                report.setting("model", real_engines.model.as_str());
                report.setting("engine_tokens", real_engines.tokens);
                report.setting("engine_context", real_engines.context_tokens);
                report.setting("prefill_tokens_per_s", real_engines.prefill_tokens_per_s);
                report.setting("tokens_per_planned", real_engines.tokens_per_planned);
            }
        }
        report.setting("time_scale", conditions.time_scale);
        report.setting("live", conditions.live);
        report.setting("warmup_minutes", args.warmup_minutes);
        report.setting("minutes", args.minutes);
        report.setting("seed", args.seed);
        report.setting("seeds", args.seeds);
        report.setting("first", format!("{:?}", args.first).to_lowercase());
        report.setting("template_tokens", args.template_tokens);
        report.setting("workload", workload.as_str());
        report.setting("versions", systems.versions());
        for note in notes::conditions(args, conditions.real_engines.as_ref(), &workload) {
            report.note(note);
        }
        if let Some(note) = systems.note() {
            report.note(note);
        }
        Self {
            report,
            systems: systems.all.clone(),
            cells,
            outcomes: Vec::new(),
            missed: Vec::new(),
            time_scale: conditions.time_scale,
            engines: match conditions.real_engines {
                None => "SIMULATED engines",
                Some(_) => "the engines of --engines",
            },
        }
    }

    /// One run more.
    pub(super) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// A run that could not be.
    pub(super) fn miss(&mut self, system: &System, cell: Cell, seed: u64, error: &BenchError) {
        let key = RunKey {
            system: system.name.clone(),
            kv: cell.kv,
            host: cell.host,
            seed,
        };
        self.missed.push((key, error.to_string()));
    }

    /// All figures, what they are made of, and what must be known to read them.
    pub(super) fn report(&self) -> Report {
        let mut report = self.report.clone();
        let mut spreads = Vec::new();
        for &cell in &self.cells {
            let place = |name: &str, system: &str| {
                format!("{name}.{system}.kv{}.host{}", cell.kv, cell.host)
            };
            for system in self.systems.iter().map(|system| system.name.as_str()) {
                let mut spread_of = json!({"system": system, "kv": cell.kv, "host": cell.host});
                for metric in METRICS {
                    let Some(spread) = self.spread(system, cell, metric) else {
                        let why = "it did not start in any run there";
                        report.push(Figure::absent(place(metric.0, system), metric.1, why));
                        break;
                    };
                    report.push(Figure::new(place(metric.0, system), spread.mean, metric.1));
                    spread_of[metric.0] = spread.to_json();
                }
                let ratios = RATIOS.iter().zip(self.ratios(system, cell));
                for (name, ratio) in ratios {
                    if let Some(ratio) = ratio {
                        report.push(Figure::new(place(name, system), ratio, "times"));
                    }
                }
                spreads.push(spread_of);
            }
        }
        report.detail("spreads", Value::from(spreads));
        report.detail("outcomes", json!(self.outcomes));
        let (systems, outcomes) = (&self.systems, &self.outcomes);
        for note in notes::findings(systems, outcomes, &self.missed, self.time_scale) {
            report.note(note);
        }
        report
    }

    /// A table for each cell, and the notes.
    pub(super) fn text(&self) -> String {
        let tables: String = self.cells.iter().map(|&cell| self.table(cell)).collect();
        format!("{tables}\n{}", self.report().notes_text())
    }

    fn table(&self, cell: Cell) -> String {
        let best = self.best(cell).map_or("none", |(name, _)| name);
        let rows = self.systems.iter();
        let rows: Vec<Vec<String>> = rows.map(|system| self.row(&system.name, cell)).collect();
        format!(
            "\nOn {} with KV memory for {} and host memory for {} of the peak demand; best of \
             sticky and the others: {best}\n\n{}",
            self.engines,
            cell.kv,
            cell.host,
            table(&HEADS, &rows)
        )
    }

    fn row(&self, system: &str, cell: Cell) -> Vec<String> {
        let Some(steps) = self.spread(system, cell, STEPS) else {
            return vec![system.to_owned(), "-".to_owned()];
        };
        let mut row = vec![system.to_owned(), number(steps.mean)];
        row.push(format!("{}..{}", number(steps.least), number(steps.most)));
        let others = METRICS[1..].iter().map(|&metric| {
            let spread = self.spread(system, cell, metric);
            spread.map_or_else(|| "-".to_owned(), |spread| number(spread.mean))
        });
        row.extend(others);
        let [steps, p99, best] = self
            .ratios(system, cell)
            .map(|ratio| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
        row.extend([format!("{steps} ({p99})"), best]);
        row
    }

    fn of<'a>(&'a self, system: &'a str, cell: Cell) -> impl Iterator<Item = &'a Outcome> {
        let outcomes = self.outcomes.iter();
        outcomes.filter(move |outcome| outcome.key.is_of(system, cell))
    }

    fn spread(&self, system: &str, cell: Cell, (_, _, value): Metric) -> Option<Spread> {
        Spread::of(&self.of(system, cell).map(value).collect::<Vec<_>>())
    }

    /// The rival with the most steps in a cell, and how many these are.
    fn best(&self, cell: Cell) -> Option<(&str, f64)> {
        let rivals = self.systems.iter().filter(|system| system.is_rival());
        let steps = rivals.filter_map(|system| {
            let spread = self.spread(&system.name, cell, STEPS)?;
            Some((system.name.as_str(), spread.mean))
        });
        steps.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// In the order of [`RATIOS`].
    fn ratios(&self, system: &str, cell: Cell) -> [Option<f64>; 3] {
        let mean = |system: &str, metric| Some(self.spread(system, cell, metric)?.mean);
        let over = |metric, other: Option<f64>| {
            let ratio = mean(system, metric)? / other?;
            ratio.is_finite().then_some(ratio)
        };
        [
            over(STEPS, mean(STICKY, STEPS)),
            over(P99, mean(STICKY, P99)),
            over(STEPS, self.best(cell).map(|(_, steps)| steps)),
        ]
    }
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        (count > 0).then(|| Self {
            mean: values.iter().sum::<f64>() / count as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    fn to_json(self) -> Value {
        json!({"mean": self.mean, "min": self.least, "max": self.most})
    }
}
