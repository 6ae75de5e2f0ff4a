//! Hashes of prefixes of a list of tokens, in one pass.

/// Hash of a list of tokens. What it finds is compared token by token before it counts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Prefix(u128);

/// An odd number without pattern, from the digits of pi.
const FACTOR: u128 = 0x2436_4d9a_36a1_1c9b_8a2e_0370_7344_a409;

impl Prefix {
    pub(crate) fn of(tokens: &[i32]) -> Self {
        Self::default().with(tokens)
    }

    /// The hash of a list that goes on with these tokens.
    pub(crate) fn with(self, tokens: &[i32]) -> Self {
        tokens.iter().fold(self, |hash, token| {
            // One more than the id, so that leading zeros count.
            let token = u128::from(token.cast_unsigned()) + 1;
            let mixed = (hash.0 ^ token).wrapping_mul(FACTOR);
            Self(mixed ^ (mixed >> 64))
        })
    }
}
