//! Accepted policies whose calls misbehave once they are configured to.

use treadle_hostile::{ARMED, ARMED_FROM_ROWS, HostilePolicy, Outcome, POLICIES, build};
use treadle_policy_runtime::{
    AssignColumns, CallContext, InstanceOptions, Limits, NO_CLASS, PolicyEngine, PolicyFault,
    PolicyInstance, QueueColumns, WorkerColumns,
};

use crate::process::memory_peak_bytes;

/// Number of misbehaving calls: enough for leaks to show.
const BAD_CALLS: usize = 40;
const MIB: usize = 1 << 20;

/// Bounds as a daemon has them, save for a longer deadline: a crowded machine must
/// stop no call that is fine.
fn limits() -> Limits {
    Limits {
        memory_bytes_max: 16 * MIB,
        hot_deadline_ms: 500,
        log_lines_per_s: 20,
        ..Limits::default()
    }
}

fn start(engine: &PolicyEngine, name: &str) -> PolicyInstance {
    let inspection = engine
        .inspect(&build(name))
        .unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    engine
        .load(&inspection.component, &InstanceOptions::configured(ARMED))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Sends a call with `rows` rows; returns the number of answers.
fn ask(instance: &mut PolicyInstance, rows: usize) -> Result<usize, PolicyFault> {
    let (counts, numbers) = (vec![1; rows], vec![1_000; rows]);
    let unknown = vec![-1.0; rows];
    let context = CallContext::at(1_000);
    if let Some(priority) = instance.as_priority_mut() {
        let columns = QueueColumns {
            tokens: &numbers,
            output_tokens: &numbers,
            steps: &counts,
            waited_ms: &numbers,
            remaining_tokens: &unknown,
            remaining_tool_s: &unknown,
            extra: &[],
        };
        return priority
            .score(&context, &columns)
            .map(|scores| scores.len());
    }
    let placement = instance.as_placement_mut().expect("priority or placement");
    let columns = AssignColumns {
        group: &numbers,
        tokens: &numbers,
        remaining_tokens: &unknown,
        last_worker: &vec![0; rows],
        growth: &unknown,
        tool_us: &unknown,
        preferred_class: &vec![NO_CLASS; rows],
        workers: WorkerColumns {
            capacity_tokens: &[100_000, 100_000],
            used_tokens: &[0, 50_000],
            running: &[0, 1],
            token_us: &[-1.0; 2],
            step_us: &[-1.0; 2],
            prefill_us: &[-1.0; 2],
            hardware_class: &[0, NO_CLASS],
            lockstep_group: &[0, 0],
        },
        extra: &[],
    };
    placement
        .assign(&context, &columns)
        .map(|workers| workers.len())
}

/// The difference between the expected and the actual outcome of a policy.
fn check(engine: &PolicyEngine, policy: &HostilePolicy) -> Result<(), String> {
    let mut instance = start(engine, policy.name);
    let mut causes = Vec::new();
    for call in 0..BAD_CALLS {
        if ask(&mut instance, 2) != Ok(2) {
            return Err(format!("no good answer before call {call}"));
        }
        match ask(&mut instance, ARMED_FROM_ROWS + call) {
            Ok(rows) if rows == ARMED_FROM_ROWS + call => {}
            Ok(rows) => return Err(format!("{rows} rows in call {call}")),
            Err(fault) => causes.push(fault.cause()),
        }
        // A policy that uses its whole deadline needs only a few calls.
        if causes.iter().filter(|cause| **cause == "timeout").count() > 2 {
            break;
        }
    }
    if ask(&mut instance, 1) != Ok(1) {
        return Err("no good answer afterwards".to_owned());
    }
    let as_expected = match policy.comes_of_it {
        Outcome::Fault(expected) => {
            !causes.is_empty() && causes.iter().all(|cause| expected.contains(cause))
        }
        Outcome::Answered => causes.is_empty(),
        Outcome::Refused(_) => false,
    };
    if !as_expected {
        return Err(format!("{causes:?}, expected {:?}", policy.comes_of_it));
    }
    within_bounds(&instance)
}

fn within_bounds(instance: &PolicyInstance) -> Result<(), String> {
    let limits = limits();
    let lines = instance.log_lines();
    // Bursts of a few restarts, plus those that the rate allows on a slow machine.
    if lines.len() > limits.log_lines_kept_max {
        return Err(format!("{} log lines are kept", lines.len()));
    }
    for line in lines {
        if line.message.len() > limits.log_line_bytes_max + 64 {
            return Err(format!("a log line has {} bytes", line.message.len()));
        }
    }
    if instance.memory_bytes() > limits.memory_bytes_max {
        return Err(format!("{} bytes of memory", instance.memory_bytes()));
    }
    if instance.state().bytes() > limits.state_bytes_max {
        return Err(format!("{} bytes of state", instance.state().bytes()));
    }
    Ok(())
}

#[test]
fn each_comes_to_what_was_expected_and_good_calls_go_on() {
    let engine = PolicyEngine::new(limits()).unwrap();
    let before = memory_peak_bytes();
    let accepted = POLICIES
        .iter()
        .filter(|policy| !matches!(policy.comes_of_it, Outcome::Refused(_)));
    let wrong: Vec<String> = accepted
        .filter_map(|policy| {
            let judged = check(&engine, policy);
            judged.err().map(|what| format!("{}: {what}", policy.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // One instance at a time, its calls' data, and the compiler in between.
    let grown = memory_peak_bytes() - before;
    assert!(grown < 192 * MIB, "grown by {grown} bytes");
}

#[test]
fn a_flood_of_log_lines_is_thinned_out() {
    let engine = PolicyEngine::new(limits()).unwrap();
    let mut instance = start(&engine, "log-flood");
    let fault = ask(&mut instance, ARMED_FROM_ROWS).unwrap_err();
    assert_eq!(fault.cause(), "timeout");
    let lines = instance.log_lines().len();
    // One burst, plus those that the rate allows meanwhile on a slow machine.
    assert!((20..100).contains(&lines), "{lines} lines");
}

#[test]
fn state_that_grows_meets_its_bound() {
    let engine = PolicyEngine::new(limits()).unwrap();
    let mut instance = start(&engine, "state-grows");
    for _ in 0..100 {
        assert_eq!(ask(&mut instance, ARMED_FROM_ROWS), Ok(ARMED_FROM_ROWS));
    }
    let (bytes, max) = (instance.state().bytes(), limits().state_bytes_max);
    assert!(bytes > max / 2 && bytes <= max, "{bytes} bytes");
}

#[test]
fn memory_that_grows_makes_room_by_a_restart() {
    let engine = PolicyEngine::new(limits()).unwrap();
    let mut instance = start(&engine, "memory-grows");
    for _ in 0..20 {
        assert_eq!(ask(&mut instance, ARMED_FROM_ROWS), Ok(ARMED_FROM_ROWS));
        assert!(instance.memory_bytes() <= limits().memory_bytes_max);
    }
    assert!(instance.restarts() > 0);
}

#[test]
fn a_deterministic_engine_ends_what_does_not_end_by_fuel() {
    let engine = PolicyEngine::deterministic(limits(), 1_000_000).unwrap();
    for name in [
        "endless-loop",
        "host-call-storm",
        "deep-recursion",
        "nan-scores",
    ] {
        let mut instance = start(&engine, name);
        let fault = ask(&mut instance, ARMED_FROM_ROWS).unwrap_err();
        let expected = match name {
            "deep-recursion" => "stack",
            "nan-scores" => "bad_output",
            _ => "fuel",
        };
        assert_eq!(fault.cause(), expected, "{name}");
        assert_eq!(ask(&mut instance, 2), Ok(2), "{name}");
    }
}
