//! Logarithms and powers that give the same bits on every machine.
//!
//! Those of the standard library depend on the platform, so a native build and a component may
//! differ in the last bit. These only use operations that IEEE 754 rounds identically everywhere.

use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

const MANTISSA_BITS: u32 = 52;
const EXPONENT_BIAS: i64 = 1_023;

/// Base-2 logarithm, within 1e-14 of the true one; 0 and negative numbers count as the smallest
/// normal number, NaN as infinity.
pub fn log2(value: f64) -> f64 {
    if value.is_nan() || value == f64::INFINITY {
        return f64::INFINITY;
    }
    let bits = value.max(f64::MIN_POSITIVE).to_bits();
    let mut exponent = (bits >> MANTISSA_BITS).cast_signed() - EXPONENT_BIAS;
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let mut mantissa = f64::from_bits(fraction | ((EXPONENT_BIAS as u64) << MANTISSA_BITS));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), a series in at most 0.1716.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut sum = 0.0;
    for odd in (0..11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * odd + 1);
    }
    exponent as f64 + 2.0 * ratio * sum * LOG2_E
}

/// 2 to a power, with a relative error below 1e-14; powers are clamped to -1022 to 1023, and NaN
/// counts as 0.
pub fn exp2(power: f64) -> f64 {
    let power = if power.is_nan() { 0.0 } else { power };
    let power = power.clamp(-1_022.0, 1_023.0);
    let whole = (power + 0.5).floor().min(1_023.0);
    let part = (power - whole) * LN_2;
    // e^part as its series; part is at most 0.35, or 0.7 at the upper end.
    let mut sum = 1.0;
    for term in (1..18).rev() {
        sum = 1.0 + sum * part / f64::from(term);
    }
    let scale = f64::from_bits(((whole as i64 + EXPONENT_BIAS) as u64) << MANTISSA_BITS);
    sum * scale
}

/// Natural logarithm, as [`log2`].
pub fn ln(value: f64) -> f64 {
    log2(value) * LN_2
}

/// e to a power, as [`exp2`] but for the rounding of the power.
pub fn exp(power: f64) -> f64 {
    exp2(power * LOG2_E)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn both_agree_with_the_standard_library() {
        let mut random = SplitMix64::new(5);
        for _ in 0..20_000 {
            let power = random.next_u64() as f64 / u64::MAX as f64 * 120.0 - 60.0;
            let found = exp2(power);
            assert!((found / power.exp2() - 1.0).abs() < 1e-14, "{power}");
            assert!((log2(found) - power).abs() < 3e-14, "{power}");
            let value = 1.0 + random.next_u64() as f64;
            assert!((ln(value) - value.ln()).abs() < 1e-13, "{value}");
        }
        assert_eq!((exp2(0.0), exp2(10.0), exp2(-3.0)), (1.0, 1_024.0, 0.125));
        assert_eq!((log2(1.0), log2(1_024.0), exp(0.0)), (0.0, 10.0, 1.0));
    }

    #[test]
    fn extremes_stay_numbers() {
        for value in [0.0, -1.0, f64::NEG_INFINITY, f64::MIN_POSITIVE] {
            assert_eq!(Some(log2(value)), Some(-1_022.0));
        }
        assert!(log2(f64::NAN) > 0.0 && log2(f64::MAX) < 1_024.1);
        for power in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1_022.7] {
            let found = exp2(power);
            assert!(found.is_finite() && found > 0.0, "{power}: {found}");
        }
    }
}
