//! Hashes of all prefixes of a list of tokens, in one pass.

/// Hash of a list of tokens that grows at its end: equal lists have equal hashes. Different ones
/// may too, if somebody makes them so, and then spoils only the program that they are in.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct PrefixHash(u128);

/// An odd number of 128 bits without pattern (from the digits of the golden ratio).
const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl PrefixHash {
    pub(crate) fn push(&mut self, token: i32) {
        // One more than the id, so that leading zeros count.
        let token = u128::from(token.cast_unsigned()) + 1;
        self.0 = (self.0 ^ (self.0 >> 61) ^ token).wrapping_mul(MULTIPLIER);
    }

    pub(crate) fn of(tokens: impl Iterator<Item = i32>) -> Self {
        let mut hash = Self::default();
        tokens.for_each(|token| hash.push(token));
        hash
    }
}
