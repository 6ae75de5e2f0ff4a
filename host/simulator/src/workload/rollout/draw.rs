//! Random draws with the same bits on every machine.

use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use treadle_plugin::exact::{exp, ln};

use crate::workload::lognormal::LognormalParameter;

/// A random stream; each purpose has its own.
pub(crate) struct Draw {
    stream: Pcg64Mcg,
}

impl Draw {
    /// The stream with this name.
    pub(crate) fn new(name: &[u64]) -> Self {
        Self {
            stream: Pcg64Mcg::seed_from_u64(treadle_engine_model::engine::content_hash(name)),
        }
    }

    /// Uniform, above 0 and below 1.
    pub(crate) fn part(&mut self) -> f64 {
        ((self.stream.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// True with a probability of 1 / (1 + e^-`logit`).
    pub(crate) fn happens(&mut self, logit: f64) -> bool {
        self.part() * (1.0 + exp(-logit)) < 1.0
    }

    /// True with this probability.
    pub(crate) fn with_probability(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    /// Standard normal.
    pub(crate) fn normal(&mut self) -> f64 {
        normal_quantile(self.part())
    }

    /// Lognormal, its logarithm moved by `shift`.
    pub(crate) fn lognormal(&mut self, parameter: LognormalParameter, shift: f64) -> f64 {
        parameter.median * exp(parameter.sigma * self.normal() + shift)
    }

    /// Lognormal tokens, at least `least`.
    pub(crate) fn tokens(&mut self, parameter: LognormalParameter, shift: f64, least: u32) -> u32 {
        whole(self.lognormal(parameter, shift)).max(least)
    }
}

fn whole(value: f64) -> u32 {
    value.round().clamp(0.0, f64::from(1 << 30)) as u32
}

/// Value of the polynomial with these coefficients, the highest power first.
fn polynomial(coefficients: &[f64], at: f64) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * at + coefficient)
}

/// The inverse of the standard normal distribution by Acklam's rational approximation;
/// relative error below 1.2e-9.
fn normal_quantile(part: f64) -> f64 {
    const MIDDLE_OVER: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const MIDDLE_UNDER: [f64; 6] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
        1.0,
    ];
    const TAIL_OVER: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_UNDER: [f64; 5] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const TAIL: f64 = 0.024_25;
    if part > 0.5 {
        return -normal_quantile(1.0 - part);
    }
    if part < TAIL {
        let root = (-2.0 * ln(part)).sqrt();
        return polynomial(&TAIL_OVER, root) / polynomial(&TAIL_UNDER, root);
    }
    let centred = part - 0.5;
    let square = centred * centred;
    centred * polynomial(&MIDDLE_OVER, square) / polynomial(&MIDDLE_UNDER, square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (part, quantile) in [
            (0.5, 0.0),
            (0.841_344_746, 1.0),
            (0.975, 1.959_963_985),
            (0.001, -3.090_232_306),
            (1e-9, -5.997_807_015),
        ] {
            let found = normal_quantile(part);
            assert!((found - quantile).abs() < 1e-7, "{part}: {found}");
        }
    }

    #[test]
    fn chances_are_as_asked() {
        let mut draw = Draw::new(&[1]);
        let happened = (0..20_000).filter(|_| draw.happens(1.0)).count();
        assert!((14_450..14_800).contains(&happened), "{happened}");
        let sum: f64 = (0..20_000).map(|_| draw.normal()).sum();
        assert!(sum.abs() < 400.0, "{sum}");
    }
}
