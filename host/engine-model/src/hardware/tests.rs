//! The generated page is up to date, and profiles are close to published measurements.

use super::*;
use crate::engine::{EngineProfile, IterationLoad};

fn profile(gpu: &Gpu, model: &LanguageModel, degree: u32) -> EngineProfile {
    EngineProfile::of(gpu, model, degree, &Assumptions::default()).expect("it fits")
}

fn decode_us(profile: &EngineProfile, batch: u64, context_tokens: u64) -> u64 {
    profile.iteration_us(IterationLoad {
        decode_sequences: batch,
        decode_context_tokens: batch * context_tokens,
        ..IterationLoad::default()
    })
}

/// `UPDATE_DOCS=1` writes the page instead.
#[test]
fn the_page_of_parameters_is_up_to_date() {
    let path: std::path::PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../docs/simulation-parameters.md",
    ]
    .iter()
    .collect();
    let page = parameters_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/simulation-parameters.md is stale; run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn qwen3_8b_decodes_as_fast_as_was_measured_on_one_h100() {
    // silybench, decode-128-1024 in bf16: 396 sequences at 13,322 tokens/s.
    let profile = profile(&H100, &QWEN3_8B, 1);
    let us = decode_us(&profile, 396, 128 + 1_024 / 2);
    let per_s = 396 * 1_000_000 / us;
    assert!((11_300..15_400).contains(&per_s), "{per_s}");
}

#[test]
fn a_lone_sequence_reads_weights_at_a_plausible_share_of_the_bandwidth() {
    for (model, low, high) in [
        (QWEN3_8B, 0.5, 0.65),
        (QWEN3_14B, 0.55, 0.75),
        (QWEN3_32B, 0.6, 0.8),
    ] {
        let us = decode_us(&profile(&H100, &model, 1), 1, 1_024) as f64;
        let share = model.weights_read_bytes(1) / 3.35e6 / us;
        assert!((low..high).contains(&share), "{}: {share}", model.name);
    }
}

#[test]
fn eight_gpus_are_three_to_four_times_as_fast_for_one_sequence_not_eight() {
    for (model, low, high) in [
        (QWEN3_8B, 2.0, 3.5),
        (QWEN3_14B, 2.5, 4.0),
        (QWEN3_32B, 3.0, 4.5),
    ] {
        let one = decode_us(&profile(&H100, &model, 1), 1, 4_096);
        let mut before = one;
        for degree in [2, 4, 8] {
            let us = decode_us(&profile(&H100, &model, degree), 1, 4_096);
            assert!(us < before);
            before = us;
        }
        let ratio = one as f64 / before as f64;
        assert!((low..high).contains(&ratio), "{}: {ratio}", model.name);
    }
}

#[test]
fn a_node_split_into_lone_gpus_decodes_more_in_all_than_as_one() {
    // Heddle Figure 7: degree trades throughput for latency.
    let one = profile(&H100, &QWEN3_14B, 1);
    let eight = profile(&H100, &QWEN3_14B, 8);
    let batch = 800;
    let split_us = decode_us(&one, batch / 8, 4_096);
    let joint_us = decode_us(&eight, batch, 4_096);
    assert!(split_us < joint_us, "{split_us} {joint_us}");
    assert!(decode_us(&eight, 1, 4_096) < decode_us(&one, 1, 4_096));
}

#[test]
fn interference_grows_with_the_batch() {
    for model in [QWEN3_8B, QWEN3_14B, QWEN3_32B] {
        let profile = profile(&H100, &model, 1);
        let times = [1, 10, 50, 100, 200].map(|batch| decode_us(&profile, batch, 4_096));
        assert!(times.is_sorted(), "{times:?}");
        let factor = times[3] as f64 / times[0] as f64;
        assert!((1.5..6.0).contains(&factor), "{}: {factor}", model.name);
    }
}

#[test]
fn bandwidth_decodes_and_compute_prefills() {
    // RollArt §3: H20 for decoding, H800 for prefill.
    let (h20, h800) = (profile(&H20, &QWEN3_8B, 1), profile(&H800, &QWEN3_8B, 1));
    assert!(decode_us(&h20, 8, 8_192) < decode_us(&h800, 8, 8_192));
    assert!(h20.prefill_tokens_per_s * 6 < h800.prefill_tokens_per_s);
}

#[test]
fn experts_make_small_batches_cheap_and_large_ones_not() {
    let profile = profile(&H100, &QWEN3_30B_A3B, 1);
    let weights_us = |batch| decode_us(&profile, batch, 0) - profile.iteration_overhead_us;
    assert!(weights_us(1) * 5 < weights_us(256));
    assert!(weights_us(256) <= profile.decode_base_us + 256 * 6);
    let mut before = 0;
    for batch in 1..300 {
        let us = decode_us(&profile, batch, 0);
        assert!(us >= before, "{batch}");
        before = us;
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let given = Assumptions::default();
    let error = EngineProfile::of(&H100, &GLM_46, 4, &given).expect_err("too large");
    assert!(matches!(error, HardwareError::DoesNotFit { .. }));
    assert!(EngineProfile::of(&H100, &GLM_46, 8, &given).is_ok());
    let error = EngineProfile::of(&H100, &QWEN3_8B, 3, &given);
    assert_eq!(error, Err(HardwareError::Degree(3)));
}

#[test]
fn a_profile_survives_json() {
    for profile in [
        profile(&H200, &QWEN3_30B_A3B, 2),
        EngineProfile::qwen3_32b_h100(),
    ] {
        let text = serde_json::to_string(&profile).unwrap();
        let back: EngineProfile = serde_json::from_str(&text).unwrap();
        assert_eq!(back, profile);
    }
}
