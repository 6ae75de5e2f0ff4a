//! Which members are trained, and which need not run on (DARTS §4.1.2 and §4.3.1, algorithm 2).
//!
//! Lengths are tokens sampled in all steps; time does not count. The paper leaves open what happens
//! when too few members stay below the length limit, and how ties are decided: here the shortest
//! ones below the limit are taken instead, then those at the limit, and of equal lengths the first.

/// A member that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Tokens that it sampled.
    pub tokens: u64,
    /// A limit on its length ended it.
    pub limited: bool,
}

/// Indices of the members in the order in which they are taken: those below the limit by length,
/// then those at the limit.
fn shortest_first(members: &[Ended]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|at| (members[*at].limited, members[*at].tokens, *at));
    order
}

/// The `size` shortest members, as indices in ascending order.
pub fn shortest(members: &[Ended], size: usize) -> Vec<usize> {
    let mut chosen = shortest_first(members);
    chosen.truncate(size);
    chosen.sort_unstable();
    chosen
}

/// Dual-end sampling: of `size` members the `long` longest below the limit, and else the shortest,
/// as indices in ascending order.
pub fn dual_end(members: &[Ended], size: usize, long: usize) -> Vec<usize> {
    let order = shortest_first(members);
    let short = size.saturating_sub(long).min(order.len());
    let mut chosen = order[..short].to_vec();
    let mut rest = order[short..].to_vec();
    // The longest first; of equal lengths the first.
    let mut longest: Vec<usize> = rest.clone();
    longest.retain(|at| !members[*at].limited);
    longest.sort_by_key(|at| (std::cmp::Reverse(members[*at].tokens), *at));
    longest.truncate(size - short);
    rest.retain(|at| !longest.contains(at));
    chosen.extend(longest);
    let missing = size.saturating_sub(chosen.len());
    chosen.extend(rest.into_iter().take(missing));
    chosen.sort_unstable();
    chosen
}

/// Which running members of a pruned group end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStop {
    /// Those that are already at least as long as the longest of the `size` shortest that ended: so
    /// exactly the `size` shortest of all are trained.
    #[default]
    Exact,
    /// All, once `size` ended below the limit, as in the paper: the first to end are trained.
    First,
}

/// Whether each running member ends now, by its tokens so far.
pub fn stopped(stop: EarlyStop, ended: &[Ended], running: &[u64], size: usize) -> Vec<bool> {
    let mut lengths: Vec<u64> = ended
        .iter()
        .filter(|member| !member.limited)
        .map(|member| member.tokens)
        .collect();
    lengths.sort_unstable();
    let longest = size.checked_sub(1).and_then(|last| lengths.get(last));
    let Some(longest) = longest else {
        return vec![false; running.len()];
    };
    let ends = |tokens: &u64| stop == EarlyStop::First || tokens >= longest;
    running.iter().map(ends).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 4_096;

    fn ended(tokens: u64) -> Ended {
        Ended {
            tokens,
            limited: tokens >= LIMIT,
        }
    }

    fn all(lengths: &[u64]) -> Vec<Ended> {
        lengths.iter().copied().map(ended).collect()
    }

    #[test]
    fn both_ends_are_sampled_and_what_is_too_long_is_not() {
        let lengths = [500, 120, 130, 4096, 150, 160, 170, 180, 190, 4096, 900];
        let chosen = dual_end(&all(&lengths), 8, 1);
        assert_eq!(chosen, [1, 2, 4, 5, 6, 7, 8, 10]);
        let halves = dual_end(&all(&lengths), 8, 4);
        assert_eq!(halves, [0, 1, 2, 4, 5, 7, 8, 10]);
    }

    #[test]
    fn too_few_valid_members_are_filled_up() {
        // The longest below the limit is one of the short ones: the limited ones fill up.
        assert_eq!(dual_end(&all(&[4096, 10, 5000, 20]), 3, 1), [0, 1, 3]);
        assert_eq!(dual_end(&all(&[30, 10, 20]), 3, 1), [0, 1, 2]);
        assert_eq!(dual_end(&all(&[30, 10]), 3, 1), [0, 1]);
        assert_eq!(dual_end(&all(&[30, 10]), 1, 4), [0], "only long ones");
        assert!(dual_end(&[], 3, 1).is_empty());
    }

    #[test]
    fn of_equal_lengths_the_first_are_taken() {
        assert_eq!(shortest(&all(&[7, 7, 7]), 2), [0, 1]);
        assert_eq!(dual_end(&all(&[7, 7, 7, 7]), 2, 1), [0, 1]);
        assert_eq!(shortest(&all(&[4096, 9, 8]), 2), [1, 2]);
    }

    #[test]
    fn the_first_to_end_stop_all_others() {
        let running = [10, 5000];
        let of = |stop, lengths: &[u64]| stopped(stop, &all(lengths), &running, 2);
        assert_eq!(of(EarlyStop::First, &[50, 60]), [true, true]);
        assert_eq!(of(EarlyStop::First, &[50, 4096]), [false, false]);
        assert_eq!(of(EarlyStop::Exact, &[50, 60]), [false, true]);
        assert_eq!(of(EarlyStop::Exact, &[50]), [false, false]);
        assert_eq!(stopped(EarlyStop::Exact, &[], &[1], 0), [false]);
    }

    /// Lengths that members would have, and how many tokens each samples in a turn.
    fn races() -> impl Strategy<Value = (Vec<(u64, u64)>, usize)> {
        let member = (1_u64..60, 1_u64..9);
        prop::collection::vec(member, 1..12)
            .prop_flat_map(|members| (Just(members.clone()), 1..=members.len()))
    }

    proptest! {
        /// Whatever the speeds, the members that are left once no more run are the shortest of all.
        #[test]
        fn exact_gives_the_shortest((members, size) in races()) {
            let (mut sampled, mut cut) = (vec![0; members.len()], vec![false; members.len()]);
            let is_over = |at: usize, sampled: &[u64]| sampled[at] >= members[at].0;
            loop {
                let runs = |at: &usize| !cut[*at] && !is_over(*at, &sampled);
                let running: Vec<usize> = (0..members.len()).filter(runs).collect();
                if running.is_empty() {
                    break;
                }
                for at in &running {
                    sampled[*at] = (sampled[*at] + members[*at].1).min(members[*at].0);
                }
                let running: Vec<usize> = (0..members.len())
                    .filter(|at| !cut[*at] && !is_over(*at, &sampled))
                    .collect();
                let over = (0..members.len()).filter(|at| is_over(*at, &sampled));
                let ended: Vec<Ended> = over.map(|at| ended(members[at].0)).collect();
                let tokens: Vec<u64> = running.iter().map(|at| sampled[*at]).collect();
                let stops = stopped(EarlyStop::Exact, &ended, &tokens, size);
                for (at, stops) in running.iter().zip(stops) {
                    cut[*at] |= stops;
                }
            }
            let left: Vec<usize> = (0..members.len()).filter(|at| !cut[*at]).collect();
            let of = |at: usize| members[at].0;
            let ended: Vec<Ended> = left.iter().map(|at| ended(of(*at))).collect();
            let chosen = shortest(&ended, size);
            let mut given: Vec<u64> = chosen.iter().map(|at| ended[*at].tokens).collect();
            let mut expected: Vec<u64> = members.iter().map(|(length, _)| *length).collect();
            given.sort_unstable();
            expected.sort_unstable();
            expected.truncate(size);
            prop_assert_eq!(given, expected);
        }

        #[test]
        fn dual_end_has_the_size_and_the_shortest(
            lengths in prop::collection::vec(1_u64..5_000, 0..20),
            size in 0_usize..12,
            long in 0_usize..4,
        ) {
            let members = all(&lengths);
            let chosen = dual_end(&members, size, long);
            prop_assert_eq!(chosen.len(), size.min(members.len()));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            for at in shortest(&members, size.saturating_sub(long)) {
                prop_assert!(chosen.contains(&at));
            }
        }
    }
}
