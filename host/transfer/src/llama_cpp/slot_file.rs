//! Reads the tokens in the header of llama.cpp's slot files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Magic number `ggsq` of llama.cpp's file format for one sequence.
const MAGIC: u32 = 0x6767_7371;
/// Marks the server's own token format; a plain list begins with a token.
const WRAPPED: u32 = u32::MAX;
/// The supported version of the server's format.
const WRAPPED_FORM: u32 = 1;
/// Maximum number of tokens.
const TOKENS_MAX: usize = 16 << 20;

/// The tokens of the file's KV; `None` if the format is unknown. The engine also compares a prompt
/// with them before it uses a restored slot.
pub(crate) fn tokens(path: &Path) -> Option<Vec<u32>> {
    let mut file = File::open(path).ok()?;
    let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let mut head = [0; 12];
    file.read_exact(&mut head).ok()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let count = usize::try_from(word(8)).ok()?;
    if word(0) != MAGIC || count > TOKENS_MAX || count > bytes.saturating_sub(head.len()) / 4 {
        return None;
    }
    let mut words = vec![0; 4 * count];
    file.read_exact(&mut words).ok()?;
    let words: Vec<u32> = words
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    unwrapped(words)
}

fn unwrapped(words: Vec<u32>) -> Option<Vec<u32>> {
    if words.first() != Some(&WRAPPED) {
        return Some(words);
    }
    let [_, WRAPPED_FORM, count, rest @ ..] = &*words else {
        return None;
    };
    rest.get(..usize::try_from(*count).ok()?)
        .map(<[u32]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[u32]) -> Option<Vec<u32>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(file.path(), bytes).unwrap();
        tokens(file.path())
    }

    #[test]
    fn both_formats_are_read_and_others_are_unknown() {
        assert_eq!(read(&[MAGIC, 2, 2, 7, 8, 99, 99]), Some(vec![7, 8]));
        let wrapped = [MAGIC, 4, 6, WRAPPED, 1, 2, 7, 8, 0, 99];
        assert_eq!(read(&wrapped), Some(vec![7, 8]));
        assert_eq!(read(&[MAGIC, 4, 6, WRAPPED, 2, 2, 7, 8, 0, 99]), None);
        assert_eq!(read(&[MAGIC, 4, 5, WRAPPED, 1, 3, 7, 8]), None);
        assert_eq!(read(&[MAGIC, 2, 9, 7, 8]), None);
        assert_eq!(read(&[1, 2, 2, 7, 8]), None);
        assert_eq!(read(&[]), None);
    }
}
