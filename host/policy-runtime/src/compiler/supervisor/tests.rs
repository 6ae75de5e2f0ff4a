//! Children that misbehave in every way a process can.

use std::ffi::OsString;

use super::*;
use crate::engine::Settings;

const SETTINGS: Settings = Settings {
    stack_bytes_max: 1 << 16,
    is_deterministic: true,
};

fn limits() -> CompilerLimits {
    CompilerLimits {
        wall_s_max: 30,
        artifact_bytes_max: 1 << 16,
        ..CompilerLimits::default()
    }
}

/// A child that runs a script instead of compiling.
fn child(script: &str, limits: &CompilerLimits, component: &[u8]) -> Result<Vec<u8>, CompileFault> {
    let command = CompilerCommand {
        program: "/bin/sh".into(),
        args: ["-c", script].map(OsString::from).to_vec(),
    };
    let order = Order {
        cpu_s_max: 1,
        memory_bytes_max: 1,
        settings: SETTINGS,
        engine: String::new(),
    };
    run(&command, limits, &order, component)
}

fn fault(script: &str) -> CompileFault {
    child(script, &limits(), b"component").unwrap_err()
}

#[test]
fn the_child_gets_the_order_and_the_component() {
    let answer = child("cat", &limits(), b"component").unwrap();
    let (line, component) = answer.split_at(answer.len() - b"component".len());
    assert_eq!(component, b"component");
    let order: Order = serde_json::from_slice(line).unwrap();
    assert_eq!(order.settings, SETTINGS);
}

#[test]
fn the_child_sees_nothing_of_the_surroundings() {
    let answer = child("echo \"$HOME$CARGO_MANIFEST_DIR\"; pwd", &limits(), b"").unwrap();
    assert_eq!(answer, b"\n/\n");
}

#[test]
fn a_child_that_does_not_end_is_ended_and_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    // It neither reads nor answers, and has a child of its own that holds the pipes.
    let script = format!("sleep 600 & echo $! >{}; wait", path.display());
    let limits = CompilerLimits {
        wall_s_max: 1,
        ..limits()
    };
    let component = vec![7; 1 << 20];
    let begin = Instant::now();
    let fault = child(&script, &limits, &component).unwrap_err();
    assert!(matches!(&fault, CompileFault::Timeout { limit } if limit.contains("clock")));
    assert_eq!(fault.code(), "compile-timeout");
    assert!(begin.elapsed() < Duration::from_secs(20));
    let started: i32 = std::fs::read_to_string(path)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let started = Pid::from_raw(started).unwrap();
    // Killed with the group, as soon as the system gets to it.
    let is_gone = || {
        let path = format!("/proc/{}/stat", started.as_raw_nonzero());
        std::fs::read_to_string(path).map_or(true, |state| state.contains(") Z "))
    };
    while !is_gone() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "it is still there"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_child_that_closes_its_output_and_lingers_is_ended() {
    let limits = CompilerLimits {
        wall_s_max: 1,
        ..limits()
    };
    let fault = child("exec sleep 600 >&- 2>&-", &limits, b"").unwrap_err();
    assert_eq!(fault.code(), "compile-timeout");
}

#[test]
fn a_flood_is_cut() {
    let fault = fault("exec cat /dev/zero");
    assert_eq!(fault, CompileFault::ArtifactTooLarge { max: 1 << 16 });
    let words = child("head -c 1000000 /dev/zero >&2; exit 4", &limits(), b"").unwrap_err();
    let CompileFault::Failed { detail } = words else {
        panic!("{words:?}")
    };
    assert!(detail.len() as u64 <= WORDS_BYTES_MAX);
}

#[test]
fn the_exit_of_a_child_gives_the_cause() {
    for (script, code) in [
        ("echo says why >&2; exit 4", "compile-failed"),
        ("echo says why >&2; exit 3", "compile-unavailable"),
        ("exit 7", "compile-unavailable"),
        ("echo \"thread panicked\" >&2; exit 101", "compile-failed"),
        ("kill -XCPU $$", "compile-timeout"),
        ("kill -KILL $$", "compile-memory"),
        ("kill -SEGV $$", "compile-failed"),
        (
            "echo memory allocation of 9 bytes failed >&2; kill -ABRT $$",
            "compile-memory",
        ),
    ] {
        let fault = fault(script);
        assert_eq!(fault.code(), code, "{script}: {fault}");
        let refusal = fault.refusal();
        assert!(!refusal.remedy.is_empty() && !refusal.place.is_empty());
        assert_eq!(
            fault.is_components_fault(),
            code != "compile-unavailable",
            "{script}"
        );
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let command = CompilerCommand {
        program: "/nonexistent/treadle".into(),
        args: Vec::new(),
    };
    let order = Order {
        cpu_s_max: 1,
        memory_bytes_max: 1,
        settings: SETTINGS,
        engine: String::new(),
    };
    let fault = run(&command, &limits(), &order, b"").unwrap_err();
    assert!(
        fault.to_string().contains("/nonexistent/treadle"),
        "{fault}"
    );
}
