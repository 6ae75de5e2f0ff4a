//! The search for a plan: exhaustive, or by annealing (Algorithm 2).

use treadle_plugin::random::SplitMix64;

use crate::cluster::Cluster;
use crate::moves::neighbour;

/// Evaluates every plan. A plan that can't beat the best one so far costs one probe, not a search.
pub(crate) fn exhaustive(cluster: &Cluster) -> (Vec<u32>, f64) {
    let mut best = best_homogeneous(cluster);
    cluster.each_plan(&mut |plan| {
        if cluster.ends_by(plan, best.1.next_down()) {
            best = (plan.to_vec(), cluster.end_us(plan));
        }
        true
    });
    best
}

/// The best plan with a single degree; no workers without one.
fn best_homogeneous(cluster: &Cluster) -> (Vec<u32>, f64) {
    let mut best = (vec![0; cluster.degrees.len()], f64::INFINITY);
    for plan in cluster.homogeneous() {
        let end_us = cluster.end_us(&plan);
        if end_us < best.1 {
            best = (plan, end_us);
        }
    }
    best
}

/// Algorithm 2, from the best plan with a single degree. The random number of a step is drawn
/// before its plan is evaluated: it determines the latest end at which the plan is accepted, which
/// is one probe; only accepted plans are searched for their end.
pub(crate) fn anneal(cluster: &Cluster, cooling: f64, epsilon: f64, seed: u64) -> (Vec<u32>, f64) {
    let mut random = SplitMix64::new(seed);
    let mut best = best_homogeneous(cluster);
    if !best.1.is_finite() || cluster.degrees.len() < 2 {
        return best;
    }
    let (mut plan, mut end_us) = best.clone();
    let mut temperature_us = end_us;
    let coldest_us = epsilon * end_us;
    while temperature_us > coldest_us {
        if let Some(next) = neighbour(cluster, &plan, &mut random) {
            // exp(-(next - end) / t) > u, solved for the next end.
            let bound_us = end_us - temperature_us * ln(share(&mut random));
            if cluster.ends_by(&next, bound_us) {
                (end_us, plan) = (cluster.end_us(&next), next);
                if end_us < best.1 {
                    best = (plan.clone(), end_us);
                }
            }
        }
        temperature_us *= cooling;
    }
    best
}

/// A number above 0, at most 1.
fn share(random: &mut SplitMix64) -> f64 {
    ((random.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
}

/// The natural logarithm of a positive normal number, to about twelve digits. It only uses
/// operations that are rounded identically on every machine and in WebAssembly, unlike the
/// platform's library.
fn ln(value: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as f64 - 1_023.0;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | 1.0_f64.to_bits());
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), of an argument below 0.172.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0]
        .into_iter()
        .fold(0.0, |sum, odd: f64| sum * square + 1.0 / odd);
    exponent * std::f64::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        for value in [
            1e-16, 1e-3, 0.25, 0.7, 0.708, 0.999, 1.0, 1.4, 1.42, 1.5, 1e9,
        ] {
            let value: f64 = value;
            assert!(
                (ln(value) - value.ln()).abs() < 1e-10,
                "{value}: {}",
                ln(value)
            );
        }
    }
}
