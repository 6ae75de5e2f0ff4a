//! Compiling in children: bombs do not go off in this process.

use treadle_hostile::build;
use treadle_policy_runtime::{
    ArtifactStore, Compiler, CompilerCommand, CompilerLimits, InstanceOptions, Limits,
    PolicyEngine, UploadRefusal,
};

use crate::process::{children, compiler, memory_peak_bytes};

fn engine(compiler: Compiler) -> PolicyEngine {
    PolicyEngine::new(Limits::default())
        .unwrap()
        .with_compiler(compiler)
}

fn refusal(limits: CompilerLimits, upload: &[u8]) -> UploadRefusal {
    let before = memory_peak_bytes();
    let refusal = engine(compiler(limits)).inspect(upload).unwrap_err();
    let grown = memory_peak_bytes() - before;
    // Copies of the upload on its way, and its validation.
    assert!(
        grown < (64 << 20) + 16 * upload.len(),
        "grown by {grown} bytes"
    );
    assert_eq!(children(), Vec::<String>::new());
    refusal
}

#[test]
fn a_bomb_is_stopped_by_the_clock() {
    let limits = CompilerLimits {
        wall_s_max: 1,
        ..CompilerLimits::default()
    };
    let refusal = refusal(limits, &build("compile-bomb"));
    assert_eq!(refusal.code, "compile-timeout", "{refusal}");
    assert!(refusal.what.contains("clock"), "{refusal}");
}

#[test]
fn a_bomb_is_stopped_by_its_time_on_a_processor() {
    let limits = CompilerLimits {
        cpu_s_max: 1,
        ..CompilerLimits::default()
    };
    let refusal = refusal(limits, &build("compile-bomb"));
    assert_eq!(refusal.code, "compile-timeout", "{refusal}");
    assert!(refusal.what.contains("processor"), "{refusal}");
}

#[test]
fn a_bomb_is_stopped_by_its_memory() {
    let limits = CompilerLimits {
        memory_bytes_max: 112 << 20,
        ..CompilerLimits::default()
    };
    let refusal = refusal(limits, &build("compile-bomb"));
    assert_eq!(refusal.code, "compile-memory", "{refusal}");
    assert!(refusal.remedy.contains("smaller"), "{refusal}");
}

#[test]
fn large_functions_that_compile_are_accepted() {
    let upload = build("large-function");
    let inspected = engine(compiler(CompilerLimits::default())).inspect(&upload);
    assert!(inspected.is_ok(), "{:?}", inspected.err());
}

#[test]
fn a_deterministic_engine_has_its_own_code() {
    let compiler = compiler(CompilerLimits::default());
    let engine = PolicyEngine::deterministic(Limits::default(), 1_000_000)
        .unwrap()
        .with_compiler(compiler);
    assert!(engine.inspect(&build("tame")).is_ok());
}

#[test]
fn others_are_refused_at_once_while_the_queue_is_full() {
    let limits = CompilerLimits {
        cpu_s_max: 2,
        waiting_max: 0,
        ..CompilerLimits::default()
    };
    let engine = engine(compiler(limits));
    let (bomb, tame) = (build("compile-bomb"), build("tame"));
    std::thread::scope(|scope| {
        let bombed = scope.spawn(|| engine.inspect(&bomb));
        while children().is_empty() && !bombed.is_finished() {
            std::thread::yield_now();
        }
        let refusal = engine.inspect(&tame).unwrap_err();
        assert_eq!(refusal.code, "compile-busy", "{refusal}");
        assert_eq!(bombed.join().unwrap().unwrap_err().code, "compile-timeout");
    });
    assert!(engine.inspect(&tame).is_ok());
}

#[test]
fn a_policy_is_compiled_once_for_all_that_come_after() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = || ArtifactStore::open(folder.path(), 64 << 20).unwrap();
    let tame = build("tame");
    let first = engine(compiler(CompilerLimits::default()).with_artifacts(artifacts()));
    let inspection = first.inspect(&tame).unwrap();
    // A daemon that starts again, and could not compile if it had to.
    let gone = CompilerLimits {
        wall_s_max: 1,
        ..CompilerLimits::default()
    };
    let command = CompilerCommand {
        program: "/nonexistent".into(),
        args: Vec::new(),
    };
    let cannot = Compiler::in_children(command, gone).unwrap();
    let again = engine(cannot.with_artifacts(artifacts()));
    assert!(again.inspect(&tame).is_ok());
    assert!(
        again
            .load(&inspection.component, &InstanceOptions::default())
            .is_ok()
    );
    assert_eq!(
        again.inspect(&build("trap")).unwrap_err().code,
        "compile-unavailable"
    );
}
