//! Checks of what policies answer. Each names what is wrong and where, in the terms of the
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

/// One entry per row, each acceptable at its row.
pub(crate) fn each<T: Copy + Display>(
    name: &str,
    values: &[T],
    rows: usize,
    expected: impl Display,
    acceptable: impl Fn(usize, T) -> bool,
) -> Check {
    length(name, values.len(), rows)?;
    // All of them first, without a way out of the loop, which takes several values at
    // once; which one is wrong matters only when one is.
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

/// Codes of what becomes of caches.
pub(crate) fn fates(name: &str, values: &[u8], rows: usize) -> Check {
    each(name, values, rows, "a code from 0 to 3", |_, value| {
        value <= 3
    })
}

/// Rows of a table of so many.
pub(crate) fn rows_of(name: &str, values: &[u32], rows: usize, table: usize) -> Check {
    let expected = format_args!("a row below {table}");
    each(name, values, rows, expected, |_, value| {
        (value as usize) < table
    })
}

/// Distinct rows of a table, at most `wanted` of them.
pub(crate) fn selection(name: &str, values: &[u32], table: usize, wanted: u32) -> Check {
    if values.len() > wanted as usize {
        return Err(format!(
            "{name}: {} rows, expected at most {wanted}",
            values.len()
        ));
    }
    rows_of(name, values, values.len(), table)?;
    let mut seen = vec![false; table];
    for (at, &row) in values.iter().enumerate() {
        if std::mem::replace(&mut seen[row as usize], true) {
            return Err(format!("{name}: row {row} again at entry {at}"));
        }
    }
    Ok(())
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

    #[test]
    fn a_selection_is_distinct_within_the_table_and_not_too_long() {
        assert_eq!(selection("rows", &[2, 0], 3, 2), Ok(()));
        for (rows, told) in [
            (&[0, 1, 2][..], "3 rows, expected at most 2"),
            (&[3], "3 in row 0, expected a row below 3"),
            (&[1, 1], "row 1 again at entry 1"),
        ] {
            let error = selection("rows", rows, 3, 2).unwrap_err();
            assert!(error.ends_with(told), "{error}");
        }
    }
}
