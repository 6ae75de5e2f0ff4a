//! Random values for the columns: mostly of usual size, some 0, some extreme.

use crate::random::SplitMix64;
use crate::{NOWHERE, Phase};

/// A number below `bound`, which is above 0.
pub fn below(random: &mut SplitMix64, bound: u64) -> u64 {
    random.next_u64() % bound
}

/// Tokens, bytes or times of any size.
pub fn amount(random: &mut SplitMix64) -> u64 {
    match below(random, 16) {
        0 => 0,
        1 => u64::MAX,
        2 => {
            let shift = below(random, 64);
            random.next_u64() >> shift
        }
        3..=6 => below(random, 8),
        _ => below(random, 200_000),
    }
}

/// A count of any size.
pub fn count(random: &mut SplitMix64) -> u32 {
    match below(random, 16) {
        0 => u32::MAX,
        1..=4 => 0,
        _ => below(random, 32) as u32,
    }
}

/// 0 or 1.
pub fn phase(random: &mut SplitMix64) -> Phase {
    match below(random, 2) {
        0 => Phase::Reasoning,
        _ => Phase::Acting,
    }
}

/// One of few groups, so that many programs share one.
pub fn group(random: &mut SplitMix64) -> u64 {
    match below(random, 8) {
        0 => random.next_u64(),
        _ => below(random, 5),
    }
}

/// A prediction, or -1 for none.
pub fn predicted(random: &mut SplitMix64) -> f64 {
    match below(random, 8) {
        0..=2 => -1.0,
        3 => 1e300,
        _ => amount(random) as f64 / 8.0,
    }
}

/// Any finite number, of either sign.
pub fn finite(random: &mut SplitMix64) -> f64 {
    match below(random, 16) {
        0 => f64::MAX,
        1 => f64::MIN,
        2..=6 => below(random, 3) as f64 - 1.0,
        _ => below(random, 2_000_001) as f64 / 1e6 - 1.0,
    }
}

/// A positive time in microseconds.
pub fn token_us(random: &mut SplitMix64) -> f64 {
    1.0 + below(random, 100_000) as f64 / 4.0
}

/// An entry of an extra column: any number, including non-finite ones.
pub fn extra(random: &mut SplitMix64) -> f32 {
    match below(random, 12) {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        _ => below(random, 2_001) as f32 / 1_000.0 - 1.0,
    }
}

/// A class of hardware, or [`crate::NO_CLASS`].
pub fn class(random: &mut SplitMix64) -> u32 {
    match below(random, 4) {
        0 => crate::NO_CLASS,
        class => class as u32,
    }
}

/// A worker, or [`NOWHERE`].
pub fn worker_or_nowhere(random: &mut SplitMix64, workers: usize) -> u32 {
    match below(random, workers as u64 + 1) as usize {
        worker if worker < workers => worker as u32,
        _ => NOWHERE,
    }
}

/// An answer or a reference: numbers, words, text in several scripts.
pub fn text(random: &mut SplitMix64) -> String {
    const TEXTS: &[&str] = &[
        "",
        "42",
        " 42.0 ",
        "4.2e1",
        "-1/2",
        "The answer is 42.",
        "answer: Ünïcode ﬁ",
        "NaN",
        "inf",
        "1e999",
        "\\boxed{7}",
        "#### 1,234",
        "a\u{0}b",
        "答案是四十二",
    ];
    let at = below(random, TEXTS.len() as u64);
    TEXTS[at as usize].to_owned()
}

/// The numbers below `rows` in some order.
pub fn order(random: &mut SplitMix64, rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    for at in (1..rows).rev() {
        order.swap(at, below(random, at as u64 + 1) as usize);
    }
    order
}
