//! Merges the scores of several policies into one order.
//!
//! Scores of different policies have no common scale. So if a question is shared by several (jobs
//! with bindings of their own, a canary), their answers are merged by relative rank: the best of
//! each share comes before the second of any share of the same size, and within its share a program
//! keeps the rank that its policy gave it.

/// Rows of a question that one policy evaluated, with its scores in their order.
pub(super) struct Share {
    /// Rows of the question.
    pub(super) rows: Vec<usize>,
    /// The scores of these rows.
    pub(super) scores: Vec<f64>,
}

/// A score for each of `rows` rows; rows without one come last.
pub(super) fn by_relative_rank(rows: usize, shares: &[Share]) -> Vec<f64> {
    let mut merged = vec![0.0; rows];
    for share in shares {
        let mut order: Vec<usize> = (0..share.rows.len().min(share.scores.len())).collect();
        order.sort_by(|a, b| {
            let (a, b) = (*a, *b);
            let scores = share.scores[b].total_cmp(&share.scores[a]);
            scores.then(share.rows[a].cmp(&share.rows[b]))
        });
        let size = order.len() as f64;
        for (rank, index) in order.into_iter().enumerate() {
            merged[share.rows[index]] = 1.0 - (rank as f64 + 0.5) / size;
        }
    }
    merged
}

/// The values of all shares, put back into their rows.
pub(super) fn by_row(rows: usize, shares: &[Share]) -> Vec<f64> {
    let mut merged = vec![0.0; rows];
    for share in shares {
        for (row, score) in share.rows.iter().zip(&share.scores) {
            merged[*row] = *score;
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_share_keeps_its_order(judged in prop::collection::vec((0_usize..3, -1e9_f64..1e9), 1..60)) {
            let mut shares: Vec<Share> = (0..3).map(|_| Share { rows: vec![], scores: vec![] }).collect();
            for (row, (share, score)) in judged.iter().enumerate() {
                shares[*share].rows.push(row);
                shares[*share].scores.push(*score);
            }
            let merged = by_relative_rank(judged.len(), &shares);
            prop_assert!(merged.iter().all(|score| (0.0..1.0).contains(score)));
            for share in &shares {
                for (a, x) in share.rows.iter().zip(&share.scores) {
                    for (b, y) in share.rows.iter().zip(&share.scores) {
                        if x > y {
                            prop_assert!(merged[*a] > merged[*b]);
                        }
                    }
                }
                // The best of a share of n is at 1 - 1/2n, whatever its scores.
                let best = share.rows.iter().map(|row| merged[*row]).fold(0.0, f64::max);
                if !share.rows.is_empty() {
                    let expected = 1.0 - 0.5 / share.rows.len() as f64;
                    prop_assert!((best - expected).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn values_go_back_to_their_rows() {
        let shares = [
            Share {
                rows: vec![0, 2],
                scores: vec![0.5, 0.7],
            },
            Share {
                rows: vec![1],
                scores: vec![0.1],
            },
        ];
        assert_eq!(by_row(3, &shares), [0.5, 0.1, 0.7]);
    }
}
