//! Uploads that are accepted, and why others are not.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use treadle_policy_runtime::{InstanceOptions, Limits, LoadError, PolicyEngine, UploadRefusal};

use crate::fixture::{engine, policy, policy_of};

fn refusal(upload: &[u8]) -> UploadRefusal {
    let refusal = engine().inspect(upload).unwrap_err();
    for text in [&refusal.what, &refusal.place, &refusal.remedy] {
        assert!(!text.is_empty(), "{refusal:?}");
    }
    refusal
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the fixture is valid")
}

#[test]
fn a_module_with_wit_is_accepted_with_a_remark() {
    let inspection = engine().inspect(&policy("")).unwrap();
    assert_eq!(inspection.world, "eviction");
    let said = &inspection.description;
    assert_eq!(
        (said.name.as_str(), said.version.as_str()),
        ("fixture", "1.0.0")
    );
    assert_eq!(inspection.digest.len(), 64);
    assert!(
        inspection
            .exports
            .contains(&"treadle:policy/plugin@1.0.0".to_owned())
    );
    assert_eq!(inspection.smoke.len(), 9);
    assert!(serde_json::to_value(&inspection).unwrap()["smoke"][0]["best_ns"].is_u64());
}

#[test]
fn the_component_itself_is_accepted_too() {
    let engine = engine();
    let component = engine.inspect(&policy("")).unwrap().component;
    let again = engine.inspect(&component).unwrap();
    assert_eq!(again.component, component);
}

#[test]
fn what_is_no_wasm_is_refused() {
    assert_eq!(refusal(b"").code, "empty");
    assert_eq!(refusal(b"PK\x03\x04 an archive").code, "not-wasm");
    assert_eq!(refusal(b"\0asm\xff\xff\xff\xff").code, "invalid-wasm");
    assert_eq!(refusal(&[0, b'a', b's', b'm', 1]).code, "truncated");
}

#[test]
fn a_component_whose_parser_panics_is_refused() {
    let function = r#"(component
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (export "treadle:policy/plugin@1.0.0" (func $f)))"#;
    assert_eq!(refusal(&wat(function)).code, "not-a-component");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let engine = engine();
    let whole = policy("");
    for cut in (8..whole.len()).step_by(97) {
        assert!(engine.inspect(&whole[..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(refusal(&whole[..whole.len() / 2]).code, "truncated");
}

#[test]
fn a_damaged_file_is_refused_or_runs_but_never_panics() {
    let engine = PolicyEngine::new(Limits {
        background_deadline_ms: 10,
        ..Limits::default()
    })
    .unwrap();
    let module = policy("");
    let component = self::engine().inspect(&module).unwrap().component;
    let damages = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(150));
    let outcome = runner.run(&(any::<bool>(), damages), |(is_module, damages)| {
        let mut upload = if is_module { &module } else { &component }.clone();
        for (at, byte) in damages {
            let at = at.index(upload.len());
            upload[at] = byte;
        }
        if let Err(refusal) = engine.inspect(&upload) {
            prop_assert!(!refusal.remedy.is_empty());
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn size_limits_hold() {
    let engine = PolicyEngine::new(Limits {
        upload_bytes_max: 100,
        ..Limits::default()
    })
    .unwrap();
    assert_eq!(engine.inspect(&policy("")).unwrap_err().code, "too-large");
}

#[test]
fn wasi_is_refused_with_the_remedy() {
    let module = wat(r#"(module (import "wasi_snapshot_preview1" "fd_write"
             (func (param i32 i32 i32 i32) (result i32))))"#);
    let component = wat(r#"(component (import "wasi:cli/stdout@0.2.0" (instance)))"#);
    for upload in [module, component] {
        let refusal = refusal(&upload);
        assert_eq!(refusal.code, "forbidden-import");
        assert!(refusal.what.contains("wasi"), "{refusal}");
        assert!(refusal.remedy.contains("--stub-wasi"), "{refusal}");
    }
    let other = refusal(&wat(r#"(module (import "env" "abort" (func)))"#));
    assert_eq!(other.code, "forbidden-import");
    assert!(other.what.contains("env"), "{other}");
}

#[test]
fn what_targets_no_world_is_refused() {
    assert_eq!(refusal(&wat("(module)")).code, "no-wit");
    let refusal = refusal(&wat("(component)"));
    assert_eq!(refusal.code, "wrong-world");
    assert!(refusal.remedy.contains("eviction"), "{refusal}");
}

#[test]
fn another_shape_of_the_world_is_refused() {
    let upload = policy_of("", |wit| {
        wit.replace(
            "result<list<f64>, policy-error>",
            "result<list<u64>, policy-error>",
        )
    });
    let refusal = refusal(&upload);
    assert_eq!(refusal.code, "world-mismatch");
    assert!(refusal.what.contains("eviction"), "{refusal}");
}

#[test]
fn packages_that_use_each_other_are_refused_before_they_are_ordered() {
    // The WIT decoder recurses forever on such a cycle.
    let mut upload = policy("");
    let name = b"treadle:policy/host@1.0.0";
    let last = upload.windows(name.len()).rposition(|at| at == name);
    upload[last.expect("the embedded WIT names it") + 3] = b't';
    let refusal = refusal(&upload);
    assert_eq!(refusal.code, "foreign-package");
    assert!(refusal.what.contains("tretdle:policy/host"), "{refusal}");
}

#[test]
fn the_trial_run_finds_bad_answers() {
    let wat = |weigh: &str| {
        // The peculiarity at one row, which the trial run asks for.
        format!("(nop))) (if (i32.eq (local.get 1) (i32.const 1)) (then {weigh}")
    };
    for (weigh, code) in [
        ("(unreachable)", "smoke-trap"),
        ("(loop $forever (br $forever))", "smoke-timeout"),
        ("(return (call $error))", "smoke-policy-error"),
        (
            "(return (call $answer (i32.const 1) (f64.const 2)))",
            "smoke-bad-output",
        ),
    ] {
        let refusal = refusal(&policy(&wat(weigh)));
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.place.contains("weigh"), "{refusal}");
    }
}

#[test]
fn loading_what_was_never_inspected_is_an_error() {
    assert!(matches!(
        engine().load(b"\0asm", &InstanceOptions::default()),
        Err(LoadError::Compile(_))
    ));
    // A component, but of no world.
    assert!(matches!(
        engine().load(&wat("(component)"), &InstanceOptions::default()),
        Err(LoadError::Component(_))
    ));
}
