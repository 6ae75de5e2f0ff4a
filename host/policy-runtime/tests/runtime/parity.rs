//! The same policy, built natively and as a component, gives the same bits.

use std::cell::RefCell;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use thunderagent_eviction::ThunderAgentEviction;
use treadle_plugin::{EvictionPolicy, Phase, Policy};
use treadle_policy_runtime::{
    ActingColumns, ActiveColumns, EvictionInstance, InstanceOptions, LoadError, PolicyEngine,
    PolicyModule, WaitingColumns,
};

use crate::fixture::{CONTEXT, engine, limits};

const CONFIGS: [&str; 6] = [
    "{}",
    r#"{"profile": "paper"}"#,
    r#"{"decay": "exponential", "half_life_s": 7.3, "hold_s": 0.5}"#,
    r#"{"decay": "geometric", "base": 1.37, "tick_ms": 250}"#,
    r#"{"restore": "ageing", "ageing_s": 30}"#,
    r#"{"restore": "shortest"}"#,
];

fn guest(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/guests")
        .join(name);
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make guests`", path.display()))
}

fn module(engine: &PolicyEngine, name: &str) -> PolicyModule {
    let inspection = engine.inspect(&guest(name)).expect("accepted");
    assert_eq!(
        inspection.description.name,
        name.trim_end_matches(".wasm").replace('_', "-")
    );
    engine.compile(&inspection.component).expect("compiles")
}

fn bits(scores: &[f64]) -> Vec<u64> {
    scores.iter().map(|score| score.to_bits()).collect()
}

type Row = (u64, Phase, u64, u32);

fn phase(acts: bool) -> Phase {
    if acts {
        Phase::Acting
    } else {
        Phase::Reasoning
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let tokens = prop_oneof![0..200_000_u64, any::<u64>()];
    let times_ms = prop_oneof![0..100_000_u64, any::<u64>()];
    prop::collection::vec(
        (
            tokens,
            any::<bool>().prop_map(phase),
            times_ms,
            any::<u32>(),
        ),
        0..200,
    )
}

#[test]
fn thunderagent_gives_the_same_bits_in_the_sandbox() {
    let engine = engine();
    let module = module(&engine, "thunderagent_eviction.wasm");
    for config in CONFIGS {
        let native = ThunderAgentEviction::configure(config).unwrap();
        let native = RefCell::new(native);
        let options = InstanceOptions::configured(config);
        let sandboxed = RefCell::new(module.instance(&options).unwrap());
        let strategy = rows();
        let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
        let outcome = runner.run(&strategy, |rows| {
            let mut sandboxed = sandboxed.borrow_mut();
            let sandboxed = sandboxed.as_eviction_mut().unwrap();
            compare(&mut native.borrow_mut(), sandboxed, &Columns::of(&rows))
        });
        outcome.unwrap_or_else(|error| panic!("{config}: {error}"));
    }
}

/// What `Row`s are in columns.
struct Columns {
    tokens: Vec<u64>,
    phase: Vec<Phase>,
    times_ms: Vec<u64>,
    steps: Vec<u32>,
}

impl Columns {
    fn of(rows: &[Row]) -> Self {
        Self {
            tokens: rows.iter().map(|row| row.0).collect(),
            phase: rows.iter().map(|row| row.1).collect(),
            times_ms: rows.iter().map(|row| row.2).collect(),
            steps: rows.iter().map(|row| row.3).collect(),
        }
    }

    fn acting(&self) -> ActingColumns<'_> {
        ActingColumns {
            tokens: &self.tokens,
            phase_ms: &self.times_ms,
            extra: &[],
        }
    }

    fn active(&self) -> ActiveColumns<'_> {
        ActiveColumns {
            tokens: &self.tokens,
            phase: &self.phase,
            phase_ms: &self.times_ms,
            steps: &self.steps,
            extra: &[],
        }
    }

    fn waiting(&self) -> WaitingColumns<'_> {
        WaitingColumns {
            tokens: &self.tokens,
            phase: &self.phase,
            waited_ms: &self.times_ms,
            steps: &self.steps,
            extra: &[],
        }
    }
}

fn compare(
    native: &mut ThunderAgentEviction,
    sandboxed: &mut EvictionInstance,
    columns: &Columns,
) -> Result<(), TestCaseError> {
    let expected = native.weigh(&columns.acting());
    let found = sandboxed.weigh(&CONTEXT, &columns.acting());
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));
    let expected = native.pause_order(&columns.active());
    let found = sandboxed.pause_order(&CONTEXT, &columns.active());
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));
    let expected = native.restore_order(&columns.waiting());
    let found = sandboxed.restore_order(&CONTEXT, &columns.waiting());
    prop_assert_eq!(bits(&expected.unwrap()), bits(&found.unwrap()));
    Ok(())
}

#[test]
fn two_deterministic_engines_give_the_same_bits_for_the_same_fuel() {
    let columns = Columns::of(
        &(0..500_u32)
            .map(|row| {
                let spread = u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                (spread, phase(row % 2 == 1), spread / 3, row)
            })
            .collect::<Vec<_>>(),
    );
    let run = || {
        let engine = PolicyEngine::deterministic(limits(), 10_000_000).unwrap();
        let module = module(&engine, "thunderagent_eviction.wasm");
        let options = InstanceOptions::configured(CONFIGS[2]);
        let mut policy = module.instance(&options).unwrap();
        let started = policy.fuel_used().unwrap();
        let eviction = policy.as_eviction_mut().unwrap();
        let mut answers = bits(&eviction.weigh(&CONTEXT, &columns.acting()).unwrap());
        let order = eviction.pause_order(&CONTEXT, &columns.active());
        answers.extend(bits(&order.unwrap()));
        (answers, started, policy.fuel_used().unwrap())
    };
    let (answers, started, used) = run();
    assert!(started > 0 && used > started);
    assert_eq!(run(), (answers, started, used));
}

#[test]
fn a_refused_configuration_names_the_key() {
    let module = module(&engine(), "thunderagent_eviction.wasm");
    let options = InstanceOptions::configured(r#"{"half_live_s": 3}"#);
    let Err(LoadError::Config(message)) = module.instance(&options) else {
        panic!("accepted")
    };
    assert!(message.contains("half_live_s"), "{message}");
}

#[test]
fn other_plugins_run_too() {
    let engine = engine();
    for name in ["lru_eviction.wasm", "ttl_pin_eviction.wasm"] {
        runs(&module(&engine, name));
    }
}

fn runs(module: &PolicyModule) {
    let mut policy = module.instance(&InstanceOptions::default()).unwrap();
    let programs = WaitingColumns {
        tokens: &[1, 1],
        phase: &[Phase::Reasoning; 2],
        waited_ms: &[10, 20],
        steps: &[0, 0],
        extra: &vec![0.0; 2 * policy.description().columns.len()],
    };
    let eviction = policy.as_eviction_mut().unwrap();
    let scores = eviction.restore_order(&CONTEXT, &programs).unwrap();
    assert!(scores[1] > scores[0]);
}
