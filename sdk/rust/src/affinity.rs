//! Affinity of programs to classes of hardware (`RollArt` §5.2), for policies of the world
//! `placement`.
//!
//! A program prefers workers of its class that have room for its context. If none has, it falls back
//! to any other worker rather than wait. It returns while it acts, once a worker of its class has
//! room for all that it is expected to need and the move pays, and in any case when it is assigned
//! anew: then its context is not certain to be cached anywhere. It never leaves its class by a move,
//! so it does not go back and forth.

use crate::{AssignColumns, MigrateColumns, NO_CLASS, Phase, WorkerColumns};

/// Predictions are cut to this many tokens.
const REMAINING_TOKENS_MAX: f64 = 1e6;
/// Assumed growth of a context per generated token.
const GROWTH: f64 = 1.2;
/// The time that a return saves must be this many times what it costs: the remaining length is a
/// guess.
const GAIN_LEAST: f64 = 2.0;

/// Whether a worker is of the class that a program prefers.
pub fn is_of_class(workers: &WorkerColumns<'_>, worker: usize, preferred: u32) -> bool {
    preferred != NO_CLASS && workers.hardware_class.get(worker) == Some(&preferred)
}

/// The workers among which to choose for a program.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    hardware_class: &'a [u32],
    class: u32,
}

impl<'a> Choice<'a> {
    /// Those of the preferred class if any of them has room, otherwise all.
    pub fn of(
        workers: &WorkerColumns<'a>,
        preferred: u32,
        has_room: impl Fn(usize) -> bool,
    ) -> Self {
        let own = |worker: &usize| is_of_class(workers, *worker, preferred);
        let any = (0..workers.len()).filter(own).any(has_room);
        Self {
            hardware_class: workers.hardware_class,
            class: if any { preferred } else { NO_CLASS },
        }
    }

    /// Whether a worker is one of them.
    pub fn includes(&self, worker: usize) -> bool {
        self.class == NO_CLASS || self.hardware_class.get(worker) == Some(&self.class)
    }
}

/// Corrects an answer of `assign` that did not consider classes: a program whose class has room goes
/// to the least loaded worker of it, unless it was given one with room already. One that prefers a
/// class without room leaves it to others for the least loaded worker with room.
pub fn prefer_classes(programs: &AssignColumns<'_>, places: &mut [u32]) {
    let mut room = Room::of(&programs.workers);
    for (row, place) in places.iter_mut().enumerate() {
        let tokens = programs.tokens[row] as f64;
        let preferred = programs.preferred_class[row];
        if preferred != NO_CLASS {
            let fits = |worker: usize| room.fits(worker, tokens);
            let choice = Choice::of(&programs.workers, preferred, fits);
            let is_fit = |worker: &usize| choice.includes(*worker) && fits(*worker);
            let given = *place as usize;
            let least = (0..programs.workers.len()).filter(is_fit);
            let least =
                least.min_by(|&left, &right| room.share(left).total_cmp(&room.share(right)));
            if let Some(least) = least.filter(|_| !is_fit(&given)) {
                *place = least as u32;
            }
        }
        room.add(*place as usize, tokens);
    }
}

/// Corrects an answer of `migrate`: no program leaves its class, and acting ones that fell back
/// return if that pays, those that gain most first; altogether the answer moves at most `moves_max`
/// programs.
pub fn return_to_classes(programs: &MigrateColumns<'_>, places: &mut [u32], moves_max: usize) {
    let workers = &programs.workers;
    let mut room = Room::of(workers);
    let mut moves = 0;
    let mut returns: Vec<(f64, usize)> = Vec::new();
    for (row, place) in places.iter_mut().enumerate() {
        let (at, preferred) = (programs.at_worker[row], programs.preferred_class[row]);
        let is_own = |worker: u32| is_of_class(workers, worker as usize, preferred);
        if is_own(at) && !is_own(*place) {
            *place = at;
        }
        if *place != at {
            room.change(at, *place, programs.tokens[row] as f64);
            moves += 1;
        } else if preferred != NO_CLASS && !is_own(at) && programs.phase[row] == Phase::Acting {
            let gains = (0..workers.len()).filter_map(|to| gain_us(programs, row, to));
            returns.extend(gains.reduce(f64::max).map(|gain| (gain, row)));
        }
    }
    returns.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    for (_, row) in returns {
        if moves >= moves_max {
            return;
        }
        let tokens = programs.tokens[row] as f64;
        let whole = tokens + remaining(programs, row);
        let fitting = (0..workers.len()).filter(|&to| room.fits(to, whole));
        let fitting = fitting.filter_map(|to| Some((gain_us(programs, row, to)?, to)));
        let best = fitting.reduce(|best, other| if other.0 > best.0 { other } else { best });
        if let Some((_, to)) = best {
            room.change(programs.at_worker[row], to as u32, whole);
            places[row] = to as u32;
            moves += 1;
        }
    }
}

/// Microseconds that a program saves by going to a worker of its class, if that pays for computing
/// its context there. Nothing is known to pay before both workers have shown their speeds.
fn gain_us(programs: &MigrateColumns<'_>, row: usize, to: usize) -> Option<f64> {
    let workers = &programs.workers;
    let at = programs.at_worker[row] as usize;
    if at == to || !is_of_class(workers, to, programs.preferred_class[row]) {
        return None;
    }
    let known = |value: f64| (value >= 0.0).then_some(value);
    let prefill_us = |worker: usize| known(*workers.prefill_us.get(worker)?);
    // It runs here already, and would be one more there.
    let token_us = |worker: usize, beside: u32| {
        let further = known(*workers.step_us.get(worker)?).unwrap_or(0.0);
        let token_us = known(*workers.token_us.get(worker)?)?;
        Some(token_us + further * f64::from(beside))
    };
    let running = |worker: usize| workers.running.get(worker).copied().unwrap_or(0);
    let rest = remaining(programs, row);
    let prompts = rest * (growth(programs, row) - 1.0);
    let decode_us = token_us(at, running(at))? - token_us(to, running(to))?;
    let prompt_us = prefill_us(at)? - prefill_us(to)?;
    let gain_us = rest * decode_us + prompts * prompt_us;
    let cost_us = programs.tokens[row] as f64 * prefill_us(to)?;
    (gain_us > 0.0 && gain_us >= GAIN_LEAST * cost_us).then_some(gain_us)
}

fn growth(programs: &MigrateColumns<'_>, row: usize) -> f64 {
    match programs.growth[row] {
        growth if growth >= 1.0 => growth,
        growth if growth >= 0.0 => 1.0,
        _ => GROWTH,
    }
}

/// Tokens that a program still generates; without a prediction as many as it has generated so far,
/// by the growth of its context.
fn remaining(programs: &MigrateColumns<'_>, row: usize) -> f64 {
    match programs.remaining_tokens[row] {
        tokens if tokens >= 0.0 => tokens.min(REMAINING_TOKENS_MAX),
        _ => (programs.tokens[row] as f64 / growth(programs, row)).min(REMAINING_TOKENS_MAX),
    }
}

/// The KV memory of workers, with what an answer adds.
struct Room {
    used: Vec<f64>,
    capacity: Vec<f64>,
}

impl Room {
    /// Workers of unknown capacity count as the largest known one; if none is known, all have room.
    fn of(workers: &WorkerColumns<'_>) -> Self {
        let largest = workers.capacity_tokens.iter().copied().max().unwrap_or(0);
        let capacity = |&tokens: &u64| match (tokens, largest) {
            (0, 0) => f64::INFINITY,
            (0, largest) => largest as f64,
            (tokens, _) => tokens as f64,
        };
        Self {
            used: workers
                .used_tokens
                .iter()
                .map(|&used| used as f64)
                .collect(),
            capacity: workers.capacity_tokens.iter().map(capacity).collect(),
        }
    }

    fn fits(&self, worker: usize, tokens: f64) -> bool {
        let known = self.used.get(worker).zip(self.capacity.get(worker));
        known.is_some_and(|(used, capacity)| used + tokens <= *capacity)
    }

    /// Used share; without any known capacity, used tokens.
    fn share(&self, worker: usize) -> f64 {
        match self.capacity[worker] {
            capacity if capacity.is_finite() => self.used[worker] / capacity,
            _ => self.used[worker],
        }
    }

    fn add(&mut self, worker: usize, tokens: f64) {
        if let Some(used) = self.used.get_mut(worker) {
            *used = (*used + tokens).max(0.0);
        }
    }

    fn change(&mut self, from: u32, to: u32, tokens: f64) {
        self.add(from as usize, -tokens);
        self.add(to as usize, tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Assign, Migrate, Workers};
    use crate::random::SplitMix64;

    const H20: u32 = 0;
    const H800: u32 = 1;

    /// One of each class, with these tokens in use of 100,000; answers take 10 and 30 ms per token.
    fn workers(used_tokens: [u64; 2]) -> Workers {
        Workers {
            used_tokens: used_tokens.to_vec(),
            token_us: vec![10_000.0, 30_000.0],
            step_us: vec![0.0; 2],
            prefill_us: vec![100.0, 50.0],
            hardware_class: vec![H20, H800],
            ..Workers::idle(&[100_000; 2])
        }
    }

    fn assigned(preferred: &[u32], tokens: u64, workers: &Workers) -> Vec<u32> {
        let rows = preferred.len();
        let programs = Assign {
            group: vec![0; rows],
            tokens: vec![tokens; rows],
            remaining_tokens: vec![-1.0; rows],
            last_worker: vec![crate::NOWHERE; rows],
            growth: vec![-1.0; rows],
            tool_us: vec![-1.0; rows],
            preferred_class: preferred.to_vec(),
            extra: Vec::new(),
        };
        let mut places = vec![1; rows];
        prefer_classes(&programs.columns_with(workers), &mut places);
        places
    }

    #[test]
    fn a_program_goes_to_its_class_as_long_as_that_has_room() {
        let empty = workers([0, 0]);
        assert_eq!(assigned(&[H20, H800, NO_CLASS], 10_000, &empty), [0, 1, 1]);
        // The third one does not fit any more, and does not wait.
        assert_eq!(assigned(&[H20; 3], 40_000, &empty), [0, 0, 1]);
        assert_eq!(assigned(&[H20], 10_000, &workers([95_000, 0])), [1]);
        // Its own place is full, and its class too.
        assert_eq!(assigned(&[H800], 10_000, &workers([0, 95_000])), [0]);
        // No worker is of this class.
        assert_eq!(assigned(&[7], 10_000, &empty), [1]);
    }

    #[test]
    fn workers_of_a_class_share_its_programs() {
        let workers = Workers {
            hardware_class: vec![H20, H800, H20],
            ..Workers::idle(&[100_000; 3])
        };
        assert_eq!(assigned(&[H20; 4], 10_000, &workers), [0, 2, 0, 2]);
    }

    fn migrated(programs: &Migrate, workers: &Workers) -> Vec<u32> {
        let mut places = programs.at_worker.clone();
        return_to_classes(&programs.columns_with(workers), &mut places, 8);
        places
    }

    /// A program at a worker with a context of 10,000 tokens: that takes 1 s to compute on the first
    /// worker, and each remaining token takes 20 ms less there.
    fn placed(at: u32, preferred: u32, remaining: f64) -> Migrate {
        Migrate {
            at_worker: vec![at],
            tokens: vec![10_000],
            remaining_tokens: vec![remaining],
            phase: vec![Phase::Acting],
            growth: vec![1.0],
            tool_us: vec![0.0],
            preferred_class: vec![preferred],
            extra: Vec::new(),
        }
    }

    #[test]
    fn a_program_returns_when_the_move_pays() {
        let there = workers([50_000, 50_000]);
        assert_eq!(migrated(&placed(1, H20, 100.0), &there), [0]);
        assert_eq!(migrated(&placed(1, H20, 99.0), &there), [1], "2 s are due");
        // As many tokens as it has generated so far.
        assert_eq!(migrated(&placed(1, H20, -1.0), &there), [0]);
        assert_eq!(migrated(&placed(1, NO_CLASS, 1e5), &there), [1]);
        // What its class has no room for stays: also what it is going to need.
        assert_eq!(migrated(&placed(1, H20, 100.0), &workers([90_000, 0])), [1]);
        assert_eq!(
            migrated(&placed(1, H20, 1_000.0), &workers([89_500, 0])),
            [1]
        );
        let mut reasons = placed(1, H20, 1e4);
        reasons.phase = vec![Phase::Reasoning];
        assert_eq!(
            migrated(&reasons, &there),
            [1],
            "a step would wait for the move"
        );
    }

    #[test]
    fn prompts_count_as_well_as_answers() {
        // Its class decodes as fast, and computes prompts twice as fast: 50 us for each of them.
        let mut workers = workers([0, 0]);
        workers.token_us = vec![30_000.0; 2];
        let mut games = placed(0, H800, 1_000.0);
        games.growth = vec![21.0];
        assert_eq!(
            migrated(&games, &workers),
            [1],
            "20,000 prompts: 1 s for 0.5 s"
        );
        games.growth = vec![20.0];
        assert_eq!(migrated(&games, &workers), [0]);
    }

    #[test]
    fn nothing_pays_before_speeds_are_known() {
        let mut unknown = workers([0, 0]);
        unknown.token_us = vec![-1.0, 30_000.0];
        assert_eq!(migrated(&placed(1, H20, 1e5), &unknown), [1]);
        let mut unknown = workers([0, 0]);
        unknown.prefill_us = vec![-1.0; 2];
        assert_eq!(migrated(&placed(1, H20, 1e5), &unknown), [1]);
    }

    #[test]
    fn no_move_leaves_the_class() {
        let programs = placed(0, H20, 1e5);
        let mut places = vec![1];
        let workers = workers([95_000, 0]);
        return_to_classes(&programs.columns_with(&workers), &mut places, 8);
        assert_eq!(places, [0]);
    }

    #[test]
    fn those_that_gain_most_return_first_and_within_the_limit() {
        let mut programs = placed(1, H20, 100.0);
        let mut more = |remaining: f64| {
            programs.at_worker.push(1);
            programs.tokens.push(10_000);
            programs.remaining_tokens.push(remaining);
            programs.phase.push(Phase::Acting);
            programs.growth.push(1.0);
            programs.tool_us.push(0.0);
            programs.preferred_class.push(H20);
        };
        more(5_000.0);
        more(3_000.0);
        let workers = workers([70_000, 30_000]);
        assert_eq!(migrated(&programs, &workers), [1, 0, 0], "two fit");
        let mut places = vec![1; 3];
        return_to_classes(&programs.columns_with(&workers), &mut places, 1);
        assert_eq!(places, [1, 0, 1]);
    }

    #[test]
    fn repeated_answers_settle() {
        let mut random = SplitMix64::new(11);
        for _ in 0..300 {
            let workers = Workers::draw(&mut random, 5);
            let mut programs = Migrate::draw_with(&mut random, 40, 0, &workers);
            let mut moved = vec![0; 40];
            for _ in 0..50 {
                let places = migrated(&programs, &workers);
                for row in 0..40 {
                    moved[row] += u32::from(places[row] != programs.at_worker[row]);
                }
                programs.at_worker = places;
            }
            assert!(moved.iter().all(|moves| *moves <= 1), "{moved:?}");
        }
    }
}
