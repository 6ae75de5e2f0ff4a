//! The simulation's tokeniser: four bytes of the rendered prompt are one token, whose id is those
//! bytes as a little-endian number. Text and ids with the same bytes share the prefix cache.

use treadle_engine_model::engine::BLOCK_TOKENS;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes per token.
pub(super) const TOKEN_BYTES: usize = 4;
const BLOCK_BYTES: usize = BLOCK_TOKENS as usize * TOKEN_BYTES;

/// Number of tokens of a text, rounded up.
pub(super) fn count(text: &[u8]) -> usize {
    text.len().div_ceil(TOKEN_BYTES)
}

/// The token ids of a text; the last is padded with zero bytes.
pub(super) fn ids(text: &[u8]) -> Vec<u32> {
    text.chunks(TOKEN_BYTES)
        .map(|chunk| {
            let mut bytes = [0; TOKEN_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(bytes)
        })
        .collect()
}

/// An ASCII text padded with blanks to whole tokens.
pub(super) fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(TOKEN_BYTES), b' ');
    bytes
}

/// The bytes of token ids.
pub(super) fn bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// The text of token ids: their bytes without the padding of the last.
pub(super) fn text(ids: &[u32]) -> String {
    let mut bytes = bytes(ids);
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Generates `tokens` tokens of text from position `first` of the sequence on. The text depends
/// only on the seed and the position, so a request that was cut and is sent again with its partial
/// answer continues with the same text.
pub fn generated(seed: u64, first: usize, tokens: usize) -> Vec<u8> {
    const CONSONANTS: &[u8; 16] = b"bcdfghjklmnprstv";
    const VOWELS: &[u8; 4] = b"aeio";
    let mut output = Vec::with_capacity(tokens * TOKEN_BYTES);
    for position in first..first + tokens {
        let word = xxh3_64_with_seed(&position.to_le_bytes(), seed);
        let pick = |shift: u32, of: &[u8]| of[(word >> shift) as usize % of.len()];
        let letters = [
            pick(0, CONSONANTS),
            pick(8, VOWELS),
            pick(16, CONSONANTS),
            if word >> 62 == 0 { b'.' } else { b' ' },
        ];
        output.extend_from_slice(&letters);
    }
    output
}

/// Chained hashes of the full blocks of prompt and output together. Each `salt` has a cache of its
/// own.
pub(super) fn block_hashes(salt: Option<&str>, prompt: &[u8], output: &[u8]) -> Vec<u64> {
    let mut parent = salt.map_or(0, |salt| xxh3_64(salt.as_bytes()));
    let mut hashes = Vec::with_capacity((prompt.len() + output.len()) / BLOCK_BYTES);
    let (whole, tail) = prompt.split_at(prompt.len() / BLOCK_BYTES * BLOCK_BYTES);
    let mut extend = |bytes: &[u8]| {
        for block in bytes.chunks_exact(BLOCK_BYTES) {
            parent = xxh3_64_with_seed(block, parent);
            hashes.push(parent);
        }
    };
    extend(whole);
    let mut rest = Vec::with_capacity(tail.len() + output.len());
    rest.extend_from_slice(tail);
    rest.extend_from_slice(output);
    extend(&rest);
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_ids_convert_both_ways() {
        for example in ["", "abc", "abcd", "abcdefghi"] {
            let ids = ids(example.as_bytes());
            assert_eq!(ids.len(), count(example.as_bytes()));
            assert_eq!(text(&ids), example);
        }
    }

    #[test]
    fn generated_text_goes_on_where_it_stopped() {
        let whole = generated(1, 10, 20);
        assert_eq!(whole.len(), 80);
        assert_eq!(whole[20..], generated(1, 15, 15)[..]);
        assert_ne!(whole, generated(2, 10, 20));
    }

    #[test]
    fn the_next_prompts_chain_extends_this_ones() {
        let prompt = vec![b'p'; 150];
        let output = generated(1, 38, 40);
        let hashes = block_hashes(None, &prompt, &output);
        assert_eq!(hashes.len(), (150 + 160) / 64);
        let next = [&prompt[..], &output[..], b"\n<|tool|>more"].concat();
        assert_eq!(hashes[..], block_hashes(None, &next, b"")[..hashes.len()]);
        assert_ne!(hashes[0], block_hashes(Some("v2"), &prompt, &output)[0]);
    }
}
