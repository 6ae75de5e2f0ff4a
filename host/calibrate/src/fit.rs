//! Finding the speeds of an engine model from measurements.
//!
//! A measured time is a sum of iterations. Each is linear in the speeds once it is known
//! whether computing or reading the weights bounds it. So: suppose which, solve, look which it is,
//! and solve again until that agrees, from several first suppositions. Errors count relative to
//! the time, so that long prompts do not drown single tokens, and measurements that the others
//! contradict count less.

use serde::Serialize;
use treadle_engine_model::engine::{EngineProfile, IterationLoad};

use super::least_squares::{Equation, solve};
use super::sample::{Measured, Sample, median};

/// Speeds that are found.
const SPEEDS: usize = 8;
/// Prompts that the speed of prefill needs at least: one gives no slope.
const PROMPTS_MIN: usize = 2;
/// Suppositions until they agree with their solution.
const ROUNDS_MAX: usize = 20;
/// Tokens from which an iteration is first supposed to be bound by computing.
const FIRST_BOUNDS: [u64; 5] = [1, 8, 64, 512, u64::MAX];
/// The column of the speed of prefill, as a mask.
const TOKEN: u32 = 1;
/// Errors below this share are noise and no reason to count a measurement less.
const NOISE: f64 = 0.02;
/// Errors beyond this multiple of the median count less.
const OUTLIER: f64 = 3.0;

/// Speeds in microseconds, in the order of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Speeds([f64; SPEEDS]);

impl Speeds {
    fn token_us(&self) -> f64 {
        self.0[0]
    }

    fn attention_us(&self) -> f64 {
        self.0[1]
    }

    fn base_us(&self) -> f64 {
        self.0[2]
    }

    /// Whether computing takes longer than reading the weights.
    fn computes(&self, load: IterationLoad) -> bool {
        let tokens = (load.prefill_tokens + load.decode_sequences) as f64;
        let attention = load.prefill_context_tokens as f64 / 1_024.0;
        tokens * self.token_us() + attention * self.attention_us() > self.base_us()
    }

    fn apply(&self, profile: &mut EngineProfile) {
        let [
            token,
            attention,
            base,
            overhead,
            sequence,
            context,
            pass,
            request,
        ] = self.0;
        let whole = |value: f64| value.round().max(0.0) as u64;
        profile.prefill_tokens_per_s = whole(1e6 / token.max(1e-3)).max(1);
        profile.prefill_per_kilotoken_context_ps = whole(attention * 1e6);
        profile.decode_base_us = whole(base);
        profile.iteration_overhead_us = whole(overhead);
        profile.decode_per_sequence_us = whole(sequence);
        profile.decode_per_kilotoken_context_ns = whole(context * 1e3);
        profile.pass_us = whole(pass);
        profile.request_overhead_us = whole(request);
    }
}

/// How well a profile predicts what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The profile.
    #[serde(skip)]
    pub profile: EngineProfile,
    /// Each sample beside the profile's prediction of it.
    pub residuals: Vec<Residual>,
    /// Median of the absolute errors, as shares of what was measured.
    pub error_median: f64,
    /// Largest of them.
    pub error_max: f64,
}

/// One sample beside the profile's prediction of it.
#[derive(Clone, Debug, Serialize)]
pub struct Residual {
    /// The sample.
    #[serde(flatten)]
    pub sample: Sample,
    /// The profile's time, in microseconds.
    pub predicted_us: u64,
    /// Predicted less measured, as a share of measured.
    pub error: f64,
}

/// Fits the speeds to the samples; limits and sizes are those of `profile`. `None` if the samples
/// do not determine the speed of prefill.
pub fn fit(samples: &[Sample], profile: &EngineProfile) -> Option<Fit> {
    let prompts = samples.iter().filter(|sample| sample.what.requests() > 0);
    if prompts.count() < PROMPTS_MIN {
        return None;
    }
    // Passes are those of numbered slots; without batches in slots apart their cost is unknown.
    let rows = |sample: &Sample| matches!(sample.what, Measured::Decode { rows: 2.., .. });
    let has_passes = samples.iter().any(rows);
    let loads = |sample: &Sample| {
        let mut loads = sample.what.loads(profile.batched_tokens_max);
        for load in &mut loads {
            load.passes_milli *= u64::from(has_passes);
        }
        loads
    };
    let loads: Vec<Vec<IterationLoad>> = samples.iter().map(loads).collect();
    let best = |needed: u32| {
        FIRST_BOUNDS
            .into_iter()
            .filter_map(|bound| settle(samples, &loads, bound, needed))
            .filter(|(speeds, _)| speeds.token_us() > 0.0)
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
    };
    // On a noisy machine other columns can seem to explain all that prompts cost; they never do.
    let (speeds, _) = best(0).or_else(|| best(TOKEN))?;
    let mut profile = profile.clone();
    speeds.apply(&mut profile);
    Some(evaluate_fit(samples, profile))
}

/// Compares a profile with samples.
pub(super) fn evaluate_fit(samples: &[Sample], profile: EngineProfile) -> Fit {
    let residual = |sample: &Sample| {
        let predicted_us = sample.what.predicted_us(&profile);
        Residual {
            sample: *sample,
            predicted_us,
            error: predicted_us as f64 / sample.us - 1.0,
        }
    };
    let residuals: Vec<_> = samples.iter().map(residual).collect();
    let errors: Vec<f64> = residuals.iter().map(|each| each.error.abs()).collect();
    Fit {
        profile,
        error_max: errors.iter().copied().fold(0.0, f64::max),
        error_median: median(errors).unwrap_or(0.0),
        residuals,
    }
}

/// Solves until suppositions and weights agree with the solution; gives the speeds and the mean
/// of the relative errors.
fn settle(
    samples: &[Sample],
    loads: &[Vec<IterationLoad>],
    first_bound: u64,
    needed: u32,
) -> Option<(Speeds, f64)> {
    let first = |load: IterationLoad| load.prefill_tokens + load.decode_sequences >= first_bound;
    let mut equations = equations(samples, loads, &first);
    let mut speeds = Speeds(solve(&equations, needed)?.0);
    for _ in 0..ROUNDS_MAX {
        equations = self::equations(samples, loads, &|load| speeds.computes(load));
        trust(&mut equations, &speeds);
        let next = solve(&equations, needed).map(|(next, _)| Speeds(next));
        let Some(next) = next.filter(|next| *next != speeds) else {
            break;
        };
        speeds = next;
    }
    // Evaluated by the model itself, not by what was last supposed of it.
    let last = self::equations(samples, loads, &|load| speeds.computes(load));
    let errors: f64 = last.iter().map(|each| error(each, &speeds).abs()).sum();
    Some((speeds, errors / last.len().max(1) as f64))
}

fn equations(
    samples: &[Sample],
    loads: &[Vec<IterationLoad>],
    computes: &dyn Fn(IterationLoad) -> bool,
) -> Vec<Equation<SPEEDS>> {
    let equation = |(sample, loads): (&Sample, &Vec<IterationLoad>)| {
        let mut row = [0.0; SPEEDS];
        for load in loads {
            if computes(*load) {
                row[0] += (load.prefill_tokens + load.decode_sequences) as f64;
                row[1] += load.prefill_context_tokens as f64 / 1_024.0;
            } else {
                row[2] += 1.0;
            }
            row[3] += 1.0;
            row[4] += load.decode_sequences as f64;
            row[5] += load.decode_context_tokens as f64 / 1_024.0;
            row[6] += load.passes_milli.saturating_sub(1_000) as f64 / 1e3;
        }
        row[7] = sample.what.requests() as f64;
        Equation {
            row,
            value: sample.us,
            weight: 1.0 / sample.us,
        }
    };
    samples.iter().zip(loads).map(equation).collect()
}

fn error(equation: &Equation<SPEEDS>, speeds: &Speeds) -> f64 {
    let told: f64 = equation.row.iter().zip(speeds.0).map(|(a, b)| a * b).sum();
    told / equation.value - 1.0
}

/// Gives less weight to measurements that are far from the others.
fn trust(equations: &mut [Equation<SPEEDS>], speeds: &Speeds) {
    let errors: Vec<f64> = equations
        .iter()
        .map(|each| error(each, speeds).abs())
        .collect();
    let far = OUTLIER * median(errors.clone()).unwrap_or(0.0).max(NOISE);
    for (equation, error) in equations.iter_mut().zip(errors) {
        if error > far {
            equation.weight *= (far / error).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a calibration measures, computed from a profile instead of an engine.
    fn samples(profile: &EngineProfile) -> Vec<Sample> {
        let mut all = Vec::new();
        for prompt_tokens in [16, 64, 256, 1_024, 2_048, 4_096, 8_192] {
            let cached_tokens = 0;
            all.push(Measured::Prefill {
                cached_tokens,
                prompt_tokens,
            });
        }
        for cached_tokens in [1_024, 4_096] {
            let prompt_tokens = cached_tokens + 256;
            all.push(Measured::Prefill {
                cached_tokens,
                prompt_tokens,
            });
        }
        for sequences in [1, 2, 4, 8, 16] {
            for context in [100, 1_000, 8_000] {
                let context_tokens = sequences * context;
                all.push(Measured::Decode {
                    sequences,
                    context_tokens,
                    longest_tokens: context,
                    rows: 1,
                });
            }
            all.push(Measured::Decode {
                sequences,
                context_tokens: 4_000 + 100 * (sequences - 1),
                longest_tokens: 4_000,
                rows: 1 + sequences / 4,
            });
        }
        for prompt_tokens in [256, 1_024, 4_096] {
            let context_tokens = 200;
            all.push(Measured::Mixed {
                prompt_tokens,
                context_tokens,
            });
        }
        let sample = |what: Measured| Sample {
            what,
            us: what.predicted_us(profile) as f64,
        };
        all.into_iter().map(sample).collect()
    }

    fn near(found: u64, known: u64, unit: u64) {
        assert!(
            found.abs_diff(known) <= unit + known / 200,
            "{found} for {known}"
        );
    }

    /// Profiles of different kinds: bound by the weights, by computing, with and without overheads.
    fn profiles() -> Vec<EngineProfile> {
        let gpu = EngineProfile {
            request_overhead_us: 3_000,
            ..EngineProfile::qwen3_8b_h100()
        };
        let attention = EngineProfile {
            prefill_per_kilotoken_context_ps: 4_000_000,
            iteration_overhead_us: 1_500,
            ..gpu.clone()
        };
        let processor = EngineProfile {
            prefill_tokens_per_s: 600,
            prefill_per_kilotoken_context_ps: 400_000_000,
            decode_base_us: 7_000,
            decode_per_sequence_us: 900,
            decode_per_kilotoken_context_ns: 700_000,
            pass_us: 2_000,
            iteration_overhead_us: 400,
            request_overhead_us: 1_200,
            batched_tokens_max: 2_048,
            ..gpu.clone()
        };
        vec![gpu, attention, processor]
    }

    #[test]
    fn a_known_profile_is_found_again() {
        for known in profiles() {
            let blank = EngineProfile {
                batched_tokens_max: known.batched_tokens_max,
                ..EngineProfile::qwen3_32b_h100()
            };
            let fit = fit(&samples(&known), &blank).unwrap();
            let found = fit.profile;
            assert!(fit.error_max < 0.002, "{} {found:?}", fit.error_max);
            near(found.prefill_tokens_per_s, known.prefill_tokens_per_s, 1);
            near(
                found.prefill_per_kilotoken_context_ps,
                known.prefill_per_kilotoken_context_ps,
                20_000,
            );
            near(
                found.decode_per_sequence_us,
                known.decode_per_sequence_us,
                2,
            );
            near(
                found.decode_per_kilotoken_context_ns,
                known.decode_per_kilotoken_context_ns,
                200,
            );
            near(found.request_overhead_us, known.request_overhead_us, 20);
            let shortest = |p: &EngineProfile| p.decode_base_us + p.iteration_overhead_us;
            near(shortest(&found), shortest(&known), 5);
        }
    }

    #[test]
    fn one_wild_measurement_does_not_spoil_the_rest() {
        let known = &profiles()[2];
        let mut all = samples(known);
        all[3].us *= 4.0;
        let found = fit(&all, known).unwrap();
        assert!(found.error_median < 0.03, "{}", found.error_median);
        let speed = found.profile.prefill_tokens_per_s as f64;
        assert!((speed / 600.0 - 1.0).abs() < 0.1, "{speed}");
    }

    /// A short calibration; the machine delays one measurement in four.
    fn disturbed(seed: u64) -> Vec<Sample> {
        let mut drawn = seed;
        let mut next = || {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005);
            drawn = drawn.wrapping_add(1);
            (drawn >> 33) as f64 / f64::from(1_u32 << 31)
        };
        let mut all = samples(&EngineProfile {
            prefill_tokens_per_s: 10_000,
            ..EngineProfile::qwen3_8b_h100()
        });
        all.retain(|sample| match sample.what {
            Measured::Decode { sequences, .. } => sequences <= 4,
            Measured::Prefill { prompt_tokens, .. } | Measured::Mixed { prompt_tokens, .. } => {
                prompt_tokens <= 256
            }
        });
        for sample in &mut all {
            if next() < 0.25 {
                sample.us += 50_000.0 * next();
            }
        }
        all
    }

    #[test]
    fn noise_hides_no_speed() {
        let blank = EngineProfile::qwen3_32b_h100();
        let is_lost = |seed: &u64| fit(&disturbed(*seed), &blank).is_none();
        let lost: Vec<u64> = (1..=100).filter(is_lost).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn without_prompts_there_is_no_speed_of_prefill() {
        let known = &profiles()[0];
        let mut all = samples(known);
        all.retain(|sample| matches!(sample.what, Measured::Decode { .. }));
        assert!(fit(&all, known).is_none());
        assert!(fit(&[], known).is_none());
    }
}
