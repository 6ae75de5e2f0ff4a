//! The slowdown of programs by others: a measured factor by batch size.

/// Maximum number of points of a profile.
pub const POINTS_MAX: usize = 256;
/// Largest factor between two workers or batch sizes.
const FACTOR_MAX: f64 = 1e6;

/// Interference factor by group size, never falling (§5.1).
///
/// Between its points the factor is interpolated. The last point is the largest running batch;
/// members of a larger group take turns, so there the factor grows in proportion to the size, which
/// is the queueing delay that the paper's factor includes.
#[derive(Debug, Clone, PartialEq)]
pub struct Interference {
    points: Vec<(f64, f64)>,
}

impl Default for Interference {
    /// The step time of a decoder that reads its weights once for all: a batch of 128 takes twice
    /// as long as one program by itself. A guess without measurements.
    fn default() -> Self {
        Self {
            points: vec![(1.0, 1.0), (1_024.0, 1.0 + 1_023.0 / 127.0)],
        }
    }
}

impl Interference {
    /// From points of batch size and factor, sizes ascending from at least 1. A point
    /// for size 1 with factor 1 is added if it is missing.
    ///
    /// # Errors
    /// What is wrong with the points and what to give instead.
    pub fn new(points: &[(u32, f64)]) -> Result<Self, String> {
        if points.len() > POINTS_MAX {
            return Err(format!(
                "has {} points; give at most {POINTS_MAX}",
                points.len()
            ));
        }
        let mut kept = Vec::with_capacity(points.len() + 1);
        if points.first().is_none_or(|first| first.0 > 1) {
            kept.push((1.0, 1.0));
        }
        for &(size, factor) in points {
            let size = f64::from(size);
            if !(factor > 0.0 && factor <= FACTOR_MAX) {
                return Err(format!(
                    "has the factor {factor}; give numbers above 0, at most {FACTOR_MAX}"
                ));
            }
            if size < 1.0 {
                return Err("has a batch of 0; give sizes from 1".to_owned());
            }
            if let Some(&(last_size, last)) = kept.last()
                && (size <= last_size || factor < last)
            {
                return Err(format!(
                    "has the point [{size}, {factor}] after [{last_size}, {last}]; give sizes \
                     that rise and factors that do not fall"
                ));
            }
            kept.push((size, factor));
        }
        Ok(Self { points: kept })
    }

    /// The configured points; the default profile without any.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(points: Option<&[(u32, f64)]>) -> Result<Self, String> {
        points.map_or_else(|| Ok(Self::default()), Self::new)
    }

    /// The factor for a worker with a limit on running programs.
    #[must_use]
    pub fn capped(&self, batch_max: f64) -> Self {
        let batch_max = batch_max.max(1.0);
        let mut points: Vec<(f64, f64)> = self
            .points
            .iter()
            .copied()
            .filter(|point| point.0 < batch_max)
            .collect();
        points.push((batch_max, self.factor(batch_max)));
        Self { points }
    }

    /// The factor of a group of that size, which is at least 1.
    pub fn factor(&self, size: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < size);
        let last = self.points[self.points.len() - 1];
        if after == self.points.len() {
            return last.1 * (size / last.0);
        }
        let (right_size, right) = self.points[after];
        if after == 0 {
            return right;
        }
        let (left_size, left) = self.points[after - 1];
        left + (right - left) * ((size - left_size) / (right_size - left_size))
    }
}

/// Time per token of each member of a group, by the group's size: the table that the
/// search reads. The same products are in [`crate::reference`], so results are equal to
/// the last bit.
#[derive(Debug, Clone, PartialEq)]
pub struct Units {
    us: Vec<f64>,
}

impl Units {
    /// For groups of up to `size_max` on a worker where one program by itself takes
    /// `token_us` microseconds for a token.
    pub fn new(token_us: f64, interference: &Interference, size_max: usize) -> Self {
        let mut us = Vec::with_capacity(size_max + 1);
        us.push(0.0);
        let mut largest = 0.0_f64;
        for size in 1..=size_max {
            // Rounding of an interpolation must not make it fall.
            largest = largest.max(token_us * interference.factor(size as f64));
            us.push(largest);
        }
        Self { us }
    }

    /// By sizes from 0, where `offset` programs run on the worker anyway.
    ///
    /// # Panics
    /// When the table is shorter than the offset.
    pub fn after(&self, offset: usize) -> &[f64] {
        &self.us[offset..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_lie_between_points_and_grow_in_proportion_beyond() {
        let profile = Interference::new(&[(10, 2.0), (20, 4.0)]).unwrap();
        for (size, factor) in [
            (1.0, 1.0),
            (5.5, 1.5),
            (10.0, 2.0),
            (15.0, 3.0),
            (20.0, 4.0),
            (40.0, 8.0),
        ] {
            assert!((profile.factor(size) - factor).abs() < 1e-12, "{size}");
        }
        let capped = profile.capped(15.0);
        assert!((capped.factor(30.0) - 6.0).abs() < 1e-12);
        assert!((capped.factor(10.0) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn points_that_contradict_each_other_are_refused() {
        for points in [
            &[(0, 1.0)][..],
            &[(1, 0.0)],
            &[(1, f64::NAN)],
            &[(4, 2.0), (4, 3.0)],
            &[(4, 2.0), (8, 1.0)],
            &[(4, 0.5)],
        ] {
            assert!(Interference::new(points).is_err(), "{points:?}");
        }
        assert!(Interference::new(&[]).is_ok());
    }
}
