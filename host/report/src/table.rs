//! Plain text tables with heads; columns of numbers are right-aligned.

/// Rows of cells under heads; a row may have fewer cells than there are heads.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let longest = cells.map(|cell| cell.chars().count()).max();
        longest.unwrap_or(0).max(heads[column].chars().count())
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let is_number = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        cells.all(|cell| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        })
    };
    let right: Vec<bool> = (0..heads.len()).map(is_number).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(if column > 0 { "  " } else { "" });
            let cell = if right[column] {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number with about four digits, for people.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10_000.0 => grouped(value.round() as i64),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Groups digits by thousands.
fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["p50".to_owned(), "1.50".to_owned(), "s".to_owned()],
            vec!["longer".to_owned(), "12,345".to_owned()],
        ];
        let expected = [
            "name     value  unit",
            "p50       1.50  s",
            "longer  12,345",
            "",
        ];
        assert_eq!(
            table(&["name", "value", "unit"], &rows),
            expected.join("\n")
        );
    }

    #[test]
    fn numbers_keep_significant_digits() {
        let cases = [
            (0.0, "0"),
            (0.123_4, "0.123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (345.6, "346"),
            (9_999.4, "9999"),
            (1_234_567.0, "1,234,567"),
            (-12_345.0, "-12,345"),
            (f64::NAN, "-"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }
}
