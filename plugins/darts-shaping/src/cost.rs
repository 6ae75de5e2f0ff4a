//! The rollout's cost model (DARTS §4.2.1, appendix A).

/// A piece of the time per token: from this batch size on, up to the next piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Smallest batch of the piece.
    pub from: u32,
    /// Seconds per token with no batch.
    pub base_s: f64,
    /// Seconds per token that each sequence of the batch adds.
    pub each_s: f64,
}

/// Time per token (PTL) by the size of the batch: linear in pieces; the paper has three.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTime {
    pieces: Vec<Piece>,
}

impl TokenTime {
    /// Of pieces in ascending order; the first holds for smaller batches too.
    pub fn new(pieces: Vec<Piece>) -> Self {
        Self { pieces }
    }

    /// Seconds per token in a batch of this size; 0 without pieces.
    pub fn seconds(&self, batch: u32) -> f64 {
        let at = self.pieces.partition_point(|piece| piece.from <= batch);
        let piece = self.pieces.get(at.saturating_sub(1));
        piece.map_or(0.0, |piece| piece.base_s + piece.each_s * f64::from(batch))
    }

    /// Seconds that responses of these lengths take on one engine, all begun at once (equation 4).
    pub fn rollout_s(&self, lengths: &[u64]) -> f64 {
        let mut lengths = lengths.to_vec();
        lengths.sort_unstable();
        let (mut before, mut seconds) = (0, 0.0);
        for (ended, length) in lengths.iter().enumerate() {
            let batch = u32::try_from(lengths.len() - ended).unwrap_or(u32::MAX);
            seconds += (length - before) as f64 * self.seconds(batch);
            before = *length;
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: u32, base_s: f64, each_s: f64) -> Piece {
        Piece {
            from,
            base_s,
            each_s,
        }
    }

    #[test]
    fn known_costs() {
        let time = TokenTime::new(vec![piece(1, 0.010, 0.001)]);
        assert!((time.rollout_s(&[40, 10, 20]) - 0.47).abs() < 1e-12);
        assert!((time.rollout_s(&[100; 8]) - 1.80).abs() < 1e-12);
        assert!(time.rollout_s(&[]).abs() < 1e-12);
    }

    #[test]
    fn a_batch_takes_the_time_of_its_piece() {
        let pieces = vec![
            piece(1, 0.010, 0.0),
            piece(33, 0.005, 0.000_2),
            piece(129, 0.0, 0.000_3),
        ];
        let time = TokenTime::new(pieces);
        let seconds = [1, 32, 33, 128, 129, 200].map(|batch| time.seconds(batch));
        let expected = [0.010, 0.010, 0.011_6, 0.030_6, 0.038_7, 0.06];
        for (found, expected) in seconds.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }
}
