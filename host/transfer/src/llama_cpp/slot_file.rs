//! The head of llama.cpp's slot files: which tokens the KV in them is of.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// `ggsq`, as llama.cpp writes the state of one sequence.
const MAGIC: u32 = 0x6767_7371;
/// Precedes the server's own form of a slot's tokens; a plain list begins with a token.
const WRAPPED: u32 = u32::MAX;
/// The server's form that is known.
const WRAPPED_FORM: u32 = 1;
/// Most tokens that are read.
const TOKENS_MAX: usize = 16 << 20;

/// The tokens that a file's KV is of; `None` where its head is of an unknown form. The engine
/// compares a prompt with them on its own, too, before it uses what it has restored.
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
    fn both_forms_are_read_and_others_are_not_guessed() {
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
