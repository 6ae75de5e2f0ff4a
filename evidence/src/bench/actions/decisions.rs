//! What one decision of `tangram-allocation` takes: as a metered component, and linked in.

use super::super::BenchError;
use super::super::figures::{Figure, Report, Target};
use super::super::policy::{Comparison, GuestFolder, arrangement, load};
use super::queue::Queue;
use std::time::Instant;
use tangram_allocation::TangramAllocation;
use treadle_plugin::harness::{Actions, draw};
use treadle_plugin::random::SplitMix64;
use treadle_policy_runtime::{Limits, PolicyEngine};
use treadle_report::latencies::Latencies;

const POLICY: &str = "tangram-allocation";
/// Units of the pool: cores of a node, or devices of 32 nodes.
pub(super) const UNITS: u32 = 256;
/// Actions in the queue.
pub(super) const QUEUED: usize = 1_500;
/// Questions of a kind, each in another state of the pool.
const QUESTIONS: usize = 200;
/// Times that each is asked; the middle one counts, so that what else the machine does does not.
const REPEATS: usize = 11;
/// Actions that end, and as many that come, while the core is measured.
const ENDS: usize = 2_000;

/// A kind of question.
struct Kind {
    name: &'static str,
    config: &'static str,
    chunked: bool,
    /// What each action can do with where the whole queue is asked about; the core's own questions
    /// if there is nothing.
    options: &'static [u32],
}

/// Each number of cores up to 32, as tests can use.
pub(super) const CORES: [u32; 32] = {
    let mut cores = [0; 32];
    let mut index = 0;
    while index < 32 {
        cores[index] = index as u32 + 1;
        index += 1;
    }
    cores
};

const KINDS: [Kind; 6] = [
    Kind {
        name: "cores",
        config: "{}",
        chunked: false,
        options: &[],
    },
    Kind {
        name: "cores_paper",
        config: r#"{"share_percent": 0}"#,
        chunked: false,
        options: &[],
    },
    Kind {
        name: "devices",
        config: "{}",
        chunked: true,
        options: &[],
    },
    Kind {
        name: "cores_all",
        config: "{}",
        chunked: false,
        options: &[1, 2, 4, 8, 16],
    },
    Kind {
        name: "cores_all_paper",
        config: r#"{"share_percent": 0}"#,
        chunked: false,
        options: &[1, 2, 4, 8, 16],
    },
    Kind {
        name: "devices_all",
        config: "{}",
        chunked: true,
        options: &[1, 2, 4, 8],
    },
];

/// Measures all kinds.
pub(super) fn measure(
    guests: &GuestFolder,
    quick: bool,
    report: &mut Report,
) -> Result<(), BenchError> {
    let engine = PolicyEngine::new(Limits::default()).map_err(|error| failed(&error))?;
    let module = load(&engine, guests, POLICY)?;
    let size = if quick { 50 } else { 1 };
    for kind in &KINDS {
        let mut questions = if kind.options.is_empty() {
            let queue = Queue::new(kind.config, kind.chunked);
            let (times, questions) = queue.map_err(|error| failed(&error))?.run(ENDS / size);
            percentiles(report, &format!("core.us.{}", kind.name), times);
            questions
        } else {
            let one = |seed| kind.draw(&mut SplitMix64::new(seed));
            (0..QUESTIONS as u64).map(one).collect()
        };
        questions.truncate(QUESTIONS / size);
        let (mut sandboxed, mut native) = (Latencies::default(), Latencies::default());
        for question in &questions {
            let mut comparison = arrangement::<TangramAllocation>(&module, kind.config, question)?;
            time(&mut comparison, &mut sandboxed, &mut native)?;
        }
        percentiles(
            report,
            &format!("decision.us.metered.{}", kind.name),
            sandboxed,
        );
        percentiles(report, &format!("decision.us.native.{}", kind.name), native);
    }
    report.note(
        "decision is one call of tangram-allocation with a pool of 256 units and 1,500 actions in \
         the queue, as a metered component and linked in: questions that the core asked in that \
         state, and those of kinds with all, which have the whole queue; paper is Algorithm 1 as \
         printed. core is the processor time of the core for an action that ends and one that is \
         submitted in that state, without the policy.",
    );
    Ok(())
}

fn percentiles(report: &mut Report, name: &str, mut times: Latencies) {
    for (percentile, share) in [("p50", 0.5), ("p99", 0.99)] {
        let us = times.percentile(share).as_secs_f64() * 1e6;
        let figure = Figure::new(format!("{name}.{percentile}"), us, "us");
        report.push(if percentile == "p99" && name.contains("metered") {
            figure.target(Target::AtMost(1_000.0))
        } else {
            figure
        });
    }
}

fn failed(cause: &dyn std::fmt::Display) -> BenchError {
    BenchError::Comparison {
        policy: POLICY.to_owned(),
        cause: cause.to_string(),
    }
}

fn time(
    comparison: &mut Comparison,
    sandboxed: &mut Latencies,
    native: &mut Latencies,
) -> Result<(), BenchError> {
    let (mut ours, mut theirs) = (Latencies::default(), Latencies::default());
    for _ in 0..REPEATS {
        let began = Instant::now();
        (comparison.sandboxed)().map_err(|fault| failed(&fault))?;
        ours.push(began.elapsed());
        let began = Instant::now();
        (comparison.native)();
        theirs.push(began.elapsed());
    }
    sandboxed.push(ours.percentile(0.5));
    native.push(theirs.percentile(0.5));
    Ok(())
}

impl Kind {
    /// A pool that is partly free, and the queue for it.
    fn draw(&self, random: &mut SplitMix64) -> Actions {
        let mut actions = Actions {
            pool: vec![0; QUEUED],
            waited_us: (0..QUEUED as u64).rev().map(|row| row * 10_000).collect(),
            option_start: vec![0],
            chunked: vec![u8::from(self.chunked)],
            ..Actions::default()
        };
        self.draw_pool(random, &mut actions);
        for _ in 0..QUEUED {
            self.draw_options(random, &mut actions);
        }
        actions.mark_candidates(QUEUED);
        actions
    }

    /// Actions run in the pool until some part of it is taken, from none to all but one unit.
    fn draw_pool(&self, random: &mut SplitMix64, actions: &mut Actions) {
        let busy = draw::below(random, u64::from(UNITS)) as u32;
        let mut nodes = [8_u32; UNITS as usize / 8];
        let mut free = UNITS;
        while UNITS - free < busy {
            let units = 1 << draw::below(random, 4);
            let node = draw::below(random, nodes.len() as u64) as usize;
            if nodes[node] < units {
                continue;
            }
            nodes[node] -= units;
            free -= units;
            actions.running_pool.push(0);
            actions.running_units.push(units);
            actions
                .running_left_us
                .push(draw::below(random, 60_000_000));
        }
        actions.free_units = vec![free];
        actions.free_chunks = vec![0; 4];
        if self.chunked {
            for left in nodes {
                for level in 0..4 {
                    actions.free_chunks[level] += left >> level & 1;
                }
            }
        }
    }

    /// Most have all options, as rewards have; one in four has the least, as commands have.
    fn draw_options(&self, random: &mut SplitMix64, actions: &mut Actions) {
        let alone_us = 1_000.0 + draw::below(random, 120_000_000) as f64;
        let parallel = 0.8 + draw::below(random, 190) as f64 / 1_000.0;
        let load_us = draw::below(random, 2) as f64 * 800_000.0;
        let options = match draw::below(random, 4) {
            0 => &self.options[..1],
            _ => self.options,
        };
        for units in options {
            let time_us = alone_us * (1.0 - parallel + parallel / f64::from(*units));
            actions.option_units.push(*units);
            actions.option_us.push(time_us);
            let load_us = if self.chunked {
                load_us / f64::from(*units)
            } else {
                0.0
            };
            actions.option_load_us.push(load_us);
        }
        actions.option_start.push(actions.option_units.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_have_the_pool_and_are_within_bounds() {
        for kind in KINDS.iter().filter(|kind| !kind.options.is_empty()) {
            for seed in 0..20 {
                let actions = kind.draw(&mut SplitMix64::new(seed));
                let running: u32 = actions.running_units.iter().sum();
                assert_eq!(running + actions.free_units[0], UNITS);
                actions.columns().check(0).unwrap();
                assert!(actions.option_units.len() <= Limits::default().output_rows_max);
                let candidates = actions.candidate.iter().filter(|row| **row != 0);
                assert!((1..=UNITS as usize).contains(&candidates.count()));
            }
        }
    }
}
