//! Hashes of block contents, chained so that a block's hash identifies everything before it too.

/// The hash of a block, from its parent's hash (any fixed number for the first) and its content's.
pub fn chain_hash(parent: u64, content: u64) -> u64 {
    mix(parent.rotate_left(29) ^ mix(content))
}

/// A hash of a few words, for callers whose contents are names and numbers rather than bytes.
pub fn content_hash(words: &[u64]) -> u64 {
    words.iter().fold(0x243f_6a88_85a3_08d3, |state, word| {
        chain_hash(state, *word)
    })
}

/// SplitMix64's finaliser: every input bit reaches every output bit.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_depends_on_order_and_content() {
        let ab = chain_hash(chain_hash(0, 1), 2);
        let ba = chain_hash(chain_hash(0, 2), 1);
        assert_ne!(ab, ba);
        assert_ne!(chain_hash(ab, 3), chain_hash(ba, 3));
        assert_eq!(content_hash(&[1, 2]), content_hash(&[1, 2]));
        assert_ne!(content_hash(&[1, 2]), content_hash(&[1, 2, 0]));
    }
}
