//! When a worker ends, as its engine behaves: contexts grow while programs generate,
//! each token reads its context, and memory bounds how many run at once.
//!
//! Formula 2 knows one factor per group size (§5.1), which holds where contexts are
//! alike. In a rollout the longest programs have the largest contexts: a few of them
//! fill the memory that many short ones share. Here all members of a group generate in
//! step; between two ends the time per token follows from how many are left and how
//! much context they hold, and where that is more than fits they take turns.

/// What an iteration takes, and what an engine holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Reading the weights and whatever else each iteration takes, in microseconds.
    pub base_us: f64,
    /// What a program adds, in microseconds.
    pub program_us: f64,
    /// What 1,000 tokens of context add, in microseconds.
    pub kilotoken_us: f64,
    /// KV cache in tokens.
    pub capacity_tokens: f64,
    /// Programs that run at once at most.
    pub batch_max: f64,
}

/// A program: what it has still to generate, and its context now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Tokens still to be generated.
    pub remaining: f64,
    /// Context in tokens.
    pub context: f64,
}

impl Pace {
    /// When a group ends, in microseconds. `group` and `more` are both sorted, the
    /// longest remaining first; `growth` is by how much a context grows with each
    /// generated token, what tools add included. Each member stands for `weight`
    /// programs.
    pub fn end_us(&self, group: &[Member], more: &[Member], growth: f64, weight: f64) -> f64 {
        let mut active = (group.len() + more.len()) as f64 * weight;
        let sum = |members: &[Member]| members.iter().map(|m| m.context).sum::<f64>();
        let mut context = (sum(group) + sum(more)) * weight;
        let (mut left, mut right) = (group.iter().rev().peekable(), more.iter().rev().peekable());
        let (mut end_us, mut before) = (0.0, 0.0);
        loop {
            // The member that ends next.
            let takes_left = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.remaining <= r.remaining,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return end_us,
            };
            let next = if takes_left {
                left.next()
            } else {
                right.next()
            };
            let Some(member) = next else {
                return end_us;
            };
            let tokens = member.remaining - before;
            if tokens > 0.0 {
                let held = context + active * growth * (before + tokens / 2.0);
                end_us += tokens * self.token_us(active, held);
                before = member.remaining;
            }
            active -= weight;
            context -= member.context * weight;
        }
    }

    /// Time per token of each of so many programs that hold so much context together.
    fn token_us(&self, active: f64, held: f64) -> f64 {
        let fits = (self.capacity_tokens / held.max(1.0)).min(self.batch_max / active);
        let share = fits.min(1.0);
        let all_us = self.program_us * active + self.kilotoken_us * held / 1_000.0;
        // Of those that wait for memory each runs for its share of the time.
        self.base_us / share + all_us
    }

    /// Time per token of a program alone, without context, in microseconds.
    pub fn lone_us(&self) -> f64 {
        self.base_us + self.program_us
    }
}

/// A split of a sorted list over workers in their order, each group ending by the
/// least common bound, to one part in a thousand.
///
/// `context` is that of each program at the start. The end of a group need not grow
/// evenly with it, so that this is a good split and not a proven optimum.
pub fn partition_fluid(
    workers: &[Pace],
    lengths: &[f64],
    context: f64,
    growth: f64,
    weight: f64,
) -> Option<(Vec<usize>, f64)> {
    if workers.is_empty() && !lengths.is_empty() {
        return None;
    }
    let members: Vec<Member> = lengths
        .iter()
        .map(|&remaining| Member { remaining, context })
        .collect();
    let split = |bound_us: f64| fits(workers, &members, growth, weight, bound_us);
    let alone = workers
        .iter()
        .map(Pace::lone_us)
        .fold(f64::INFINITY, f64::min);
    let longest = lengths.first().copied().unwrap_or(0.0);
    let mut too_little_us = alone * longest * 0.999;
    let mut enough_us = too_little_us.max(1.0);
    let mut best = split(enough_us);
    while best.is_none() {
        too_little_us = enough_us;
        enough_us *= 2.0;
        best = split(enough_us);
    }
    while enough_us > too_little_us * 1.001 {
        let bound_us = f64::midpoint(too_little_us, enough_us);
        match split(bound_us) {
            Some(sizes) => (best, enough_us) = (Some(sizes), bound_us),
            None => too_little_us = bound_us,
        }
    }
    best.map(|sizes| (sizes, enough_us))
}

/// Whether a split ends by a bound.
pub fn fluid_ends_by(
    workers: &[Pace],
    lengths: &[f64],
    context: f64,
    growth: f64,
    weight: f64,
    bound_us: f64,
) -> bool {
    let members: Vec<Member> = lengths
        .iter()
        .map(|&remaining| Member { remaining, context })
        .collect();
    fits(workers, &members, growth, weight, bound_us).is_some()
}

/// Gives each worker the largest group that ends by the bound; `None` where some are
/// left over.
fn fits(
    workers: &[Pace],
    members: &[Member],
    growth: f64,
    weight: f64,
    bound_us: f64,
) -> Option<Vec<usize>> {
    let mut sizes = Vec::with_capacity(workers.len());
    let mut tail = members;
    for worker in workers {
        let ends_by = |size: usize| worker.end_us(&tail[..size], &[], growth, weight) <= bound_us;
        let (mut most, mut step) = (0, 1);
        while most + step <= tail.len() && ends_by(most + step) {
            most += step;
            step *= 2;
        }
        while step > 0 {
            if most + step <= tail.len() && ends_by(most + step) {
                most += step;
            }
            step /= 2;
        }
        sizes.push(most);
        tail = &tail[most..];
    }
    tail.is_empty().then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        base_us: 100.0,
        program_us: 1.0,
        kilotoken_us: 10.0,
        capacity_tokens: 10_000.0,
        batch_max: 100.0,
    };

    fn members(lengths: &[f64]) -> Vec<Member> {
        let member = |&remaining: &f64| Member {
            remaining,
            context: 1_000.0,
        };
        lengths.iter().map(member).collect()
    }

    /// Token by token.
    fn naive(pace: &Pace, members: &[Member]) -> f64 {
        let mut end_us = 0.0;
        let longest = members[0].remaining as usize;
        for token in 0..longest {
            let active = members.iter().filter(|m| m.remaining > token as f64);
            let (mut count, mut held) = (0.0, 0.0);
            for member in active {
                count += 1.0;
                held += member.context + token as f64 + 0.5;
            }
            end_us += pace.token_us(count, held);
        }
        end_us
    }

    #[test]
    fn a_group_ends_as_token_by_token() {
        for lengths in [
            &[50.0][..],
            &[90.0, 40.0, 40.0, 3.0],
            &[400.0, 400.0, 300.0, 200.0, 100.0],
        ] {
            let group = members(lengths);
            let exact = naive(&PACE, &group);
            let end_us = PACE.end_us(&group, &[], 1.0, 1.0);
            assert!((end_us / exact - 1.0).abs() < 1e-9, "{end_us} {exact}");
        }
    }

    #[test]
    fn it_does_not_matter_which_list_a_member_is_in() {
        let all = members(&[90.0, 60.0, 40.0, 3.0]);
        let (some, others) = (members(&[90.0, 40.0]), members(&[60.0, 3.0]));
        let whole = PACE.end_us(&all, &[], 1.2, 1.0);
        assert!((PACE.end_us(&some, &others, 1.2, 1.0) - whole).abs() < 1e-6);
    }

    #[test]
    fn beyond_memory_programs_take_turns() {
        let ten = PACE.end_us(&members(&[10.0; 9]), &[], 0.0, 1.0);
        let forty = PACE.end_us(&members(&[10.0; 36]), &[], 0.0, 1.0);
        assert!(forty > ten * 3.5, "{ten} {forty}");
    }

    #[test]
    fn long_programs_go_to_small_groups() {
        let mut lengths = vec![5_000.0; 4];
        lengths.extend(vec![200.0; 60]);
        let (sizes, end_us) = partition_fluid(&[PACE; 2], &lengths, 100.0, 1.0, 1.0).unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 64);
        assert!(sizes[0] < sizes[1], "{sizes:?}");
        for (from, to) in [(0, sizes[0]), (sizes[0], 64)] {
            let group: Vec<Member> = lengths[from..to]
                .iter()
                .map(|&remaining| Member {
                    remaining,
                    context: 100.0,
                })
                .collect();
            assert!(PACE.end_us(&group, &[], 1.0, 1.0) <= end_us);
        }
        assert!(fluid_ends_by(&[PACE; 2], &lengths, 100.0, 1.0, 1.0, end_us));
        assert!(partition_fluid(&[], &lengths, 1.0, 1.0, 1.0).is_none());
    }
}
