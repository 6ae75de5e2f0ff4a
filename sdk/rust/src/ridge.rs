//! Linear ridge regression that learns row by row, in constant memory, with the same bits on every
//! machine.
//!
//! It keeps the sums of the normal equations and solves them on request. Coefficients are
//! regularised towards a prior, so that few rows, or uninformative columns, do no harm.

/// Sums over rows of `D` features and `T` targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Ridge<const D: usize, const T: usize> {
    /// Number of rows, without forgotten ones.
    rows: f64,
    /// Sums of products of features.
    features: [[f64; D]; D],
    /// Sums of products of targets with features.
    targets: [[f64; D]; T],
}

impl<const D: usize, const T: usize> Default for Ridge<D, T> {
    fn default() -> Self {
        Self {
            rows: 0.0,
            features: [[0.0; D]; D],
            targets: [[0.0; D]; T],
        }
    }
}

impl<const D: usize, const T: usize> Ridge<D, T> {
    /// The effective number of rows.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// Adds a row. About the newest `memory` rows count. All numbers must be finite.
    pub fn add(&mut self, features: &[f64; D], targets: &[f64; T], memory: f64) {
        if self.rows >= memory {
            self.scale(1.0 - 1.0 / memory.max(1.0));
        }
        self.rows += 1.0;
        for (row, left) in self.features.iter_mut().zip(features) {
            for (sum, right) in row.iter_mut().zip(features) {
                *sum += left * right;
            }
        }
        for (sums, target) in self.targets.iter_mut().zip(targets) {
            for (sum, feature) in sums.iter_mut().zip(features) {
                *sum += target * feature;
            }
        }
    }

    fn scale(&mut self, factor: f64) {
        self.rows *= factor;
        let sums = self.features.iter_mut().chain(&mut self.targets);
        for sum in sums.flatten() {
            *sum *= factor;
        }
    }

    /// Coefficients for each target: those that fit the rows best, where a deviation from `prior`
    /// by one costs as much as `strength` squared errors of one, for each feature. Strengths must
    /// be above 0.
    pub fn fit(&self, prior: &[[f64; D]; T], strength: &[f64; D]) -> [[f64; D]; T] {
        let mut matrix = self.features;
        for (place, strength) in strength.iter().enumerate() {
            matrix[place][place] += strength;
        }
        // Cholesky: lower times its transpose is the matrix.
        let mut lower = [[0.0; D]; D];
        for i in 0..D {
            for j in 0..=i {
                let done: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
                let left = matrix[i][j] - done;
                lower[i][j] = if i == j {
                    left.max(1e-9).sqrt()
                } else {
                    left / lower[j][j]
                };
            }
        }
        std::array::from_fn(|target| {
            let mut solved: [f64; D] = std::array::from_fn(|place| {
                self.targets[target][place] + strength[place] * prior[target][place]
            });
            for i in 0..D {
                let done: f64 = (0..i).map(|k| lower[i][k] * solved[k]).sum();
                solved[i] = (solved[i] - done) / lower[i][i];
            }
            for i in (0..D).rev() {
                let done: f64 = (i + 1..D).map(|k| lower[k][i] * solved[k]).sum();
                solved[i] = (solved[i] - done) / lower[i][i];
            }
            solved
        })
    }

    /// All numbers in a fixed order, for a snapshot.
    pub fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        let sums = self.features.iter().chain(&self.targets).flatten();
        std::iter::once(self.rows).chain(sums.copied())
    }

    /// Restores from these numbers; `None` if there are too few.
    pub fn from_numbers(numbers: &mut impl Iterator<Item = f64>) -> Option<Self> {
        let mut ridge = Self {
            rows: numbers.next()?,
            ..Self::default()
        };
        let sums = ridge.features.iter_mut().chain(&mut ridge.targets);
        for sum in sums.flatten() {
            *sum = numbers.next()?;
        }
        Some(ridge)
    }
}

/// Dot product, summed in order.
pub fn dot<const D: usize>(a: &[f64; D], b: &[f64; D]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    fn part(random: &mut SplitMix64) -> f64 {
        random.next_u64() as f64 / u64::MAX as f64 - 0.5
    }

    #[test]
    fn a_plane_is_found_and_followed() {
        let mut random = SplitMix64::new(1);
        let mut ridge = Ridge::<3, 2>::default();
        for round in 0..2 {
            let sign = 1.0 - 2.0 * f64::from(round);
            for _ in 0..4_000 {
                let row = [1.0, part(&mut random), part(&mut random)];
                let noise = part(&mut random) / 10.0;
                let target = sign * (2.0 + 3.0 * row[1] - row[2]) + noise;
                ridge.add(&row, &[target, 7.0], 500.0);
            }
            let [plane, constant] = ridge.fit(&[[0.0; 3]; 2], &[0.01; 3]);
            for (found, wanted) in plane.iter().zip([2.0, 3.0, -1.0]) {
                assert!((found - sign * wanted).abs() < 0.05, "{plane:?}");
            }
            assert!((dot(&constant, &[1.0, 0.3, 0.3]) - 7.0).abs() < 0.01);
        }
        assert!((499.0..=501.0).contains(&ridge.rows()));
    }

    #[test]
    fn without_rows_the_prior_holds_and_equal_columns_do_no_harm() {
        let mut ridge = Ridge::<2, 1>::default();
        let prior = [[4.0, -2.0]];
        assert_eq!(ridge.fit(&prior, &[1.0; 2]), prior);
        for _ in 0..100 {
            ridge.add(&[1.0, 1.0], &[5.0], 1e9);
        }
        let [found] = ridge.fit(&[[0.0; 2]], &[1e-3; 2]);
        assert!((found[0] - 2.5).abs() < 0.01 && (found[1] - 2.5).abs() < 0.01);
    }

    #[test]
    fn numbers_give_it_back() {
        let mut ridge = Ridge::<2, 1>::default();
        ridge.add(&[1.0, 0.1], &[0.7], 10.0);
        let again = Ridge::from_numbers(&mut ridge.numbers());
        assert_eq!(again, Some(ridge));
        assert_eq!(Ridge::<2, 1>::from_numbers(&mut [1.0; 6].into_iter()), None);
    }
}
