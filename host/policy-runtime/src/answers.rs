//! Checks of policies' answers. Each error names the fault and its place, in the terms of the
//! contract.

use std::fmt::Display;

use crate::instance::Check;

/// One entry per row.
pub(crate) fn length(name: &str, found: usize, rows: usize) -> Check {
    if found == rows {
        return Ok(());
    }
    Err(format!("{name}: {found} values for {rows} rows"))
}

/// One valid entry per row.
pub(crate) fn each<T: Copy + Display>(
    name: &str,
    values: &[T],
    rows: usize,
    expected: impl Display,
    acceptable: impl Fn(usize, T) -> bool,
) -> Check {
    length(name, values.len(), rows)?;
    // Checks all values first, in a loop without an early exit, which the compiler vectorizes;
    // which one is wrong only matters if one is.
    let all = values
        .iter()
        .enumerate()
        .fold(true, |all, (row, &value)| all & acceptable(row, value));
    if all {
        return Ok(());
    }
    let wrong = |(row, &value): (usize, &T)| !acceptable(row, value);
    match values.iter().enumerate().position(wrong) {
        None => Ok(()),
        Some(row) => Err(format!(
            "{name}: {} in row {row}, expected {expected}",
            values[row]
        )),
    }
}

/// Finite numbers.
pub(crate) fn finite(name: &str, values: &[f64], rows: usize) -> Check {
    each(name, values, rows, "a finite number", |_, value| {
        value.is_finite()
    })
}

/// Finite numbers, none negative.
pub(crate) fn not_negative(name: &str, values: &[f64], rows: usize) -> Check {
    let expected = "a finite number not below 0";
    each(name, values, rows, expected, |_, value| {
        value.is_finite() && value >= 0.0
    })
}

/// Shares, within 0 and 1.
pub(crate) fn shares(name: &str, values: &[f64], rows: usize) -> Check {
    each(name, values, rows, "0 to 1", |_, value| {
        (0.0..=1.0).contains(&value)
    })
}

/// Row numbers of a table with `table` rows.
pub(crate) fn rows_of(name: &str, values: &[u32], rows: usize, table: usize) -> Check {
    let expected = format_args!("a row below {table}");
    each(name, values, rows, expected, |_, value| {
        (value as usize) < table
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_its_row() {
        let told = finite("scores", &[1.0, f64::INFINITY], 2).unwrap_err();
        assert_eq!(told, "scores: inf in row 1, expected a finite number");
        let told = finite("scores", &[1.0], 2).unwrap_err();
        assert_eq!(told, "scores: 1 values for 2 rows");
        assert!(shares("weights", &[0.0, 1.0], 2).is_ok());
        assert!(shares("weights", &[-0.1], 1).is_err());
        assert!(not_negative("tokens", &[f64::NAN], 1).is_err());
    }
}
