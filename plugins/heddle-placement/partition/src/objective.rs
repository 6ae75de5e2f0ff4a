//! The end of a worker with its group: the paper's formula, and one in which the batch shrinks as
//! programs finish.

/// The end of a worker with a group, in microseconds.
///
/// `tail` is the sorted list from the group's longest program on, and `units` the time per token by
/// group size ([`crate::Units::after`]), with one more entry than the list. The end must not fall
/// when a program joins, nor when the group begins further left and ends at the same place: then
/// the greedy scan is correct.
pub trait Objective {
    /// The end for the first `size` programs of the tail, 0 for none.
    fn end_us(tail: &[f64], size: usize, units: &[f64]) -> f64;

    /// The largest group that ends by the bound.
    fn reach(tail: &[f64], units: &[f64], bound_us: f64) -> Reach;
}

/// The largest group under a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// Its size.
    pub size: usize,
    /// The end of the group, in microseconds.
    pub end_us: f64,
    /// When a group of one more would end, above the bound; infinite where there is no
    /// further program.
    pub next_us: f64,
}

/// Formula 2: the time of the group's longest program, as if all others ran all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper;

impl Objective for Paper {
    fn end_us(tail: &[f64], size: usize, units: &[f64]) -> f64 {
        if size == 0 {
            0.0
        } else {
            units[size] * tail[0]
        }
    }

    fn reach(tail: &[f64], units: &[f64], bound_us: f64) -> Reach {
        let head = tail[0];
        let sizes = &units[1..=tail.len()];
        let size = sizes.partition_point(|unit_us| unit_us * head <= bound_us);
        Reach {
            size,
            end_us: units[size] * head,
            next_us: sizes.get(size).map_or(f64::INFINITY, |unit| unit * head),
        }
    }
}

/// All members decode in step, and each that finishes slows the others down less: `T · Σ (l_k −
/// l_{k+1}) · F(k)`, at most Formula 2. Beyond the largest batch, with a factor in proportion to
/// the size, this includes the worker's total work. That contiguous groups are optimal is proven
/// only for the paper's formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained;

impl Objective for Drained {
    fn end_us(tail: &[f64], size: usize, units: &[f64]) -> f64 {
        let mut end_us = 0.0;
        let mut before_us = 0.0;
        for (length, unit_us) in tail[..size].iter().zip(&units[1..]) {
            end_us += (unit_us - before_us) * length;
            before_us = *unit_us;
        }
        end_us
    }

    fn reach(tail: &[f64], units: &[f64], bound_us: f64) -> Reach {
        let (mut end_us, mut before_us) = (0.0, 0.0);
        for (size, (length, unit_us)) in tail.iter().zip(&units[1..]).enumerate() {
            let next_us = end_us + (unit_us - before_us) * length;
            if next_us > bound_us {
                return Reach {
                    size,
                    end_us,
                    next_us,
                };
            }
            (end_us, before_us) = (next_us, *unit_us);
        }
        Reach {
            size: tail.len(),
            end_us,
            next_us: f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_drains_ends_no_later_than_the_paper_says() {
        let (tail, units) = ([9.0, 4.0, 1.0], [0.0, 1.0, 1.5, 3.0]);
        assert!((Paper::end_us(&tail, 3, &units) - 27.0).abs() < 1e-12);
        // One token beside two others, three beside one, five by itself.
        assert!((Drained::end_us(&tail, 3, &units) - (3.0 + 4.5 + 5.0)).abs() < 1e-12);
        assert!((Drained::end_us(&tail, 1, &units) - 9.0).abs() < 1e-12);
    }

    #[test]
    fn the_reach_is_the_last_size_under_the_bound() {
        let (tail, units) = ([9.0, 4.0, 1.0], [0.0, 1.0, 1.5, 3.0]);
        for bound_us in [0.0, 8.9, 9.0, 11.0, 12.4, 13.5, 26.0, 27.0] {
            for (reach, end_us) in [
                (
                    Paper::reach(&tail, &units, bound_us),
                    Paper::end_us as fn(&[f64], usize, &[f64]) -> f64,
                ),
                (Drained::reach(&tail, &units, bound_us), Drained::end_us),
            ] {
                assert!((reach.end_us - end_us(&tail, reach.size, &units)).abs() < 1e-12);
                assert!(reach.end_us <= bound_us && reach.next_us > bound_us);
            }
        }
    }
}
