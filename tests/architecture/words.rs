//! Phrases that `STYLE.md` (Text) rules out, parameters that are tuples, and the length of commit
//! subjects. What is left of the first two is counted, and the numbers may only fall.

use std::cmp::Ordering;
use std::path::Path;
use std::process::Command;

use crate::code::code_of;
use crate::none;
use crate::tree::{Source, names, read, root, sources};

/// Phrases, and how often each may occur. `alone` counts in comments and pages, the others anywhere.
const PHRASES: &[(&str, usize)] = &[
    ("so many", 0),
    ("as may be", 0),
    ("likewise.", 0),
    ("is none", 6),
    ("of which", 7),
    ("leads not", 0),
    (ALONE, 11),
];
/// Usually written for "only".
const ALONE: &str = " alone";
/// Parameters of functions in `host/` and `evidence/` whose type is a tuple.
const TUPLE_PARAMETERS_MAX: usize = 11;
/// Pages at the root. Folders are read whole.
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
];
const ENDINGS: &[&str] = &[".rs", ".md", ".ts", ".tsx", ".sh", ".wit"];
/// Files that a program writes, and this one, which quotes the phrases.
const SKIPPED: &[&str] = &[
    "docs/configuration.md",
    "docs/reference/",
    "docs/simulation-parameters.md",
    "docs/workload-parameters.md",
    "tests/architecture/words.rs",
    "web/src/api/schema.ts",
];
/// Commits whose subjects are checked, and the longest subject.
const COMMITS: usize = 100;
const SUBJECT_CHARACTERS_MAX: usize = 72;

fn texts() -> Vec<Source> {
    let folders: Vec<String> = names(".")
        .into_iter()
        .filter(|name| !name.starts_with('.') && name != "target" && root().join(name).is_dir())
        .collect();
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let mut found: Vec<Source> = ENDINGS
        .iter()
        .flat_map(|ending| sources(&folders, ending))
        .filter(|file| !SKIPPED.iter().any(|path| file.path.starts_with(path)))
        .collect();
    found.extend(PAGES.iter().map(|path| Source {
        path: (*path).to_owned(),
        text: read(path),
    }));
    assert!(found.len() > 1_000, "{} files", found.len());
    found
}

/// How often a phrase occurs as whole words. Both are in lower case.
fn occurrences(text: &str, phrase: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase)
        .filter(|(at, _)| {
            let (before, after) = (&text[..*at], &text[at + phrase.len()..]);
            let joins_before = phrase.starts_with(is_word) && before.ends_with(is_word);
            let joins_after = phrase.ends_with(is_word) && after.starts_with(is_word);
            !joins_before && !joins_after
        })
        .count()
}

/// The lines of a file that are prose: those of a page, else those that begin as comments do.
fn prose(file: &Source) -> String {
    let is_page = Path::new(&file.path)
        .extension()
        .is_some_and(|name| name == "md");
    let is_comment = |line: &&str| {
        let line = line.trim_start();
        is_page
            || ["//", "/*", "*", "#"]
                .iter()
                .any(|mark| line.starts_with(mark))
    };
    let lines: Vec<&str> = file.text.lines().filter(is_comment).collect();
    lines.join("\n")
}

/// What is wrong with a number that may only fall.
fn compare(what: &str, found: usize, allowed: usize, remedy: &str) -> Option<String> {
    match found.cmp(&allowed) {
        Ordering::Greater => Some(format!("{what}: {found}, {allowed} allowed; {remedy}")),
        Ordering::Less => Some(format!("{what}: lower the number in the list to {found}")),
        Ordering::Equal => None,
    }
}

#[test]
fn phrases_become_fewer() {
    let files = texts();
    let wrong: Vec<String> = PHRASES
        .iter()
        .filter_map(|&(phrase, allowed)| {
            let count = |file: &Source| {
                let text = if phrase == ALONE {
                    prose(file)
                } else {
                    file.text.clone()
                };
                occurrences(&text.to_lowercase(), phrase)
            };
            let found = files.iter().map(count).sum();
            let remedy = "say it in plain words (STYLE.md, Text)";
            compare(&format!("{phrase:?}"), found, allowed, remedy)
        })
        .collect();
    none("phrases whose count has changed", &wrong);
}

/// The parameters of each function in some code, as written.
fn parameters(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = code[at + 3..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let generics = if let Some(inside) = rest.strip_prefix('<') {
            pieces(inside).1 + 2
        } else {
            0
        };
        let rest = rest.get(generics..).unwrap_or_default().trim_start();
        if !is_word && rest.starts_with('(') {
            found.extend(pieces(&rest[1..]).0);
        }
    }
    found
}

/// The pieces between commas up to the bracket that closes what some code is inside of, and where
/// that bracket is.
fn pieces(code: &str) -> (Vec<&str>, usize) {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut before = ' ';
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            // An arrow closes nothing.
            '>' if before == '-' || before == '=' => {}
            ')' | ']' | '}' | '>' if depth == 0 => {
                found.push(&code[start..at]);
                return (found, at);
            }
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    (found, code.len())
}

/// Whether a parameter's type is a tuple; `()` is not.
fn is_tuple(parameter: &str) -> bool {
    parameter.split_once(": ").is_some_and(|(_, kind)| {
        let kind = kind.trim_start();
        kind.starts_with('(') && !kind.starts_with("()")
    })
}

#[test]
fn tuple_parameters_become_fewer() {
    let (mut found, mut places) = (0, Vec::new());
    for file in sources(&["host", "evidence"], ".rs") {
        let code = code_of(&file.text);
        let tuples = parameters(&code)
            .into_iter()
            .filter(|one| is_tuple(one))
            .count();
        if tuples > 0 {
            found += tuples;
            places.push(format!("{}: {tuples}", file.path));
        }
    }
    let remedy = "give the parameter a struct with named fields";
    let wrong = compare(
        "parameters that are tuples",
        found,
        TUPLE_PARAMETERS_MAX,
        remedy,
    );
    assert!(
        wrong.is_none(),
        "{}:\n  {}\n",
        wrong.unwrap_or_default(),
        places.join("\n  ")
    );
}

#[test]
fn tuples_are_recognised() {
    let code = "fn a<T: Fn(u32) -> (u8, u8)>((x, y): (u32, u32), f: impl Fn(&str) -> (A, B)) {}
        fn b(&self, c: &(A, B), d: (), e: fn((A, B))) {} fn c(
            pair: (A, Vec<(B, C)>),
        ) -> (A, B) {}";
    let tuples: Vec<_> = parameters(code)
        .into_iter()
        .filter(|one| is_tuple(one))
        .map(str::trim)
        .collect();
    assert_eq!(tuples, ["(x, y): (u32, u32)", "pair: (A, Vec<(B, C)>)"]);
}

/// Leaves a source archive and a shallow clone out: they do not have the history.
#[test]
fn subjects_of_commits_are_short() {
    let count = format!("-{COMMITS}");
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%s", &count])
        .current_dir(root())
        .output();
    let Ok(output) = output else { return };
    let subjects = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || subjects.lines().count() < COMMITS {
        return;
    }
    let long: Vec<String> = subjects
        .lines()
        .filter(|subject| subject.chars().count() > SUBJECT_CHARACTERS_MAX)
        .map(str::to_owned)
        .collect();
    let rule = format!("commit subjects of more than {SUBJECT_CHARACTERS_MAX} characters");
    none(&rule, &long);
}
