//! Compiling in this process, with and without a store; children are tested with the
//! hostile policies, which have a program to run as one.

use super::*;

const SETTINGS: Settings = Settings {
    stack_bytes_max: 512 << 10,
    is_deterministic: false,
};

fn engine() -> Engine {
    Engine::new(&SETTINGS.config()).unwrap()
}

const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

#[test]
fn what_was_compiled_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = || ArtifactStore::open(folder.path(), 1 << 20).unwrap();
    let compiler = Compiler::in_process().with_artifacts(artifacts());
    assert!(compiler.component(&engine(), SETTINGS, EMPTY).is_ok());
    assert!(compiler.artifact_bytes() > 0);
    // A compiler that cannot compile finds the stored policy all the same.
    let command = CompilerCommand {
        program: "/nonexistent".into(),
        args: Vec::new(),
    };
    let cannot = Compiler::in_children(command, CompilerLimits::default()).unwrap();
    let fault = cannot.component(&engine(), SETTINGS, EMPTY).err().unwrap();
    assert_eq!(fault.code(), "compile-unavailable");
    let finds = cannot.with_artifacts(artifacts());
    assert!(finds.component(&engine(), SETTINGS, EMPTY).is_ok());
}

#[test]
fn a_failed_compilation_has_a_reason_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = ArtifactStore::open(folder.path(), 1 << 20).unwrap();
    let compiler = Compiler::in_process().with_artifacts(artifacts);
    let fault = compiler
        .component(&engine(), SETTINGS, b"\0asm")
        .err()
        .unwrap();
    assert_eq!(fault.code(), "compile-failed");
    assert_eq!(compiler.artifact_bytes(), 0);
}

#[test]
fn a_child_of_another_build_is_found_out() {
    let key = ArtifactKey::of(&engine(), EMPTY);
    let mut order = Order::new(&CompilerLimits::default(), SETTINGS, &key);
    let line = order.line();
    assert!((line.len() as u64) < order::LINE_BYTES_MAX);
    assert!(child::obey(&order, EMPTY).is_ok());
    // Settings that the order does not contain, for example of another version.
    order.engine = "another".to_owned();
    let (code, _) = child::obey(&order, EMPTY).unwrap_err();
    assert_eq!(code, child::EXIT_UNAVAILABLE);
}

#[test]
fn a_limit_that_is_too_small_is_named() {
    let limits = CompilerLimits {
        memory_bytes_max: 1,
        ..CompilerLimits::default()
    };
    let command = CompilerCommand {
        program: "/bin/true".into(),
        args: Vec::new(),
    };
    let error = Compiler::in_children(command, limits).err().unwrap();
    assert!(error.to_string().contains("memory_bytes_max"), "{error}");
}
