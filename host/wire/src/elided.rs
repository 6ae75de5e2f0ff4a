//! JSON whose long strings are cut while it is read, so that responses of hundreds of megabytes,
//! mostly one base64 string, can be parsed in bounded memory.

use memchr::{memchr, memchr2};

/// Most bytes of a string that are kept.
const STRING_BYTES_MAX: usize = 64 << 10;
/// The longest escape. Two may make one character.
const ESCAPE_BYTES_MAX: usize = 6;

/// A text that arrives in pieces, without most of its long strings.
#[derive(Debug)]
pub struct Elided {
    text: Vec<u8>,
    bytes_max: usize,
    string: Option<InString>,
    is_beyond: bool,
}

/// Where in a string the text ends.
#[derive(Clone, Copy, Debug)]
struct InString {
    /// Where it begins in the kept text.
    begin: usize,
    /// Bytes of it so far.
    bytes: usize,
    /// Whether the last byte was a backslash.
    is_escaped: bool,
    /// Whether the rest of it is dropped.
    is_cut: bool,
}

impl Elided {
    /// An empty text with a limit in bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            text: Vec::new(),
            bytes_max,
            string: None,
            is_beyond: false,
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !rest.is_empty() && !self.is_beyond {
            rest = match self.string {
                None => self.outside(rest),
                Some(string) => self.inside(string, rest),
            };
            if self.text.len() > self.bytes_max {
                (self.is_beyond, self.text) = (true, Vec::new());
            }
        }
    }

    /// The text so far; `None` if it exceeds the limit even without long strings.
    pub fn text(&self) -> Option<&[u8]> {
        (!self.is_beyond).then_some(&self.text)
    }

    /// Reads up to the next string; returns the rest.
    fn outside<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let end = memchr(b'"', rest).map_or(rest.len(), |quote| quote + 1);
        let (part, rest) = rest.split_at(end);
        self.text.extend_from_slice(part);
        if part.ends_with(b"\"") {
            self.string = Some(InString {
                begin: self.text.len(),
                bytes: 0,
                is_escaped: false,
                is_cut: false,
            });
        }
        rest
    }

    /// Reads up to the string's end or the next escape; returns the rest.
    fn inside<'p>(&mut self, mut string: InString, rest: &'p [u8]) -> &'p [u8] {
        let end = if std::mem::take(&mut string.is_escaped) {
            1
        } else {
            match memchr2(b'"', b'\\', rest) {
                Some(0) if rest[0] == b'"' => {
                    self.text.push(b'"');
                    self.string = None;
                    return &rest[1..];
                }
                Some(0) => {
                    string.is_escaped = true;
                    1
                }
                Some(at) => at,
                None => rest.len(),
            }
        };
        let (part, rest) = rest.split_at(end);
        self.keep(&mut string, part);
        self.string = Some(string);
        rest
    }

    fn keep(&mut self, string: &mut InString, part: &[u8]) {
        if string.is_cut {
            return;
        }
        let part = &part[..part.len().min(STRING_BYTES_MAX - string.bytes)];
        self.text.extend_from_slice(part);
        string.bytes += part.len();
        if string.bytes == STRING_BYTES_MAX {
            string.is_cut = true;
            self.trim(string.begin);
        }
    }

    /// Removes a possibly incomplete character or escape from the end of the string that begins
    /// there.
    fn trim(&mut self, begin: usize) {
        // Repeated, because the preceding escape may be the first half of a pair.
        loop {
            let tail = begin.max(self.text.len().saturating_sub(ESCAPE_BYTES_MAX));
            let Some(at) = memchr(b'\\', &self.text[tail..]) else {
                break;
            };
            self.text.truncate(tail + at);
        }
        while self.text.last().is_some_and(|byte| !byte.is_ascii()) {
            self.text.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn elided(text: &str, size: usize, bytes_max: usize) -> Option<Value> {
        let mut elided = Elided::new(bytes_max);
        text.as_bytes()
            .chunks(size)
            .for_each(|piece| elided.push(piece));
        let text = elided.text()?;
        Some(serde_json::from_slice(text).expect("it is JSON still"))
    }

    #[test]
    fn long_strings_are_cut_and_the_rest_stays() {
        let long = "QUJD".repeat(1 << 20);
        let text = json!({"a": 1, "long": long, "b": [{"c": "d\"\\e"}], "f": ""}).to_string();
        for size in [7, 4_096, text.len()] {
            let found = elided(&text, size, 1 << 20).expect("within the bound");
            assert_eq!(found["long"].as_str().map(str::len), Some(STRING_BYTES_MAX));
            assert_eq!(
                (&found["a"], &found["b"], &found["f"]),
                (&json!(1), &json!([{"c": "d\"\\e"}]), &json!(""))
            );
        }
        let numbers = json!(vec![1; 600_000]).to_string();
        assert_eq!(elided(&numbers, 1_000, 1 << 20), None);
        assert_eq!(
            elided(&numbers, 1_000, 2 << 20),
            Some(json!(vec![1; 600_000]))
        );
    }

    #[test]
    fn no_character_and_no_escape_is_cut_in_two() {
        for part in [
            "é",
            "\u{1f600}",
            "\\n",
            "\\\\",
            "\\\"",
            "\\u00e9",
            "\\ud83d\\ude00",
            "\\\\n",
        ] {
            for before in 0..14 {
                let text = format!(
                    "{{\"s\":\"{}{}\",\"n\":1}}",
                    "x".repeat(before),
                    part.repeat(70_000)
                );
                let found = elided(&text, 1_021, 1 << 20).expect("within the bound");
                assert_eq!(found["n"], 1, "{part} behind {before}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_has_no_long_strings_stays_as_it_is(
            text in "([{}\\[\\],:0-9]|\"([a-z]|\\\\\"|\\\\\\\\|é)*\"){0,40}",
            size in 1_usize..9,
        ) {
            let mut elided = Elided::new(1 << 20);
            text.as_bytes().chunks(size).for_each(|piece| elided.push(piece));
            prop_assert_eq!(elided.text(), Some(text.as_bytes()));
        }
    }
}
