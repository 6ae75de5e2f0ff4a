//! Captures output within a limit: the first and the last bytes are kept.

use std::collections::VecDeque;

/// A buffer for the first and the last bytes of an output.
#[derive(Debug)]
pub struct Capture {
    half_max: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Capture {
    /// Keeps at most `bytes_max` bytes, half of them from the end.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            half_max: bytes_max / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            left_out: 0,
        }
    }

    /// Adds output.
    pub fn take(&mut self, bytes: &[u8]) {
        let to_head = bytes.len().min(self.half_max - self.head.len());
        let (head, rest) = bytes.split_at(to_head);
        self.head.extend_from_slice(head);
        // Only the last bytes of a large piece can be kept.
        let kept = &rest[rest.len().saturating_sub(self.half_max)..];
        let too_many = (self.tail.len() + kept.len()).saturating_sub(self.half_max);
        self.tail.drain(..too_many);
        self.tail.extend(kept);
        self.left_out += (rest.len() - kept.len() + too_many) as u64;
    }

    /// The kept bytes, with a mark in place of those left out.
    pub fn finish(self) -> Vec<u8> {
        let mut all = self.head;
        if self.left_out > 0 {
            let mark = format!("\n[treadle left out {} bytes here]\n", self.left_out);
            all.extend_from_slice(mark.as_bytes());
        }
        all.extend(self.tail);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_however_the_bytes_come() {
        let whole: Vec<u8> = (b'a'..=b'z').collect();
        for piece in 1..=26 {
            let mut all = Capture::new(26);
            let mut some = Capture::new(8);
            for bytes in whole.chunks(piece) {
                all.take(bytes);
                some.take(bytes);
            }
            assert_eq!(all.finish(), whole, "{piece}");
            let some = String::from_utf8(some.finish()).unwrap();
            assert_eq!(
                some, "abcd\n[treadle left out 18 bytes here]\nwxyz",
                "{piece}"
            );
        }
        assert_eq!(Capture::new(0).finish(), b"");
    }
}
