//! The comparison: figures for programs, a table and a sentence for people.

use super::outcome::{Outcome, VARIANTS};
use super::plan::Plan;
use super::run_counters::LAG_MAX_MS;
use treadle_core::Mode;
use treadle_report::figures::{Figure, Report, Target};
use treadle_report::table::{number, table};

/// Target ratio of treadle's steps to sticky routing's, on recorded runs.
const SPEEDUP_TARGET: f64 = 2.1;

/// The figures, with the notes needed to interpret them.
pub(super) fn report(plan: &Plan, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("demo");
    settings(plan, &mut report);
    for (name, unit, value) in columns() {
        for outcome in outcomes {
            let name = format!("{name}.{}", outcome.variant.key);
            if let Some(value) = value(outcome) {
                report.push(Figure::new(name, value, unit));
            }
        }
    }
    if let Some((speedup, p99)) = ratios(outcomes) {
        let speedup = Figure::new("speedup_over_sticky", speedup, "times");
        report.push(if plan.from_trace {
            speedup.target(Target::AtLeast(SPEEDUP_TARGET))
        } else {
            speedup
        });
        let p99 = Figure::new("p99_over_sticky", p99, "times");
        report.push(p99.target(Target::AtMost(1.0)));
    }
    for note in notes(plan, outcomes) {
        report.note(note);
    }
    report
}

/// A table, a sentence and the notes.
pub(super) fn text(plan: &Plan, outcomes: &[Outcome]) -> String {
    let kind = if plan.simulated_clock {
        "virtual time, without HTTP"
    } else {
        "over HTTP, in scaled time"
    };
    let heads = [""]
        .into_iter()
        .chain(outcomes.iter().map(|o| o.variant.name));
    let heads: Vec<&str> = heads.collect();
    let told = |column: &&Column| outcomes.iter().any(|o| column.2(o).is_some());
    let rows: Vec<Vec<String>> = columns()
        .iter()
        .filter(told)
        .map(|column| row(column, outcomes))
        .collect();
    format!(
        "\nOn SIMULATED engines ({kind}); in brackets: times sticky\n\n{}\n{}\n\n{}",
        table(&heads, &rows),
        sentence(plan, outcomes),
        report(plan, outcomes).notes_text(),
    )
}

/// An optional figure of outcomes: its name, its unit, and its accessor.
type Column = (&'static str, &'static str, fn(&Outcome) -> Option<f64>);

/// The label of a figure in the table.
fn label(name: &str, unit: &str) -> String {
    let bare = name.trim_end_matches("_ms").trim_end_matches("_s");
    let words = bare.replace("_per_min", "").replace('_', " ");
    match unit {
        "count" => words,
        "s" | "ms" => format!("{words}, {unit}"),
        "share" => format!("{words}, share of prompt tokens"),
        _ => unit.to_owned(),
    }
}

fn columns() -> [Column; 10] {
    [
        ("steps_per_min", "steps/min", |o| Some(o.steps_per_min)),
        ("step_p50_s", "s", |o| Some(o.step_p50_s)),
        ("step_p95_s", "s", |o| Some(o.step_p95_s)),
        ("step_p99_s", "s", |o| Some(o.step_p99_s)),
        ("hit_rate", "share", |o| Some(o.hit_rate)),
        ("failures", "count", |o| Some(o.failures as f64)),
        ("pauses", "count", |o| Some(o.pauses as f64)),
        ("restores", "count", |o| {
            o.restores.map(|count| count as f64)
        }),
        ("moves", "count", |o| Some(o.moves as f64)),
        ("lag_p99_ms", "ms", |o| o.lag_p99_ms),
    ]
}

/// A row of the table: values, and their ratios to those of sticky routing.
fn row((name, unit, value): &Column, outcomes: &[Outcome]) -> Vec<String> {
    let sticky = of(outcomes, Mode::Sticky).and_then(value);
    let compared = matches!(*unit, "steps/min" | "s" | "share");
    let cell = |outcome: &Outcome| {
        let Some(value) = value(outcome) else {
            return "-".to_owned();
        };
        let text = match *unit {
            "count" => format!("{value:.0}"),
            _ => number(value),
        };
        match sticky {
            Some(sticky) if compared && sticky > 0.0 && outcome.variant.mode != Mode::Sticky => {
                format!("{text} ({:.2}x)", value / sticky)
            }
            _ => text,
        }
    };
    let cells = outcomes.iter().map(cell);
    std::iter::once(label(name, unit)).chain(cells).collect()
}

fn of(outcomes: &[Outcome], mode: Mode) -> Option<&Outcome> {
    outcomes.iter().find(|outcome| outcome.variant.mode == mode)
}

/// Ratios of treadle's steps and 99th percentile to sticky routing's.
fn ratios(outcomes: &[Outcome]) -> Option<(f64, f64)> {
    let sticky = of(outcomes, Mode::Sticky)?;
    let treadle = of(outcomes, Mode::ProgramAware)?;
    let speedup = treadle.steps_per_min / sticky.steps_per_min;
    Some((speedup, treadle.step_p99_s / sticky.step_p99_s))
}

fn sentence(plan: &Plan, outcomes: &[Outcome]) -> String {
    let (Some(sticky), Some(treadle)) =
        (of(outcomes, Mode::Sticky), of(outcomes, Mode::ProgramAware))
    else {
        return String::new();
    };
    let (speedup, p99) = ratios(outcomes).unwrap_or_default();
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let because = if speedup > 1.0 && treadle.hit_rate > sticky.hit_rate {
        ": it lets as many programs run as fit, so"
    } else {
        ";"
    };
    format!(
        "With KV memory for {} of what {} programs need at their peak, treadle answers {speedup:.2} \
         times the steps of sticky routing\nat {p99:.2} times its p99{because} {} of prompt tokens \
         are found in caches, {} with sticky routing.",
        percent(plan.kv_fraction),
        plan.programs,
        percent(treadle.hit_rate),
        percent(sticky.hit_rate),
    )
}

fn settings(plan: &Plan, report: &mut Report) {
    report.setting("engines_simulated", true);
    let clock = if plan.simulated_clock {
        "virtual time, without HTTP"
    } else {
        "scaled real time, over HTTP"
    };
    report.setting("clock", clock);
    if !plan.simulated_clock {
        report.setting("time_scale", plan.time_scale);
        report.setting("stream", plan.stream);
    }
    report.setting("workload", plan.workload.as_str());
    report.setting("runs", plan.runs.len());
    report.setting("runs_cut", plan.cut_runs);
    report.setting("programs", plan.programs);
    report.setting("engines", plan.engines);
    report.setting("profile", &*plan.profile.name);
    report.setting("kv_fraction", plan.kv_fraction);
    report.setting("engine_host", plan.engine_host);
    report.setting("kv_tokens_per_engine", plan.profile.kv_tokens());
    report.setting("seed", plan.seed);
    report.setting("warmup_minutes", plan.window.from_us as f64 / 60e6);
    report.setting("minutes", plan.window.minutes());
    report.setting("schedulers", VARIANTS.map(|variant| variant.name).to_vec());
}

fn notes(plan: &Plan, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = vec![format!(
        "Engines are SIMULATED: {} models of {} with {} tokens of KV memory each. Figures compare \
         schedulers; they are not those of a GPU.",
        plan.engines,
        plan.profile.name,
        number(plan.profile.kv_tokens() as f64),
    )];
    if plan.engine_host > 0.0 {
        notes.push(format!(
            "They offload to host memory by themselves: {} times the peak demand; {} \
             tokens a second come back.",
            plan.engine_host,
            number(plan.profile.host_tokens_per_s as f64),
        ));
    }
    notes.push(if plan.simulated_clock {
        "Virtual time, without HTTP: the core, its policy and the engine models in one loop."
            .to_owned()
    } else {
        format!(
            "Every step goes over HTTP through a daemon. All clocks run {}x faster than real time; \
             minutes and seconds are scaled ones, lag is real.",
            plan.time_scale
        )
    });
    notes.push(format!(
        "{} programs are live at once: each has a step under way or a tool call running; one that \
         ends is replaced by the next of the workload ({}).",
        plan.programs, plan.workload
    ));
    notes.push(format!(
        "The window is {} min after a warm-up of {} min. Latencies are those of steps answered in \
         it, and the age of steps still open at its end.",
        number(plan.window.minutes()),
        number(plan.window.from_us as f64 / 60e6),
    ));
    if plan.cut_runs > 0 {
        notes.push(format!(
            "{} of {} runs end early: their later steps exceed what an engine holds.",
            plan.cut_runs,
            plan.runs.len()
        ));
    }
    let lag_ms = outcomes.iter().filter_map(|outcome| outcome.lag_p99_ms);
    let lag_ms = lag_ms.fold(0.0, f64::max);
    if lag_ms * plan.time_scale > LAG_MAX_MS {
        notes.push(format!(
            "WARNING: the figures are unreliable: this machine wakes agents {} ms too late, {} s \
             of scaled time. Lower --time-scale, or let nothing else run.",
            number(lag_ms),
            number(lag_ms * plan.time_scale / 1e3),
        ));
    }
    for outcome in outcomes {
        if let Some(first) = &outcome.first_failure {
            let (name, count) = (outcome.variant.name, outcome.failures);
            notes.push(format!(
                "{name}: {count} requests failed, the first with {first}"
            ));
        }
    }
    notes
}
