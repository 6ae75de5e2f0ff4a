//! Linear least squares with coefficients that are not negative, for a handful of coefficients.
//!
//! The best non-negative solution is the unconstrained one over the columns that it uses. With
//! few columns all subsets are tried, which needs no iteration and cannot stop short.

/// Columns at most: subsets double with each.
pub(super) const COLUMNS_MAX: usize = 8;
/// A further column must take this share off the error, or the simpler solution is kept.
const GAIN_MIN: f64 = 1e-4;
/// A pivot below this share of its column's length means that the columns depend on one another.
const PIVOT_MIN: f64 = 1e-9;

/// One equation: coefficients times `row` should give `value`; an error counts `weight` times.
#[derive(Clone, Debug)]
pub(super) struct Equation<const N: usize> {
    pub(super) row: [f64; N],
    pub(super) value: f64,
    pub(super) weight: f64,
}

/// Coefficients of the least sum of squared weighted errors, and that sum, among the subsets of the
/// columns that hold all of the mask `needed`. `None` if none of them has a solution.
pub(super) fn solve<const N: usize>(
    equations: &[Equation<N>],
    needed: u32,
) -> Option<([f64; N], f64)> {
    const { assert!(N <= COLUMNS_MAX) };
    let holds = |subset: &u32| subset & needed == needed;
    let mut subsets: Vec<u32> = (1..1_u32 << N).filter(holds).collect();
    subsets.sort_by_key(|subset| (subset.count_ones(), *subset));
    let scale: f64 = equations.iter().map(|e| (e.value * e.weight).powi(2)).sum();
    let mut best: Option<([f64; N], f64)> = None;
    for subset in subsets {
        let columns: Vec<usize> = (0..N).filter(|at| subset & 1 << at != 0).collect();
        let Some(found) = solve_columns(equations, &columns) else {
            continue;
        };
        if found.iter().any(|coefficient| *coefficient < 0.0) {
            continue;
        }
        let error = squared_error(equations, &found);
        let beats = |best: f64| error < best * (1.0 - GAIN_MIN) - scale * 1e-18;
        if best.as_ref().is_none_or(|(_, least)| beats(*least)) {
            best = Some((found, error));
        }
    }
    best
}

fn squared_error<const N: usize>(equations: &[Equation<N>], coefficients: &[f64; N]) -> f64 {
    let error = |each: &Equation<N>| {
        let told: f64 = each.row.iter().zip(coefficients).map(|(a, b)| a * b).sum();
        ((each.value - told) * each.weight).powi(2)
    };
    equations.iter().map(error).sum()
}

/// The unconstrained solution over some columns, by orthogonalising them one after another, which
/// keeps twice the digits that normal equations keep.
fn solve_columns<const N: usize>(equations: &[Equation<N>], columns: &[usize]) -> Option<[f64; N]> {
    let weighted =
        |at: usize| -> Vec<f64> { equations.iter().map(|e| e.row[at] * e.weight).collect() };
    let mut rest: Vec<f64> = equations.iter().map(|e| e.value * e.weight).collect();
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(columns.len());
    let mut upper = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (place, at) in columns.iter().enumerate() {
        let mut column = weighted(*at);
        let length = dot(&column, &column).sqrt();
        for (before, unit) in basis.iter().enumerate() {
            let share = dot(unit, &column);
            upper[before][place] = share;
            subtract(&mut column, unit, share);
        }
        let left = dot(&column, &column).sqrt();
        if left <= length * PIVOT_MIN || !left.is_finite() {
            return None;
        }
        for each in &mut column {
            *each /= left;
        }
        upper[place][place] = left;
        right[place] = dot(&column, &rest);
        subtract(&mut rest, &column, right[place]);
        basis.push(column);
    }
    let mut solution = [0.0; N];
    for place in (0..columns.len()).rev() {
        let later: f64 = (place + 1..columns.len())
            .map(|after| upper[place][after] * solution[columns[after]])
            .sum();
        solution[columns[place]] = (right[place] - later) / upper[place][place];
    }
    Some(solution)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn subtract(from: &mut [f64], unit: &[f64], share: f64) {
    for (each, part) in from.iter_mut().zip(unit) {
        *each -= share * part;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn equations(rows: &[[f64; 3]], told: impl Fn(&[f64; 3]) -> f64) -> Vec<Equation<3>> {
        let equation = |row: &[f64; 3]| Equation {
            row: *row,
            value: told(row),
            weight: 1.0,
        };
        rows.iter().map(equation).collect()
    }

    fn rows() -> impl Strategy<Value = Vec<[f64; 3]>> {
        let number = (0..1_000_u32).prop_map(f64::from);
        prop::collection::vec([number.clone(), number.clone(), number], 3..12)
    }

    #[test]
    fn redundant_columns_are_used_once() {
        let rows = [[1.0, 1.0, 2.0], [1.0, 1.0, 5.0], [1.0, 1.0, 9.0]];
        let (found, error) = solve(&equations(&rows, |row| 4.0 * row[0] + row[2]), 0).unwrap();
        assert!(error < 1e-12);
        assert!(
            (found[0] - 4.0).abs() < 1e-9 && found[1] == 0.0,
            "{found:?}"
        );
    }

    #[test]
    fn nothing_has_no_solution() {
        assert!(solve::<3>(&[], 0).is_none());
    }

    proptest! {
        #[test]
        fn no_step_within_bounds_makes_the_error_smaller(
            rows in rows(),
            values in prop::collection::vec(-1_000..1_000_i32, 12),
        ) {
            let mut all = equations(&rows, |_| 0.0);
            for (each, value) in all.iter_mut().zip(values) {
                each.value = f64::from(value);
            }
            if let Some((found, least)) = solve(&all, 0) {
                for at in 0..3 {
                    for step in [-1.0, -1e-2, 1e-2, 1.0] {
                        let mut moved = found;
                        moved[at] = (moved[at] + step).max(0.0);
                        let error = squared_error(&all, &moved);
                        prop_assert!(error >= least * (1.0 - 2.0 * GAIN_MIN) - 1e-6, "{error} < {least}");
                    }
                }
            }
        }
    }
}
