//! The same policy, built natively and as a component, gives the same bits.

use std::cell::RefCell;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_plugin::EvictionPolicy;
use treadle_policy_runtime::{
    ActingColumns, ActiveColumns, EvictionModule, LoadError, WaitingColumns,
};

use crate::fixture::engine;

const CONFIGS: [&str; 6] = [
    "{}",
    r#"{"profile": "paper"}"#,
    r#"{"decay": "exponential", "half_life_s": 7.3, "hold_s": 0.5}"#,
    r#"{"decay": "geometric", "base": 1.37, "tick_ms": 250}"#,
    r#"{"restore": "ageing", "ageing_s": 30}"#,
    r#"{"restore": "shortest", "extra": ["turns_left", "cost"]}"#,
];

fn guest(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/guests")
        .join(name);
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make guests`", path.display()))
}

fn module(name: &str) -> EvictionModule {
    let engine = engine();
    let inspection = engine.inspect(&guest(name)).expect("accepted");
    assert_eq!(
        inspection.name,
        name.trim_end_matches(".wasm").replace('_', "-")
    );
    engine.compile(&inspection.component).expect("compiles")
}

fn bits(scores: &[f64]) -> Vec<u64> {
    scores.iter().map(|score| score.to_bits()).collect()
}

type Row = (u64, u8, u64, u32, [f32; 2]);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let tokens = prop_oneof![0..200_000_u64, any::<u64>()];
    let times_ms = prop_oneof![0..100_000_u64, any::<u64>()];
    prop::collection::vec(
        (tokens, 0..=1_u8, times_ms, any::<u32>(), any::<[f32; 2]>()),
        0..200,
    )
}

#[test]
fn thunderagent_gives_the_same_bits_in_the_sandbox() {
    let module = module("thunderagent_eviction.wasm");
    for config in CONFIGS {
        let native = ThunderAgentEviction::configure(config).unwrap();
        let sandboxed = RefCell::new(module.instance(config).unwrap());
        let extra_columns = native.config.extra.len();
        let strategy = rows();
        let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
        let outcome = runner.run(&strategy, |rows| {
            compare(&native, &mut sandboxed.borrow_mut(), &rows, extra_columns)
        });
        outcome.unwrap_or_else(|error| panic!("{config}: {error}"));
    }
}

fn compare(
    native: &ThunderAgentEviction,
    sandboxed: &mut treadle_policy_runtime::EvictionInstance,
    rows: &[Row],
    extra_columns: usize,
) -> Result<(), TestCaseError> {
    let tokens: Vec<_> = rows.iter().map(|row| row.0).collect();
    let phase: Vec<_> = rows.iter().map(|row| row.1).collect();
    let times_ms: Vec<_> = rows.iter().map(|row| row.2).collect();
    let steps: Vec<_> = rows.iter().map(|row| row.3).collect();
    let extra: Vec<_> = (0..extra_columns)
        .flat_map(|column| rows.iter().map(move |row| row.4[column]))
        .collect();

    let expected = native.weigh(&treadle_plugin::ActingColumns {
        tokens: &tokens,
        phase_ms: &times_ms,
        extra: &extra,
    });
    let found = sandboxed.weigh(&ActingColumns {
        now_ms: 0,
        tokens: &tokens,
        phase_ms: &times_ms,
        extra: &extra,
    });
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));

    let expected = native.pause_order(&treadle_plugin::ActiveColumns {
        tokens: &tokens,
        acting: &phase,
        phase_ms: &times_ms,
        steps: &steps,
        extra: &extra,
    });
    let found = sandboxed.pause_order(&ActiveColumns {
        now_ms: 0,
        tokens: &tokens,
        acting: &phase,
        phase_ms: &times_ms,
        steps: &steps,
        extra: &extra,
    });
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));

    let expected = native.restore_order(&treadle_plugin::WaitingColumns {
        tokens: &tokens,
        reasoning: &phase,
        waited_ms: &times_ms,
        steps: &steps,
        extra: &extra,
    });
    let found = sandboxed.restore_order(&WaitingColumns {
        now_ms: 0,
        tokens: &tokens,
        reasoning: &phase,
        waited_ms: &times_ms,
        steps: &steps,
        extra: &extra,
    });
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));
    Ok(())
}

#[test]
fn a_refused_configuration_names_the_key() {
    let module = module("thunderagent_eviction.wasm");
    let Err(LoadError::Config(message)) = module.instance(r#"{"half_live_s": 3}"#) else {
        panic!("accepted")
    };
    assert!(message.contains("half_live_s"), "{message}");
}

#[test]
fn the_second_plugin_runs_too() {
    let mut instance = module("lru_eviction.wasm").instance("{}").unwrap();
    let scores = instance
        .restore_order(&WaitingColumns {
            tokens: &[1, 1],
            reasoning: &[1, 1],
            waited_ms: &[10, 20],
            steps: &[0, 0],
            ..WaitingColumns::default()
        })
        .unwrap();
    assert!(scores[1] > scores[0]);
}
