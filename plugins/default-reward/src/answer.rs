//! Whether an answer equals its reference.

/// Markers of a final answer, in lower case; the last one in a text counts.
const MARKS: [&str; 3] = ["####", "answer is", "answer:"];
/// Characters around a final answer that are ignored.
const WRAPPING: &[char] = &['$', '.', ',', ':', ';', '!', '?', '"', '\'', '`', '*'];
/// Maximum length of a number.
const NUMBER_BYTES_MAX: usize = 64;

/// How an answer equals its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) text: bool,
    pub(crate) number: bool,
}

/// Compares; without a reference nothing is equal.
pub(crate) fn compare(answer: &str, reference: &str, tolerance: f64) -> Compared {
    let wanted = normal(reference);
    if wanted.is_empty() {
        return Compared {
            text: false,
            number: false,
        };
    }
    let whole = normal(answer);
    // What is normal stays so in its parts, but for what then wraps them.
    let last = unwrapped(marked(&whole));
    let number = match (number(last), number(unwrapped(marked(&wanted)))) {
        (Some(found), Some(wanted)) => (found - wanted).abs() <= tolerance * wanted.abs(),
        _ => false,
    };
    Compared {
        text: whole == wanted || last == wanted,
        number,
    }
}

/// Normalises a text: lower case, single spaces, without surrounding punctuation.
fn normal(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !joined.is_empty() {
            joined.push(' ');
        }
        let start = joined.len();
        if word.is_ascii() {
            joined.push_str(word);
            joined[start..].make_ascii_lowercase();
        } else {
            joined.push_str(&word.to_lowercase());
        }
    }
    match unwrapped(&joined) {
        whole if whole.len() == joined.len() => joined,
        part => part.to_owned(),
    }
}

/// Removes surrounding punctuation.
fn unwrapped(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || WRAPPING.contains(&c))
}

/// The part of a normalised text that is marked as the final answer, or else all of it.
fn marked(text: &str) -> &str {
    if let Some(boxed) = last_boxed(text) {
        return boxed;
    }
    let after = |mark: &&str| text.rfind(mark).map(|at| at + mark.len());
    match MARKS.iter().filter_map(after).max() {
        Some(at) => &text[at..],
        None => text,
    }
}

/// The content of the last `\boxed{..}`, including nested braces.
fn last_boxed(text: &str) -> Option<&str> {
    const OPENING: &str = "\\boxed{";
    let inside = &text[text.rfind(OPENING)? + OPENING.len()..];
    let mut open = 1_u32;
    for (at, c) in inside.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

/// Parses a finite number: decimal, a fraction `a/b`, or percent; commas between digits are
/// ignored.
fn number(text: &str) -> Option<f64> {
    if text.len() > NUMBER_BYTES_MAX {
        return None;
    }
    let (text, scale) = match text.strip_suffix('%') {
        Some(rest) => (rest.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let value = match text.split_once('/') {
        Some((above, below)) => decimal(above.trim())? / decimal(below.trim())?,
        None => decimal(text)?,
    };
    Some(value * scale).filter(|value| value.is_finite())
}

/// A decimal number, not the names that the parser of floats knows.
fn decimal(text: &str) -> Option<f64> {
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let known = |byte| matches!(byte, b'0'..=b'9' | b'.' | b',' | b'+' | b'-' | b'e');
    if !digits || !text.bytes().all(known) {
        return None;
    }
    if text.contains(',') {
        return text.replace(',', "").parse().ok();
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(answer: &str, reference: &str) -> (bool, bool) {
        let compared = compare(answer, reference, 1e-6);
        (compared.text, compared.number)
    }

    #[test]
    fn the_same_text_in_another_dress() {
        assert_eq!(says("  The  Blue\nWhale.", "the blue whale"), (true, false));
        assert_eq!(
            says("I think the answer is: Paris!", "paris"),
            (true, false)
        );
        assert_eq!(says("\\boxed{\\frac{a}{b}}", "\\frac{a}{b}"), (true, false));
        assert_eq!(says("the blue whale", "blue whale"), (false, false));
    }

    #[test]
    fn the_same_number_in_another_dress() {
        for answer in [
            "1234.0",
            "1,234",
            "1.234e3",
            "#### 1234",
            "so $\\boxed{1234}$.",
            "2468/2",
            "123400%",
            "+1234",
        ] {
            assert!(says(answer, "1234").1, "{answer}");
        }
        for answer in ["1234.1", "-1234", "1234 apples", "", "12-34", "1234/0"] {
            assert!(!says(answer, "1234").1, "{answer}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "nan", "inf", "infinity", "1e999", "e", "-", "1/0", "0/0", "",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_mark_counts() {
        assert!(says("answer: 1. No, the answer is 2", "2").1);
        assert!(says("\\boxed{1} or rather \\boxed{2}", "2").1);
        assert!(!says("answer: 1. No, the answer is 2", "1").1);
    }

    #[test]
    fn without_a_reference_nothing_is_equal() {
        assert_eq!(says("", ""), (false, false));
        assert_eq!(says("x", " . "), (false, false));
    }
}
