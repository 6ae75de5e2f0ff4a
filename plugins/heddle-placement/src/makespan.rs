//! Moves that make the worker that ends last end sooner.
//!
//! Splitting all programs again takes microseconds, but would move most of them: ranks shift by a
//! few with each prediction, and with them all programs at a border. Here only the worker that ends
//! last gives programs away, its longest or its shortest ones, as many as make it and all receivers
//! end sooner by a share of `gain`. The sorted ends of all workers fall with every such move, so
//! with the same predictions no program moves back, and finally none moves.

use treadle_plugin::{MigrateColumns, Phase};

use heddle_partition::Member;

use crate::config::Config;
use crate::workers::Kinds;

/// Number of workers that a program is offered to.
const RECEIVERS_MAX: usize = 3;

pub(crate) fn migrate(
    config: &Config,
    programs: &MigrateColumns<'_>,
    lengths: &[f64],
    kinds: &Kinds,
) -> Vec<u32> {
    let mut groups = Groups::of(programs, lengths, kinds, config.ahead);
    let mut left = config.moves_max as usize;
    while left > 0 && !groups.ends_us.is_empty() {
        let last = groups.last();
        let share = 1.0 - config.gain;
        let fewest = [Side::Longest, Side::Shortest]
            .into_iter()
            .filter_map(|side| groups.relieve(last, side, left, share));
        // The fewest moves; on equal numbers the longest programs.
        let Some(moves) = fewest.min_by_key(Vec::len) else {
            break;
        };
        left -= moves.len();
        for made in &moves {
            groups.apply(made);
        }
    }
    groups.at
}

/// A program that moves to another worker.
struct Move {
    row: usize,
    length: Member,
    to: usize,
}

/// Which programs a worker gives away first.
#[derive(Clone, Copy)]
enum Side {
    Longest,
    Shortest,
}

/// The programs of each worker, and its end.
struct Groups<'p> {
    at: Vec<u32>,
    /// Rows of each worker, the longest first, and their lengths.
    rows: Vec<Vec<usize>>,
    lengths: Vec<Vec<Member>>,
    ends_us: Vec<f64>,
    used_tokens: Vec<u64>,
    programs: &'p MigrateColumns<'p>,
    kinds: &'p Kinds,
    /// Whether reasoning programs may be chosen too.
    ahead: bool,
}

impl<'p> Groups<'p> {
    fn of(
        programs: &'p MigrateColumns<'p>,
        lengths: &[f64],
        kinds: &'p Kinds,
        ahead: bool,
    ) -> Self {
        let workers = programs.workers.len();
        let mut groups = Self {
            at: programs.at_worker.to_vec(),
            rows: vec![Vec::new(); workers],
            lengths: vec![Vec::new(); workers],
            ends_us: Vec::new(),
            used_tokens: programs.workers.used_tokens.to_vec(),
            programs,
            kinds,
            ahead,
        };
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by(|&left, &right| lengths[right].total_cmp(&lengths[left]));
        for row in order {
            let worker = programs.at_worker[row] as usize;
            if worker < workers {
                groups.rows[worker].push(row);
                groups.lengths[worker].push(Member {
                    remaining: lengths[row],
                    context: programs.tokens[row] as f64,
                });
            }
        }
        let ends = (0..workers).map(|worker| kinds.end_us(worker, &groups.lengths[worker], &[]));
        groups.ends_us = ends.collect();
        groups
    }

    /// The worker that ends last, the first of equals.
    fn last(&self) -> usize {
        let workers = (0..self.ends_us.len()).rev();
        let last =
            workers.max_by(|&left, &right| self.ends_us[left].total_cmp(&self.ends_us[right]));
        last.unwrap_or(0)
    }

    /// The fewest acting programs of one side to move so that the worker and all receivers end by
    /// `share` of its current end; `None` if `most` are not enough.
    fn relieve(&self, worker: usize, side: Side, most: usize, share: f64) -> Option<Vec<Move>> {
        let bound_us = self.ends_us[worker] * share;
        let (mut rows, mut kept) = (self.rows[worker].clone(), self.lengths[worker].clone());
        let mut taken: Vec<Vec<Member>> = vec![Vec::new(); self.rows.len()];
        let mut used_tokens = self.used_tokens.clone();
        let mut moves = Vec::new();
        while moves.len() < most {
            let acting = |row: &usize| self.ahead || self.programs.phase[*row] == Phase::Acting;
            let at = match side {
                // Moving the longest only helps if no longer one has to stay.
                Side::Longest => Some(0).filter(|_| rows.first().is_some_and(acting)),
                Side::Shortest => rows.iter().rposition(acting),
            };
            let (row, length) = (rows.remove(at?), kept.remove(at?));
            let tokens = self.programs.tokens[row];
            let to = self.receiver(worker, length, tokens, bound_us, &mut taken, &used_tokens)?;
            taken[to].push(length);
            used_tokens[to] = used_tokens[to].saturating_add(tokens);
            moves.push(Move { row, length, to });
            if self.kinds.end_us(worker, &kept, &[]) <= bound_us {
                return Some(moves);
            }
        }
        None
    }

    /// The other workers that end first.
    fn soonest(&self, from: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.rows.len()).filter(|&to| to != from).collect();
        others.sort_by(|&left, &right| self.ends_us[left].total_cmp(&self.ends_us[right]));
        others.truncate(RECEIVERS_MAX);
        others
    }

    /// The other worker with room that ends first with one more program, if by the bound.
    fn receiver(
        &self,
        from: usize,
        length: Member,
        tokens: u64,
        bound_us: f64,
        taken: &mut [Vec<Member>],
        used_tokens: &[u64],
    ) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for to in self.soonest(from) {
            let capacity = self.programs.workers.capacity_tokens[to];
            if capacity > 0 && used_tokens[to].saturating_add(tokens) > capacity {
                continue;
            }
            taken[to].push(length);
            let end_us = self.kinds.end_us(to, &self.lengths[to], &taken[to]);
            taken[to].pop();
            if end_us <= bound_us && best.is_none_or(|(least_us, _)| end_us < least_us) {
                best = Some((end_us, to));
            }
        }
        best.map(|(_, to)| to)
    }

    fn apply(&mut self, made: &Move) {
        let from = self.at[made.row] as usize;
        if let Some(at) = self.rows[from].iter().position(|row| *row == made.row) {
            self.rows[from].remove(at);
            self.lengths[from].remove(at);
        }
        let at = self.lengths[made.to].partition_point(|m| m.remaining > made.length.remaining);
        self.rows[made.to].insert(at, made.row);
        self.lengths[made.to].insert(at, made.length);
        let tokens = self.programs.tokens[made.row];
        self.used_tokens[from] = self.used_tokens[from].saturating_sub(tokens);
        self.used_tokens[made.to] = self.used_tokens[made.to].saturating_add(tokens);
        self.at[made.row] = made.to as u32;
        for worker in [from, made.to] {
            self.ends_us[worker] = self.kinds.end_us(worker, &self.lengths[worker], &[]);
        }
    }
}
