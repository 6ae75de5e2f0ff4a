//! Text as Python reads, writes and quotes it, because clients show it to models unchanged.

use std::fmt::Write as _;

/// Decodes bytes; those that are not UTF-8 become `\xff`.
pub(crate) fn decoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Terminal output without colours and added carriage returns.
pub(super) fn of_terminal(bytes: &[u8]) -> String {
    without_escapes(&decoded(bytes)).replace("\r\n", "\n")
}

/// Removes `ESC [@-_][0-?]*[ -/]*[@-~]`.
fn without_escapes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        kept.push_str(&rest[..at]);
        let length = escape_length(&rest.as_bytes()[at..]);
        if length == 0 {
            kept.push('\x1b');
        }
        rest = &rest[at + length.max(1)..];
    }
    kept.push_str(rest);
    kept
}

fn escape_length(bytes: &[u8]) -> usize {
    if !bytes.get(1).is_some_and(|byte| matches!(byte, b'@'..=b'_')) {
        return 0;
    }
    let run = |from: usize, is_in: fn(&u8) -> bool| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| is_in(byte)).count()
    };
    let mut end = 2;
    end += run(end, |byte| matches!(byte, b'0'..=b'?'));
    end += run(end, |byte| matches!(byte, b' '..=b'/'));
    match bytes.get(end) {
        Some(b'@'..=b'~') => end + 1,
        _ => 0,
    }
}

/// Converts line ends as Python's text mode does.
pub(super) fn universal_newlines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Python's `repr` of a string.
pub(super) fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut written = String::with_capacity(text.len() + 2);
    written.push(quote);
    for letter in text.chars() {
        match letter {
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            '\\' => written.push_str("\\\\"),
            _ if letter == quote => {
                written.push('\\');
                written.push(letter);
            }
            _ if letter.is_control() => {
                let _ = write!(written, "\\x{:02x}", u32::from(letter));
            }
            _ => written.push(letter),
        }
    }
    written.push(quote);
    written
}

/// Why bytes can't be decoded.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Undecodable {
    /// The encoding is unknown.
    Encoding(String),
    /// The error handler is unknown.
    Errors(String),
    /// The bytes are invalid in the encoding.
    Bytes(String),
}

/// Decodes bytes in an encoding with this Python name.
pub(super) fn read(
    bytes: &[u8],
    encoding: Option<&str>,
    errors: Option<&str>,
) -> Result<String, Undecodable> {
    let named = encoding.unwrap_or("utf-8");
    let plain = named.to_ascii_lowercase().replace(['_', ' '], "-");
    match plain.as_str() {
        "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" | "8859" | "l1" => {
            Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
        }
        "utf-8" | "utf8" | "u8" => of_chunks(bytes, "utf-8", "invalid start byte", errors),
        "utf-8-sig" => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            of_chunks(bytes, "utf-8", "invalid start byte", errors)
        }
        "ascii" | "us-ascii" | "646" if bytes.is_ascii() => of_chunks(bytes, "ascii", "", errors),
        "ascii" | "us-ascii" | "646" => {
            let at = bytes.iter().position(|byte| !byte.is_ascii());
            let at = at.unwrap_or_default();
            let reason = "ordinal not in range(128)";
            Err(undecodable("ascii", bytes[at], at, reason))
        }
        _ => Err(Undecodable::Encoding(named.to_owned())),
    }
}

fn undecodable(codec: &str, byte: u8, at: usize, reason: &str) -> Undecodable {
    let message =
        format!("'{codec}' codec can't decode byte 0x{byte:02x} in position {at}: {reason}");
    Undecodable::Bytes(message)
}

fn of_chunks(
    bytes: &[u8],
    codec: &str,
    reason: &str,
    errors: Option<&str>,
) -> Result<String, Undecodable> {
    let errors = errors.unwrap_or("strict");
    let mut text = String::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        at += chunk.valid().len();
        let Some(first) = chunk.invalid().first() else {
            continue;
        };
        match errors {
            "strict" => {
                let is_cut = at + chunk.invalid().len() == bytes.len();
                let reason = match *first {
                    0xc2..=0xf4 if is_cut => "unexpected end of data",
                    0xc2..=0xf4 => "invalid continuation byte",
                    _ => reason,
                };
                return Err(undecodable(codec, *first, at, reason));
            }
            "ignore" => {}
            "replace" => text.push('\u{fffd}'),
            "backslashreplace" => {
                for byte in chunk.invalid() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            other => return Err(Undecodable::Errors(other.to_owned())),
        }
        at += chunk.invalid().len();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminals_output_is_plain_text() {
        let sent = b"\x1b[31mred\x1b[0m\r\n\xff\xc3\xa9\r\r\n\x1b";
        assert_eq!(of_terminal(sent), "red\n\\xffé\r\n\u{1b}");
    }

    #[test]
    fn text_is_quoted_as_python_does() {
        assert_eq!(repr("a'b"), "\"a'b\"");
        assert_eq!(repr("a'b\"c"), "'a\\'b\"c'");
        assert_eq!(repr("é\n\\\t\u{1}"), "'é\\n\\\\\\t\\x01'");
    }

    #[test]
    fn bytes_are_read_in_the_encodings_that_clients_name() {
        assert_eq!(read(b"\xff", Some("latin-1"), None), Ok("ÿ".to_owned()));
        assert_eq!(read("é".as_bytes(), None, None), Ok("é".to_owned()));
        let wrong = read(b"ab\xb0c", Some("UTF_8"), None).expect_err("no text");
        let message = "'utf-8' codec can't decode byte 0xb0 in position 2: invalid start byte";
        assert_eq!(wrong, Undecodable::Bytes(message.to_owned()));
        let lenient = |errors| read(b"a\xb0", None, Some(errors));
        assert_eq!(lenient("ignore"), Ok("a".to_owned()));
        assert_eq!(lenient("replace"), Ok("a\u{fffd}".to_owned()));
        assert_eq!(lenient("backslashreplace"), Ok("a\\xb0".to_owned()));
        let unknown = read(b"a", Some("nope"), None);
        assert_eq!(unknown, Err(Undecodable::Encoding("nope".to_owned())));
    }
}
