//! Measures of predictions against what came.

/// Share of the longest `per_mille` that are among as many predicted longest. Of equal predictions
/// the program that comes first counts as longer.
pub fn tail_recall(actual: &[f64], predicted: &[f64], per_mille: usize) -> f64 {
    let count = (actual.len() * per_mille).div_ceil(1_000).max(1);
    let longest = |list: &[f64]| {
        let mut places: Vec<usize> = (0..list.len()).collect();
        places.sort_by(|a, b| list[*b].total_cmp(&list[*a]).then(a.cmp(b)));
        places.truncate(count);
        places.sort_unstable();
        places
    };
    let (actual, predicted) = (longest(actual), longest(predicted));
    let found = actual
        .iter()
        .filter(|place| predicted.binary_search(place).is_ok());
    found.count() as f64 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_simulator::pearson;

    #[test]
    fn correlation_is_of_lines() {
        let a = [1.0, 2.0, 3.0, 4.0];
        let line = a.map(|x| 10.0 - 3.0 * x);
        assert!((pearson(&a, &a) - 1.0).abs() < 1e-12);
        assert!((pearson(&a, &line) + 1.0).abs() < 1e-12);
        assert!(pearson(&a, &[5.0; 4]).abs() < 1e-12);
        assert!(pearson(&[], &[]).abs() < 1e-12);
    }

    #[test]
    fn recall_counts_those_found() {
        let actual: Vec<f64> = (0..20).map(f64::from).collect();
        let mut predicted = actual.clone();
        assert_eq!(Some(tail_recall(&actual, &predicted, 100)), Some(1.0));
        predicted[19] = 0.0;
        assert_eq!(Some(tail_recall(&actual, &predicted, 100)), Some(0.5));
    }
}
