//! The weight of an acting program after some time in its tool call: f(t) of eq. 7.
//!
//! Only additions, multiplications, divisions and square roots, which IEEE 754
//! rounds the same way everywhere: the native build and the component give the same
//! bits, which the mathematical functions of two standard libraries would not.

use std::sync::LazyLock;

use crate::config::{Config, Decay};

/// 2^-x is drawn as straight lines between this many points per halving; it is off
/// by less than 2e-8 of its value, and exactly 2^-x at whole x.
const POINTS: usize = 2048;

static HALVING_POINTS: LazyLock<Vec<f64>> = LazyLock::new(halving_points);

/// Weights within 0 and 1, no larger after a longer time.
pub(crate) fn weights(config: &Config, phase_ms: &[u64]) -> Vec<f64> {
    let after_hold = |ms: &u64| ms.saturating_sub(config.hold_ms);
    match config.decay {
        Decay::None => vec![1.0; phase_ms.len()],
        Decay::Exponential { half_life_ms } => {
            let points = HALVING_POINTS.as_slice();
            phase_ms
                .iter()
                .map(|ms| exp2_negative(points, after_hold(ms) as f64 / half_life_ms))
                .collect()
        }
        Decay::Geometric { base, tick_ms } => phase_ms
            .iter()
            .map(|ms| 1.0 / power(base, after_hold(ms) / tick_ms))
            .collect(),
    }
}

/// 2^(-i / POINTS) for i up to and including `POINTS`, each the product of the roots that the bits
/// of i select.
fn halving_points() -> Vec<f64> {
    let mut points = vec![1.0; POINTS + 1];
    let (mut root, mut bit) = (0.5_f64, POINTS);
    while bit > 0 {
        for (i, point) in points.iter_mut().enumerate() {
            if i & bit != 0 {
                *point *= root;
            }
        }
        root = root.sqrt();
        bit /= 2;
    }
    points
}

/// 2^-x for x >= 0. Never increasing in x: within one line by the monotony of
/// rounding, and neighbouring lines share their point.
fn exp2_negative(points: &[f64], x: f64) -> f64 {
    let halvings = x.floor();
    if halvings >= 1000.0 {
        return 0.0;
    }
    let along = (x - halvings) * POINTS as f64;
    let index = along as usize;
    let (left, right) = (points[index], points[index + 1]);
    let fraction = left + (right - left) * (along - index as f64);
    // 2^-halvings, put together from its exponent.
    fraction * f64::from_bits((1023 - halvings as u64) << 52)
}

/// `base` to the power of `exponent`, infinite when it is too large for a number.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(decay: Decay, hold_ms: u64) -> Config {
        Config {
            decay,
            hold_ms,
            ..Config::default()
        }
    }

    fn decays() -> impl Strategy<Value = Decay> {
        prop_oneof![
            Just(Decay::None),
            (0.0..15.0_f64).prop_map(|x| Decay::Exponential {
                half_life_ms: f64::exp(x)
            }),
            (1.001..10.0_f64, 1..100_000_u64)
                .prop_map(|(base, tick_ms)| Decay::Geometric { base, tick_ms }),
        ]
    }

    #[test]
    fn the_papers_decay_halves_every_second() {
        let weights = weights(&Config::paper(), &[0, 999, 1000, 2500, 10_000_000]);
        assert_eq!(weights, [1.0, 1.0, 0.5, 0.25, 0.0]);
    }

    proptest! {
        #[test]
        fn weights_are_shares_that_never_grow(
            decay in decays(),
            hold_ms in 0..100_000_u64,
            times in prop::collection::vec(prop_oneof![0..10_000_u64, any::<u64>()], 0..50),
        ) {
            let mut times = times;
            times.extend(times.clone().iter().map(|ms| ms.saturating_add(1)));
            times.sort_unstable();
            let weights = weights(&config(decay, hold_ms), &times);
            prop_assert!(weights.iter().all(|weight| (0.0..=1.0).contains(weight)));
            prop_assert!(weights.is_sorted_by(|left, right| left >= right));
            let held = times.iter().zip(&weights).filter(|(ms, _)| **ms <= hold_ms);
            for (_, weight) in held {
                prop_assert_eq!(weight.to_bits(), 1.0_f64.to_bits());
            }
        }

        #[test]
        fn weights_follow_the_law(decay in decays(), ms in 0..1_000_000_u64) {
            let law = match decay {
                Decay::None => 1.0,
                Decay::Exponential { half_life_ms } => f64::exp2(-(ms as f64) / half_life_ms),
                Decay::Geometric { base, tick_ms } => base.powf(-((ms / tick_ms) as f64)),
            };
            let weight = weights(&config(decay, 0), &[ms])[0];
            prop_assert!((weight - law).abs() <= law * 2e-8 + 1e-300, "{} for {}", weight, law);
        }
    }
}
