//! Tools that need their own process: the compiler's child, and a fuzzer.
//!
//! ```text
//! hostile compile                   compiles what standard input holds
//! hostile fuzz SECONDS [SEED]       damages uploads and looks for a panic
//! hostile messages SECONDS [SEED] [TARGET]
//!                                   damages messages and looks for what must not be, for as long
//!                                   with each target
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use treadle_hostile::messages::{TARGETS, Target};
use treadle_hostile::mutation::{Draws, mutate, mutate_message};
use treadle_hostile::{POLICIES, build};
use treadle_policy_runtime::{Limits, PolicyEngine, compiler_main};

const USAGE: &str = "usage: hostile compile | hostile fuzz SECONDS [SEED] \
| hostile messages SECONDS [SEED] [TARGET]";
/// Time limit for a message: all checks are linear in its length.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// One in this many damaged uploads that are still valid is also compiled and run.
const INSPECTED_ONE_IN: u64 = 8;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match args.as_slice() {
        ["compile"] => compiler_main(std::io::stdin().lock(), std::io::stdout().lock()),
        ["fuzz", seconds] => number(seconds).map_or_else(usage, |seconds| fuzz(seconds, 1)),
        ["fuzz", seconds, seed] => match (number(seconds), number(seed)) {
            (Some(seconds), Some(seed)) => fuzz(seconds, seed),
            _ => usage(),
        },
        ["messages", seconds, rest @ ..] if rest.len() <= 2 => {
            let seed = rest.first().map_or(Some(1), |seed| number(seed));
            let targets = rest.get(1).map_or(Some(TARGETS), |name| {
                Target::of(name).map(std::slice::from_ref)
            });
            match (number(seconds), seed, targets) {
                (Some(seconds), Some(seed), Some(targets)) => {
                    let each = (seconds / targets.len() as u64).max(1);
                    let fuzzed = |target| fuzz_messages(target, each, seed);
                    targets.iter().find_map(fuzzed).unwrap_or(ExitCode::SUCCESS)
                }
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// A panic ends the run, with the seed and the number of the upload on standard error.
fn fuzz(seconds: u64, seed: u64) -> ExitCode {
    let limits = Limits {
        background_deadline_ms: 20,
        ..Limits::default()
    };
    let engine = match PolicyEngine::new(limits) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let corpus = corpus(&engine);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut draws = Draws::new(seed);
    let (mut tried, mut in_order, mut accepted) = (0_u64, 0_u64, 0_u64);
    while Instant::now() < until {
        tried += 1;
        let upload = mutate(&corpus, &mut draws);
        let is_inspected = in_order.is_multiple_of(INSPECTED_ONE_IN);
        let looked_at = catch_unwind(AssertUnwindSafe(|| {
            let is_in_order = engine.examine(&upload).is_ok();
            let is_accepted = is_in_order && is_inspected && engine.inspect(&upload).is_ok();
            (is_in_order, is_accepted)
        }));
        let Ok((is_in_order, is_accepted)) = looked_at else {
            eprintln!("upload {tried} of seed {seed} makes it panic");
            return ExitCode::FAILURE;
        };
        in_order += u64::from(is_in_order);
        accepted += u64::from(is_accepted);
    }
    println!("{tried} damaged uploads, {in_order} in order all the same, {accepted} accepted");
    ExitCode::SUCCESS
}

/// Returns the failure, if any, after adding the message to the corpus.
fn fuzz_messages(target: &Target, seconds: u64, seed: u64) -> Option<ExitCode> {
    let corpus: Vec<Vec<u8>> = match target.corpus() {
        Ok(corpus) => corpus.into_iter().map(|(_, message)| message).collect(),
        Err(error) => {
            eprintln!("{}: {error}", target.folder().display());
            return Some(ExitCode::FAILURE);
        }
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut draws = Draws::new(seed);
    let mut tried = 0_u64;
    while Instant::now() < until {
        tried += 1;
        let message = mutate_message(&corpus, target.words, &mut draws);
        let before = processor_time();
        let checked = catch_unwind(AssertUnwindSafe(|| (target.check)(&message)));
        let took = processor_time().saturating_sub(before);
        let wrong = match checked {
            Err(_) => "it panics".to_owned(),
            Ok(Err(wrong)) => wrong,
            Ok(Ok(())) if took > MESSAGE_TIME_MAX => format!("it takes {took:?}"),
            Ok(Ok(())) => continue,
        };
        let file = target.folder().join(format!("found-{seed}-{tried}"));
        let kept = std::fs::write(&file, &message);
        let name = target.name;
        eprintln!("{name}: message {tried} of seed {seed}: {wrong}");
        match kept {
            Ok(()) => eprintln!("it is kept as {}", file.display()),
            Err(error) => eprintln!("{}: {error}", file.display()),
        }
        return Some(ExitCode::FAILURE);
    }
    println!("{}: {tried} damaged messages", target.name);
    None
}

/// What this thread has used so far: unlike time, it is the same on a machine that does other work.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        used.tv_sec.unsigned_abs(),
        used.tv_nsec.unsigned_abs() as u32,
    )
}

/// Hostile and good policies, as modules and as components.
fn corpus(engine: &PolicyEngine) -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = POLICIES
        .iter()
        .filter(|policy| policy.name != "compile-bomb")
        .map(|policy| build(policy.name))
        .filter(|upload| !upload.is_empty())
        .collect();
    for module in corpus.clone() {
        corpus.extend(engine.examine(&module).map(|found| found.component));
    }
    corpus
}
