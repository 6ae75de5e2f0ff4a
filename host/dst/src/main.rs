//! `make dst`: runs the simulations of many seeds and reports broken rules, shrunk if possible,
//! with the command to reproduce each.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use treadle_dst::{EventCounts, FaultKind, InjectedBug, Options, Outcome, explore, shrink};
use treadle_dst_training::{
    TrainingBug, TrainingOptions, WeightsBug, WeightsOptions, explore_training, explore_weights,
};

const USAGE: &str = "usage: dst [--seeds N] [--from SEED] [--jobs N] | dst --seed SEED [--trace] \
[--actions] [--programs N] [--faults N] [--without KIND,KIND] [--inject NAME]; with --training or \
--weights: training runs or weight updates, with --seeds, --from, --jobs, --seed, --trace and \
--inject";
/// Number of failing seeds after which the search ends.
const FAILURES_MAX: usize = 5;
/// Number of seeds after which a line on stderr says how far a long run is.
const SEEDS_TOLD: u64 = 1_000;
/// Number of a trace's lines that are shown without `--trace`.
const TRACE_LINES: usize = 40;

#[derive(Default)]
struct Arguments {
    seeds: u64,
    from: u64,
    jobs: usize,
    seed: Option<u64>,
    options: Options,
    /// Training runs are simulated, with these options.
    training: Option<TrainingOptions>,
    /// Weight updates are simulated, with these options.
    weights: Option<WeightsOptions>,
}

impl Arguments {
    fn explore(&self, seed: u64) -> Outcome {
        let trace = self.options.trace;
        match (self.training, self.weights) {
            (Some(training), _) => explore_training(seed, TrainingOptions { trace, ..training }),
            (_, Some(weights)) => explore_weights(seed, WeightsOptions { trace, ..weights }),
            (None, None) => explore(seed, &self.options),
        }
    }

    /// The options that make `make dst` simulate something else than the scheduler; `None` if it
    /// is that.
    fn other_flags(&self) -> Option<String> {
        let training = self
            .training
            .map(|it| ("--training", it.bug.map(TrainingBug::name)));
        let weights = self
            .weights
            .map(|it| ("--weights", it.bug.map(WeightsBug::name)));
        let (flag, bug) = training.or(weights)?;
        let bug = bug.map(|name| format!(" --inject {name}"));
        Some(format!("{flag}{}", bug.unwrap_or_default()))
    }
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A core that panics is a broken rule, reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    match arguments.seed {
        Some(seed) => run_seed(seed, &arguments),
        None => search(&arguments),
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        seeds: 200,
        from: 1,
        jobs: 2,
        ..Arguments::default()
    };
    let mut arguments = arguments.filter(|argument| !argument.is_empty());
    while let Some(name) = arguments.next() {
        if name == "--trace" {
            parsed.options.trace = true;
            continue;
        }
        if name == "--actions" {
            parsed.options.actions = true;
            continue;
        }
        if name == "--training" {
            parsed.training = Some(TrainingOptions::default());
            continue;
        }
        if name == "--weights" {
            parsed.weights = Some(WeightsOptions::default());
            continue;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} wants a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name} wants a number, not {value}"))
        };
        match name.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--from" => parsed.from = number()?,
            "--jobs" => parsed.jobs = number()?.max(1) as usize,
            "--seed" => parsed.seed = Some(number()?),
            "--programs" => parsed.options.programs_max = Some(number()? as usize),
            "--faults" => parsed.options.faults_max = Some(number()? as usize),
            "--without" => {
                for kind in value.split(',') {
                    let kind = FaultKind::from_name(kind)
                        .ok_or_else(|| format!("there is no fault {kind}"))?;
                    parsed.options.without.push(kind);
                }
            }
            "--inject" => inject(&mut parsed, &value)?,
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(parsed)
}

/// Sets the injected bug. Those of training runs and of weight updates have names of their own.
fn inject(parsed: &mut Arguments, name: &str) -> Result<(), String> {
    let is_known = if let Some(training) = &mut parsed.training {
        training.bug = TrainingBug::from_name(name);
        training.bug.is_some()
    } else if let Some(weights) = &mut parsed.weights {
        weights.bug = WeightsBug::from_name(name);
        weights.bug.is_some()
    } else {
        parsed.options.injected_bug = InjectedBug::from_name(name);
        parsed.options.injected_bug.is_some()
    };
    is_known
        .then_some(())
        .ok_or_else(|| format!("there is no injected bug {name}"))
}

/// Runs the simulation of one seed.
fn run_seed(seed: u64, arguments: &Arguments) -> ExitCode {
    let outcome = arguments.explore(seed);
    for line in &outcome.trace {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} programs, {} faults planned, {} events in {:.1} virtual s, trace {:016x}",
        outcome.programs,
        outcome.faults_planned,
        outcome.events,
        outcome.lasted_us as f64 / 1e6,
        outcome.trace_hash
    );
    println!("injected: {}", listed(&outcome.faults));
    println!("ended:    {}", listed(&outcome.ends));
    match &outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("broken: {}: {}", violation.rule, violation.what);
            ExitCode::FAILURE
        }
    }
}

/// Runs the simulations of many seeds.
fn search(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(arguments.from);
    let end = arguments.from + arguments.seeds;
    let found: Mutex<BTreeMap<u64, Outcome>> = Mutex::default();
    let sums: Mutex<(EventCounts, EventCounts, u64, u64, f64)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || found.lock().expect("no panics here").len() >= FAILURES_MAX {
                        return;
                    }
                    let outcome = arguments.explore(seed);
                    let mut sums = sums.lock().expect("no panics here");
                    sums.0.add(&outcome.faults);
                    sums.1.add(&outcome.ends);
                    sums.2 += outcome.events;
                    sums.3 += 1;
                    sums.4 += outcome.lasted_us as f64 / 3.6e9;
                    let mut found = found.lock().expect("no panics here");
                    if outcome.violation.is_some() {
                        found.insert(seed, outcome);
                    }
                    if sums.3.is_multiple_of(SEEDS_TOLD) {
                        let (run, broken) = (sums.3, found.len());
                        let (all, from) = (arguments.seeds, arguments.from);
                        eprintln!("{run} of {all} seeds from {from}, {broken} broke a rule");
                    }
                }
            });
        }
    });
    let (faults, ends, events, seeds, hours) = sums.into_inner().expect("no panics here");
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {seconds:.1} s ({:.1}/s), {events} events ({:.0}/s), {hours:.0} virtual hours",
        seeds as f64 / seconds,
        events as f64 / seconds
    );
    println!("injected: {}", listed(&faults));
    println!("ended:    {}", listed(&ends));
    let found = found.into_inner().expect("no panics here");
    for outcome in found.values() {
        report(outcome, arguments);
    }
    if found.is_empty() {
        println!("no rule was broken");
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn report(outcome: &Outcome, arguments: &Arguments) {
    let (seed, options) = (outcome.seed, &arguments.options);
    if let Some(violation) = &outcome.violation {
        println!(
            "\nseed {seed} breaks {}: {}",
            violation.rule, violation.what
        );
    }
    if let Some(flags) = arguments.other_flags() {
        println!("  again: make dst SEED={seed} TRACE=1 DST_FLAGS='{flags}'");
        return;
    }
    println!("  again: make dst SEED={seed} TRACE=1{}", flags(options));
    let Some(shrunk) = shrink(seed, options) else {
        return;
    };
    let (programs, faults) = (shrunk.outcome.programs, shrunk.outcome.faults_planned);
    println!(
        "  smaller ({} tried): {programs} programs, {faults} faults, {} events",
        shrunk.tries, shrunk.outcome.events
    );
    if let Some(violation) = &shrunk.outcome.violation {
        println!("  it breaks {}: {}", violation.rule, violation.what);
    }
    println!(
        "  again: make dst SEED={seed} TRACE=1{}",
        flags(&shrunk.options)
    );
    let traced = Options {
        trace: true,
        ..shrunk.options
    };
    let trace = explore(seed, &traced).trace;
    for line in trace.iter().skip(trace.len().saturating_sub(TRACE_LINES)) {
        let shown: String = line.chars().take(400).collect();
        println!("    {shown}");
    }
}

/// The options in the syntax of `make dst`.
fn flags(options: &Options) -> String {
    let names: Vec<&str> = options.without.iter().map(|kind| kind.name()).collect();
    let flags = [
        options
            .programs_max
            .map(|most| format!("--programs {most}")),
        options.faults_max.map(|most| format!("--faults {most}")),
        (!names.is_empty()).then(|| format!("--without {}", names.join(","))),
        options
            .injected_bug
            .map(|kind| format!("--inject {}", kind.name())),
        options.actions.then(|| "--actions".into()),
    ];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    if flags.is_empty() {
        return String::new();
    }
    format!(" DST_FLAGS='{}'", flags.join(" "))
}

fn listed(counts: &EventCounts) -> String {
    let entries = counts
        .0
        .iter()
        .map(|(name, times)| format!("{name} {times}"));
    entries.collect::<Vec<_>>().join(", ")
}
