//! Means with confidence intervals, percentiles, and fairness.

use serde::Serialize;
use treadle_simulator::cluster::percentile;
use utoipa::ToSchema;

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Student's t for more degrees of freedom.
const T_95_MANY: f64 = 1.96;

/// A mean over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfEstimate)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of its 95 % confidence interval; absent with fewer than two seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

impl Estimate {
    /// The mean of the values; 0 if there are none.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        if count < 2 {
            return Self {
                mean,
                half_width: None,
            };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let t = T_95.get(count - 2).copied().unwrap_or(T_95_MANY);
        Self {
            mean,
            half_width: Some(t * deviation / (count as f64).sqrt()),
        }
    }
}

/// Jain's index of fairness: 1 if all values are equal, 1/n if one of n has everything; 1 for none.
pub fn jain_index(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), value| {
        (sum + value, squares + value * value)
    });
    if squares <= 0.0 {
        return 1.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

/// Median, 95th and 99th percentile in seconds.
pub(super) fn percentiles_s(values_us: &mut [u64]) -> [f64; 3] {
    values_us.sort_unstable();
    [0.50, 0.95, 0.99].map(|share| percentile(values_us, share) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let one = Estimate::of(&[3.0]);
        assert_eq!((one.mean, one.half_width), (3.0, None));
        let three = Estimate::of(&[1.0, 2.0, 3.0]);
        // A deviation of 1, divided by the root of 3, times t with two degrees of freedom.
        let half = 4.303 / 3.0_f64.sqrt();
        assert!((three.mean - 2.0).abs() < 1e-9);
        assert!((three.half_width.unwrap() - half).abs() < 1e-9);
        assert_eq!(Estimate::of(&[2.0; 99]).half_width, Some(0.0));
        assert!(Estimate::of(&[]).mean.abs() < 1e-9);
    }

    #[test]
    fn fairness_goes_from_one_of_all_to_one_of_one() {
        let is = |values: &[f64], wanted: f64| (jain_index(values) - wanted).abs() < 1e-9;
        assert!(is(&[2.0, 2.0, 2.0], 1.0));
        assert!(is(&[4.0, 0.0, 0.0, 0.0], 0.25));
        assert!(is(&[], 1.0));
    }
}
