//! Standard output: text and tables for people, JSON for programs.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};

use serde_json::Value;

use super::error::CliError;

/// Shown for missing values.
const NOTHING: &str = "-";
/// Maximum width of a table's cell, in characters.
const CELL_CHARS_MAX: usize = 100;

/// A column of a table: its head, and the JSON pointer of its value in a row.
///
/// Pointers that end with `at_us` are shown as times, others that end with `_us` as seconds.
pub(super) type Column = (&'static str, &'static str);

/// Writes a text with a final newline. Terminal controls in it are escaped.
pub(super) fn print_text(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let line = text.strip_suffix('\n').unwrap_or(text);
    let written = writeln!(out, "{}", harmless(line));
    written.and_then(|()| out.flush()).map_err(|cause| {
        if cause.kind() == ErrorKind::BrokenPipe {
            CliError::OutputClosed
        } else {
            let what = "can't write to the standard output";
            CliError::System { what, cause }
        }
    })
}

/// Writes a line to standard error.
pub(super) fn print_notice(line: &str) {
    // A closed standard error is ignored.
    let _ = writeln!(std::io::stderr(), "{}", harmless(line));
}

/// Writes indented JSON.
pub(super) fn print_json(value: &Value) -> Result<(), CliError> {
    print_text(&format!("{value:#}"))
}

/// Writes a table, or `empty` if it has no rows.
pub(super) fn print_table(columns: &[Column], rows: &[Value], empty: &str) -> Result<(), CliError> {
    if rows.is_empty() {
        return print_text(empty);
    }
    print_text(&table(columns, rows))
}

/// Rows under heads; columns of numbers are right-aligned.
pub(super) fn table(columns: &[Column], rows: &[Value]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|(_, at)| cell(row, at)).collect())
        .collect();
    let width = |column: usize| {
        let cells = cells.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(columns[column].0.len())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let is_number = |(_, at): &Column| {
        rows.iter()
            .filter_map(|row| row.pointer(at))
            .all(|value| (value.is_number() || value.is_null()) && !at.ends_with("at_us"))
    };
    let right: Vec<bool> = columns.iter().map(is_number).collect();
    let heads: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(&cells) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let padding = " ".repeat(width - cell.chars().count());
            let parts = if right[column] {
                [&padding, cell]
            } else {
                [cell, &padding]
            };
            line.extend(parts.into_iter().map(String::as_str));
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `name  value` lines with aligned values.
pub(super) fn fields(fields: &[Column], value: &Value) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, at): &Column| format!("{name:<width$}  {}\n", cell(value, at));
    fields.iter().map(line).collect()
}

fn cell(row: &Value, at: &str) -> String {
    let value = row.pointer(at).unwrap_or(&Value::Null);
    let text = match value {
        Value::Number(number) => match number.as_u64() {
            Some(us) if at.ends_with("at_us") => instant(us),
            Some(us) if at.ends_with("_us") => format!("{:.3}", us as f64 / 1e6),
            _ => number.to_string(),
        },
        other => plain(other),
    };
    shortened(&text, CELL_CHARS_MAX)
}

/// A value for people: text without quotes, `-` for nothing.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) if text.is_empty() => NOTHING.to_owned(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

/// Escapes names, which come from clients: they must not control the terminal or imitate others.
fn printable(text: &str) -> String {
    let visible = |c: char| if acts(c) { '\u{fffd}' } else { c };
    text.chars().map(visible).collect()
}

/// Whether a character controls the terminal: C0 and C1 controls, bidirectional controls and
/// invisible characters. Joiners are part of how letters and symbols are written.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
        )
}

/// Escapes terminal controls, except line ends and tabs, as JSON does, so that JSON output stays
/// equivalent.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| matches!(c, '\n' | '\t') || !acts(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    for c in text.replace("\r\n", "\n").chars() {
        if is_shown(c) {
            harmless.push(c);
        } else {
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(harmless)
}

/// At most `chars_max` characters, with a mark if any are left out.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept = text.chars().take(chars_max.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Microseconds since 1970 as `2026-01-31 12:00:00.000`, in UTC.
pub(super) fn instant(us: u64) -> String {
    let (days, of_day_ms) = (us / 86_400_000_000, us / 1_000 % 86_400_000);
    let (year, month, day) = date(days);
    let (seconds, ms) = (of_day_ms / 1_000, of_day_ms % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{ms:03}")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day comes last.
    let days = days_since_1970 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + carry, month, of_month)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_right_aligned() {
        let rows = [
            json!({"id": "a", "tokens": 5, "waited_us": 1_500_000}),
            json!({"id": "long\u{1b}[2J", "tokens": 1234, "waited_us": null}),
        ];
        let columns = [
            ("ID", "/id"),
            ("TOKENS", "/tokens"),
            ("WAITED S", "/waited_us"),
        ];
        let expected = [
            "ID        TOKENS  WAITED S",
            "a              5     1.500",
            "long\u{fffd}[2J    1234         -",
            "",
        ];
        assert_eq!(table(&columns, &rows), expected.join("\n"));
        let lines = fields(&[("id", "/id"), ("tokens", "/tokens")], &rows[0]);
        assert_eq!(lines, "id      a\ntokens  5\n");
    }

    #[test]
    fn nothing_that_is_printed_acts_on_a_terminal() {
        let evil =
            "a\u{1b}]0;x\u{7}\r\u{8}\u{7f}\u{9b}2J\u{202e}txt.\u{2066}\u{200b}\u{feff}\u{2028}z";
        let shown = harmless(evil);
        assert!(!shown.chars().any(acts), "{shown:?}");
        assert!(shown.starts_with("a\\u001b]0;x\\u0007\\u000d\\u0008\\u007f\\u009b2J\\u202etxt."));
        assert!(!plain(&json!(evil)).chars().any(acts));
        // Characters that JSON leaves unescaped are escaped.
        let value = json!({"name": evil});
        let line = value.to_string();
        let read: Value = serde_json::from_str(&harmless(&line)).expect("JSON");
        assert_eq!(read, value);
        let good = "a\tb\nü 日本 👩\u{200d}💻 می\u{200c}خواهم";
        assert_eq!(harmless(good), good);
        assert_eq!(harmless("a\r\nb\u{7}"), "a\nb\\u0007");
    }

    #[test]
    fn instants_are_dates_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (951_868_800, "2000-03-01 00:00:00.000"),
            (1_735_689_599, "2024-12-31 23:59:59.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(instant(seconds * 1_000_000), expected);
        }
        assert_eq!(instant(3_723_004_999), "1970-01-01 01:02:03.004");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }
}
