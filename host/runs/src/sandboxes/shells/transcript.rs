//! Unread output of a shell, with a size limit beyond which the middle is dropped.

use super::typed::{Nonce, without_marks};
use regex::bytes::Regex;

/// Most bytes of a shell's output that are kept: of these, four ninths of the beginning and of the
/// end; when all are used, the middle is dropped.
pub(super) const BYTES_MAX: usize = 1_152 << 10;
/// Longest exit code in a marker.
const CODE_BYTES_MAX: usize = 12;
/// Patterns are searched for in this many of the last bytes.
const LOOK_BYTES: usize = 64 << 10;

/// Unread output of a shell.
#[derive(Debug)]
pub(super) struct Transcript {
    /// Most bytes that are kept.
    bytes_max: usize,
    /// The shell's prompt, which is not part of its output.
    prompt: String,
    bytes: Vec<u8>,
    /// The position and the number of dropped bytes.
    hole: Option<(usize, u64)>,
    /// The command whose end was searched for last, and the position up to which it is not.
    looked: Option<(Nonce, usize)>,
}

impl Transcript {
    /// The transcript of a shell with this prompt, of at most this many bytes.
    pub(super) fn new(prompt: &str, bytes_max: usize) -> Self {
        Self {
            bytes_max,
            prompt: prompt.to_owned(),
            bytes: Vec::new(),
            hole: None,
            looked: None,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if self.bytes.len() > self.bytes_max {
            let half = self.bytes_max / 9 * 4;
            let cut = self.bytes.len() - 2 * half;
            self.bytes.drain(half..half + cut);
            let before = self.hole.map_or(0, |(_, missing)| missing);
            self.hole = Some((half, before + cut as u64));
            if let Some((_, to)) = &mut self.looked {
                *to = to.saturating_sub(cut);
            }
        }
    }

    /// Takes all of it.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.take_to(self.bytes.len())
    }

    /// Takes the bytes before a position.
    fn take_to(&mut self, at: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(at);
        let mut taken = std::mem::replace(&mut self.bytes, rest);
        self.looked = None;
        match self.hole {
            Some((hole, missing)) if hole < at => {
                let mark = format!("\n[treadle: {missing} bytes omitted]\n");
                taken.splice(hole..hole, mark.into_bytes());
                self.hole = None;
            }
            Some((hole, missing)) => self.hole = Some((hole - at, missing)),
            None => {}
        }
        self.without_prompts(&without_marks(&taken))
    }

    /// Drops all before a command's output, including the echo of its input.
    pub(super) fn skip_to(&mut self, nonce: &Nonce) -> bool {
        let mark = nonce.begin();
        let found = find(&self.bytes, &mark);
        if let Some(at) = found {
            self.take_to(at + mark.len());
        }
        found.is_some()
    }

    /// A command's output and exit code, once it has ended. Later output stays.
    pub(super) fn ended(&mut self, nonce: &Nonce) -> Option<(Vec<u8>, i32)> {
        let mark = nonce.end();
        let looked = self.looked.take().filter(|(of, _)| of == nonce);
        let from = looked.map_or(0, |(_, to)| to);
        let Some(at) = find(&self.bytes[from..], &mark) else {
            let to = self.bytes.len().saturating_sub(mark.len());
            self.looked = Some((nonce.clone(), to));
            return None;
        };
        let at = from + at;
        let rest = &self.bytes[at + mark.len()..];
        let close = rest.iter().take(CODE_BYTES_MAX).position(|b| *b == 2)?;
        let code = std::str::from_utf8(&rest[..close]).ok()?;
        let code = code.parse().unwrap_or(0);
        let output = self.take_to(at);
        self.take_to(mark.len() + close + 1);
        Some((output, code))
    }

    /// Takes the output up to and including the first match of some patterns. Returns the output
    /// before it, and the pattern's index.
    pub(super) fn matched(&mut self, patterns: &[Regex]) -> Option<(Vec<u8>, usize)> {
        let from = self.bytes.len().saturating_sub(LOOK_BYTES);
        let look = &self.bytes[from..];
        let found = patterns.iter().enumerate().filter_map(|(which, pattern)| {
            let found = pattern.find(look)?;
            Some((found.start(), which, found.end()))
        });
        let (start, which, end) = found.min()?;
        let output = self.take_to(from + start);
        self.take_to(end - start);
        Some((output, which))
    }

    /// Removes the prompts in the output so far.
    pub(super) fn forget_prompts(&mut self) {
        if self.has_prompt() {
            self.bytes = self.without_prompts(&self.bytes);
            self.looked = None;
        }
    }

    /// Whether the output has a prompt, which means that the shell waits for a command.
    pub(super) fn has_prompt(&self) -> bool {
        find(&self.bytes, self.prompt.as_bytes()).is_some()
    }

    fn without_prompts(&self, bytes: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(at) = find(rest, self.prompt.as_bytes()) {
            kept.extend(&rest[..at]);
            rest = &rest[at + self.prompt.len()..];
        }
        kept.extend(rest);
        kept
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce() -> Nonce {
        Nonce::new().expect("random numbers")
    }

    #[test]
    fn output_is_between_its_marks_however_the_bytes_come() {
        let (mine, other) = (nonce(), nonce());
        let prompt = nonce().prompt();
        let mut whole = format!("typed {prompt}").into_bytes();
        whole.extend(mine.begin());
        whole.extend(b"one SHELLPS1PREFIX\n");
        whole.extend(other.end());
        whole.extend(b"9\x02two");
        whole.extend(mine.end());
        whole.extend(format!("7\x02{prompt}late").into_bytes());
        for piece in 1..40 {
            let (mut transcript, mut found) = (Transcript::new(&prompt, BYTES_MAX), None);
            let mut began = false;
            for bytes in whole.chunks(piece) {
                transcript.add(bytes);
                began |= transcript.skip_to(&mine);
                found = found.or_else(|| transcript.ended(&mine));
            }
            assert!(began);
            assert_eq!(found, Some((b"one SHELLPS1PREFIX\ntwo".to_vec(), 7)));
            assert_eq!(transcript.take(), b"late");
        }
    }

    #[test]
    fn a_long_output_loses_its_middle_and_keeps_its_end() {
        let mine = nonce();
        let bytes_max = 64 << 10;
        let mut transcript = Transcript::new(&mine.prompt(), bytes_max);
        transcript.add(b"first");
        for _ in 0..64 {
            transcript.add(&vec![b'x'; 16 << 10]);
            assert!(transcript.bytes.len() <= bytes_max);
        }
        transcript.add(b"last");
        transcript.add(&mine.end());
        transcript.add(b"0\x02");
        let (output, code) = transcript.ended(&mine).expect("it ended");
        assert_eq!(code, 0);
        assert!(output.starts_with(b"first") && output.ends_with(b"last"));
        let text = String::from_utf8(output).expect("text");
        assert!(text.contains("bytes omitted]"), "{}", text.len());
    }

    #[test]
    fn the_earliest_pattern_counts() {
        let prompt = nonce().prompt();
        let patterns = ["b+", ">>> ", &prompt].map(|text| Regex::new(text).expect("one"));
        let mut transcript = Transcript::new(&prompt, BYTES_MAX);
        transcript.add(b"42\n");
        assert_eq!(transcript.matched(&patterns), None);
        transcript.add(format!(">>> bb SHELLPS1PREFIX {prompt}").as_bytes());
        assert_eq!(transcript.matched(&patterns), Some((b"42\n".to_vec(), 1)));
        assert_eq!(transcript.matched(&patterns), Some((Vec::new(), 0)));
        assert!(transcript.has_prompt());
        assert_eq!(
            transcript.matched(&patterns),
            Some((b" SHELLPS1PREFIX ".to_vec(), 2))
        );
        assert!(!transcript.has_prompt());
    }
}
