//! Measures the cost of a call into the sandbox, compared with the same policy natively.
//!
//! `cargo run --release -p treadle-policy-runtime --example call_cost`, after `make guests`. Prints
//! nanoseconds per call, median and 99th percentile. Arguments are the numbers of rows to measure;
//! default 1, 100, 1000 and 6400.

use std::error::Error;
use std::time::Instant;

use thunderagent_eviction::ThunderAgentEviction;
use treadle_plugin::{EvictionPolicy, Phase, Policy};
use treadle_policy_runtime::{
    ActingColumns, CallContext, EvictionInstance, InstanceOptions, Limits, PolicyEngine,
    WaitingColumns,
};

const GUEST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/guests/thunderagent_eviction.wasm"
);
const CONFIG: &str = r#"{"decay": "exponential", "half_life_s": 5}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let upload =
        std::fs::read(GUEST).map_err(|error| format!("{GUEST}: {error}; run `make guests`"))?;
    // The deadline is not part of the measurement.
    let engine = PolicyEngine::new(Limits {
        hot_deadline_ms: 1_000,
        ..Limits::default()
    })?;
    let begin = Instant::now();
    let inspection = engine.inspect(&upload)?;
    println!(
        "inspected {} {} ({} bytes) in {} ms, compiled in {} ms",
        inspection.description.name,
        inspection.description.version,
        upload.len(),
        begin.elapsed().as_millis(),
        inspection.compile_ms
    );
    let module = engine.compile(&inspection.component)?;
    let options = InstanceOptions::configured(CONFIG);
    let mut sandboxed = module.instance(&options)?;
    let mut native = ThunderAgentEviction::configure(CONFIG)?;
    let begin = Instant::now();
    for _ in 0..1_000 {
        module.instance(&options)?;
    }
    println!(
        "a fresh instance, described and configured: {} us",
        begin.elapsed().as_micros() / 1_000
    );

    let eviction = sandboxed
        .as_eviction_mut()
        .ok_or("the guest is of another world")?;
    let mut rows = Vec::new();
    for argument in std::env::args().skip(1) {
        rows.push(argument.parse()?);
    }
    if rows.is_empty() {
        rows = vec![1, 100, 1_000, 6_400];
    }
    compare(&mut native, eviction, &rows);
    Ok(())
}

fn compare(native: &mut ThunderAgentEviction, sandboxed: &mut EvictionInstance, rows: &[u64]) {
    println!("call, rows: native p50 p99 | sandboxed p50 p99");
    for &rows in rows {
        let tokens: Vec<u64> = (0..rows).map(|row| row * 7_919 % 100_000).collect();
        let times_ms: Vec<u64> = (0..rows).map(|row| row * 104_729 % 60_000).collect();
        let phase: Vec<Phase> = (0..rows)
            .map(|row| {
                if row % 3 == 0 {
                    Phase::Reasoning
                } else {
                    Phase::Acting
                }
            })
            .collect();
        let steps = vec![3; tokens.len()];

        let context = CallContext::at(0);
        let acting = ActingColumns {
            tokens: &tokens,
            phase_ms: &times_ms,
            extra: &[],
        };
        report(
            "weigh",
            rows,
            || native.weigh(&acting).is_ok(),
            || sandboxed.weigh(&context, &acting).is_ok(),
        );
        let waiting = WaitingColumns {
            tokens: &tokens,
            phase: &phase,
            waited_ms: &times_ms,
            steps: &steps,
            extra: &[],
        };
        report(
            "restore-order",
            rows,
            || native.restore_order(&waiting).is_ok(),
            || sandboxed.restore_order(&context, &waiting).is_ok(),
        );
    }
}

fn report(call: &str, rows: u64, native: impl FnMut() -> bool, sandboxed: impl FnMut() -> bool) {
    let (native_p50, native_p99) = measure(native);
    let (p50, p99) = measure(sandboxed);
    println!("{call}, {rows}: {native_p50} {native_p99} | {p50} {p99}");
}

/// Median and 99th percentile in nanoseconds.
fn measure(mut call: impl FnMut() -> bool) -> (u64, u64) {
    let mut times_ns: Vec<u64> = (0..20_000)
        .map(|_| {
            let begin = Instant::now();
            assert!(call(), "the policy answers");
            u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    times_ns.sort_unstable();
    (
        times_ns[times_ns.len() / 2],
        times_ns[times_ns.len() / 100 * 99],
    )
}
