//! Bounds on numbers from outside: those that an engine, a client, a broker or another daemon
//! reports. Larger ones are mistakes, and no store could hold their sums.

/// Most tokens that anything has: a context, a cache, an answer. Eight million such numbers add up
/// to what a signed 64-bit number holds.
pub const TOKENS_MAX: u64 = 1 << 40;
/// Most bytes that anything has.
pub const BYTES_MAX: u64 = 1 << 50;
/// Longest name of a version of weights, in bytes. A longer one counts as not reported.
pub const WEIGHTS_BYTES_MAX: usize = 64;
/// Largest reward of a program, positive or negative, in millionths: a thousand million.
pub const REWARD_MILLIONTHS_MAX: i64 = 1_000_000_000_000_000;

/// Tokens that an engine reports. More than [`TOKENS_MAX`] counts as not reported.
pub fn reported_tokens(tokens: u64) -> Option<u64> {
    (tokens <= TOKENS_MAX).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_are_not_reported() {
        assert_eq!(reported_tokens(0), Some(0));
        assert_eq!(reported_tokens(TOKENS_MAX), Some(TOKENS_MAX));
        assert_eq!(reported_tokens(TOKENS_MAX + 1), None);
        assert_eq!(reported_tokens(u64::MAX), None);
    }
}
