//! Strips comments and literals from Rust source, so that rules check only code.

/// Whether a word occurs in some code.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

/// The source with comments, strings and characters blanked out; lines stay where they are.
pub(crate) fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, code.chars().next_back()).min(rest.len());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' }),
            );
            rest = &rest[length..];
        }
    }
    code
}

/// Length of the comment or literal that some source starts with; 0 if it starts with neither.
fn skipped(source: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if source.starts_with("//") {
        source.find('\n').unwrap_or(source.len())
    } else if source.starts_with("/*") {
        block_comment(source)
    } else if source.starts_with('"') {
        quoted(source, '"')
    } else if source.starts_with('r') && !in_word {
        raw_string(source)
    } else if source.starts_with('\'') {
        character(source)
    } else {
        0
    }
}

fn block_comment(source: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < source.len() {
        let rest = &source[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn quoted(source: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in source.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    source.len()
}

fn raw_string(source: &str) -> usize {
    let hashes = source[1..].bytes().take_while(|&b| b == b'#').count();
    if source.as_bytes().get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let start = hashes + 2;
    source[start..]
        .find(&end)
        .map_or(source.len(), |at| start + at + end.len())
}

/// A quote may also begin a lifetime, which is code.
fn character(source: &str) -> usize {
    let mut letters = source.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(source, '\''),
        _ => 0,
    }
}

#[test]
fn only_code_is_left() {
    let source = concat!(
        "let a = \"un\\\"safe\"; // unsafe\n",
        "/* unsafe /* nested */ unsafe */ let b: &'static str = r#\"unsafe \"q\" \"#;\n",
        "let c = '\"'; let d = '\\''; fn for_unsafe_code<'a>() {}\n",
    );
    let code = code_of(source);
    assert!(!has_word(&code, "unsafe"), "{code}");
    for word in ["a", "b", "c", "d", "static", "str", "for_unsafe_code"] {
        assert!(has_word(&code, word), "{word}: {code}");
    }
    assert_eq!(code.lines().count(), 3);
    assert!(has_word(&code_of("x(unsafe { y })"), "unsafe"));
}
