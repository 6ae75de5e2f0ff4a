//! One check for each world.

use super::actions::Actions;
use super::checks::{self, Check};
use super::shaping::{self, Groups, Members};
use super::tables::{
    Acting, Active, Answers, Assign, Finished, Live, Migrate, Parallelism, Preempt, Queue,
    Retention, Route, Waiting, Workers,
};
use super::{Case, Harness, answered, draw, optional};
use crate::{
    AllocationPolicy, Estimates, EvictionPolicy, PlacementPolicy, PredictionPolicy, PriorityPolicy,
    RetentionColumns, RewardPolicy, Scores, ShapingPolicy,
};

/// Most workers, pools and degrees of a case.
const WORKERS_MAX: u64 = 12;

fn same_bits(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits()
}

impl<P: crate::Policy> Case<P> {
    /// A table, and its rows in another order.
    fn tables<T>(
        &mut self,
        draw: impl FnOnce(&mut crate::random::SplitMix64, usize, usize) -> T,
        permuted: impl FnOnce(&T, &[usize]) -> T,
    ) -> (T, T) {
        let table = draw(&mut self.random, self.rows, self.extra_columns);
        let moved = permuted(&table, &self.order);
        (table, moved)
    }
}

impl Harness<'_> {
    /// Checks a policy of the world `prediction`: estimates before and after learning, and from its
    /// snapshot.
    pub fn prediction<P: PredictionPolicy>(&self) {
        self.run::<P>(|case| {
            predict(case)?;
            for _ in 0..3 {
                let random = &mut case.random;
                let rows = draw::below(random, 64) as usize;
                let finished = Finished::draw(random, rows, case.extra_columns);
                for policy in std::iter::once(&mut case.policy).chain(&mut case.twin) {
                    let learnt = answered("learn", policy.learn(&finished.columns()))?;
                    optional("learn", P::FUNCTIONS, learnt)?;
                }
            }
            predict(case)?;
            case.snapshot()?;
            predict(case)
        });
    }

    /// Checks a policy of the world `priority`.
    pub fn priority<P: PriorityPolicy>(&self) {
        self.run::<P>(|case| {
            let (table, moved) = case.tables(Queue::draw, Queue::permuted);
            let ask = |policy: &mut P, table: &Queue| policy.score(&table.columns());
            let scores = case.ask("score", &table, &moved, ask, same_bits)?;
            checks::finite("score", &scores.ok_or(UNANSWERED)?, case.rows)?;
            let waiting = draw::below(&mut case.random, 9) as usize;
            let steps = Preempt::draw(&mut case.random, case.rows, waiting);
            let ways = answered("preempt", case.policy.preempt(&steps.columns()))?;
            if let Some(ways) = optional("preempt", P::FUNCTIONS, ways)? {
                checks::preempt(&ways, &steps.columns())?;
            }
            case.snapshot()
        });
    }

    /// Checks a policy of the world `placement`.
    pub fn placement<P: PlacementPolicy>(&self) {
        self.run::<P>(|case| {
            let (rows, extra) = (case.rows, case.extra_columns);
            let count = 1 + draw::below(&mut case.random, WORKERS_MAX) as usize;
            let workers = Workers::draw(&mut case.random, count);
            let programs = Assign::draw_with(&mut case.random, rows, extra, &workers);
            let answer = case.policy.assign(&programs.columns_with(&workers));
            let chosen = answered("assign", answer)?.ok_or(UNANSWERED)?;
            checks::workers("assign", &chosen, rows, count)?;

            let (table, moved) = case.tables(Route::draw, Route::permuted);
            let ask = |policy: &mut P, table: &Route| policy.route(&table.columns());
            let scores = case.ask("route", &table, &moved, ask, same_bits)?;
            if let Some(scores) = optional("route", P::FUNCTIONS, scores)? {
                checks::finite("route", &scores, rows)?;
            }

            let placed = Migrate::draw_with(&mut case.random, rows, extra, &workers);
            let answer = case.policy.migrate(&placed.columns_with(&workers));
            if let Some(chosen) = optional("migrate", P::FUNCTIONS, answered("migrate", answer)?)? {
                checks::workers("migrate", &chosen, rows, count)?;
            }
            case.snapshot()
        });
    }

    /// Checks a policy of the world `allocation`.
    pub fn allocation<P: AllocationPolicy>(&self) {
        self.run::<P>(|case| {
            arrange(case)?;
            let degrees = draw::below(&mut case.random, 9) as usize;
            let degrees = Parallelism::draw(&mut case.random, degrees, case.rows);
            let answer = case.policy.parallelism(&degrees.columns());
            let answer = answered("parallelism", answer)?;
            if let Some(counts) = optional("parallelism", P::FUNCTIONS, answer)? {
                checks::parallelism(&counts, &degrees.columns())?;
            }
            case.snapshot()
        });
    }

    /// Checks a policy of the world `eviction`.
    pub fn eviction<P: EvictionPolicy>(&self) {
        self.run::<P>(|case| {
            weigh(case)?;
            let (table, moved) = case.tables(Active::draw, Active::permuted);
            let ask = |policy: &mut P, table: &Active| policy.pause_order(&table.columns());
            let scores = case.ask("pause_order", &table, &moved, ask, same_bits)?;
            checks::finite("pause_order", &scores.ok_or(UNANSWERED)?, case.rows)?;

            let (table, moved) = case.tables(Waiting::draw, Waiting::permuted);
            let ask = |policy: &mut P, table: &Waiting| policy.restore_order(&table.columns());
            let scores = case.ask("restore_order", &table, &moved, ask, same_bits)?;
            checks::finite("restore_order", &scores.ok_or(UNANSWERED)?, case.rows)?;

            retain(case)?;
            case.snapshot()
        });
    }

    /// Checks a policy of the world `reward`.
    pub fn reward<P: RewardPolicy>(&self) {
        self.run::<P>(|case| {
            reward(case)?;
            case.snapshot()
        });
    }

    /// Checks a policy of the world `shaping`: before and after it has seen members end, and from
    /// its snapshot.
    pub fn shaping<P: ShapingPolicy>(&self) {
        self.run::<P>(|case| {
            shape(case)?;
            shape(case)?;
            case.snapshot()?;
            shape(case)
        });
    }
}

const UNANSWERED: &str = "the policy leaves the only decision of its world to the host";

fn predict<P: PredictionPolicy>(case: &mut Case<P>) -> Check {
    let (table, moved) = case.tables(Live::draw, Live::permuted);
    let mut whole = Estimates::default();
    for part in 0..3 {
        let ask = |policy: &mut P, table: &Live| {
            let given = policy.predict(&table.columns())?;
            Ok(match part {
                0 => given.remaining_tokens,
                1 => given.remaining_tokens_p90,
                _ => given.remaining_tool_s,
            })
        };
        let answer = case
            .ask("predict", &table, &moved, ask, same_bits)?
            .ok_or(UNANSWERED)?;
        match part {
            0 => whole.remaining_tokens = answer,
            1 => whole.remaining_tokens_p90 = answer,
            _ => whole.remaining_tool_s = answer,
        }
    }
    checks::estimates(&whole, case.rows)
}

fn weigh<P: EvictionPolicy>(case: &mut Case<P>) -> Check {
    let (table, moved) = case.tables(Acting::draw, Acting::permuted);
    let ask = |policy: &mut P, table: &Acting| policy.weigh(&table.columns());
    let weights = case.ask("weigh", &table, &moved, ask, same_bits)?;
    checks::shares(&weights.ok_or(UNANSWERED)?, case.rows)?;

    // One program at several times.
    let mut phase_ms = table.phase_ms;
    phase_ms.sort_unstable();
    let one = Acting {
        tokens: vec![draw::amount(&mut case.random); case.rows],
        phase_ms,
        extra: vec![0.0; case.rows * case.extra_columns],
    };
    let weights = answered("weigh", case.policy.weigh(&one.columns()))?;
    checks::never_growing(&weights.unwrap_or_default())
}

fn retain<P: EvictionPolicy>(case: &mut Case<P>) -> Check {
    let random = &mut case.random;
    let table = Retention::draw(random, case.rows, case.extra_columns);
    let (short, room) = (draw::amount(random), draw::amount(random));
    let free_tokens = i64::try_from(room).unwrap_or(i64::MAX);
    let columns = RetentionColumns {
        capacity_tokens: draw::amount(random),
        free_tokens: free_tokens.saturating_sub_unsigned(short),
        wanted_tokens: draw::amount(random),
        ..table.columns()
    };
    let actions = answered("retain", case.policy.retain(&columns))?;
    match optional("retain", P::FUNCTIONS, actions)? {
        Some(actions) => checks::length("retain", actions.len(), case.rows),
        None => Ok(()),
    }
}

fn arrange<P: AllocationPolicy>(case: &mut Case<P>) -> Check {
    let random = &mut case.random;
    let pools = 1 + draw::below(random, WORKERS_MAX) as usize;
    let table = Actions::draw(random, case.rows, case.extra_columns, pools);
    let columns = table.columns();
    let chosen = answered("arrange", case.policy.arrange(&columns))?;
    checks::arrangement(&chosen.ok_or(UNANSWERED)?, &columns)
}

fn reward<P: RewardPolicy>(case: &mut Case<P>) -> Check {
    let (table, moved) = case.tables(Answers::draw, Answers::permuted);
    let ask = |policy: &mut P, table: &Answers| {
        let Scores { totals, .. } = policy.score(&table.columns())?;
        Ok(totals)
    };
    let totals = case.ask("score", &table, &moved, ask, same_bits)?;
    checks::finite("score", &totals.ok_or(UNANSWERED)?, case.rows)?;
    let scores = answered("score", case.policy.score(&table.columns()))?;
    checks::rewards(&scores.unwrap_or_default(), case.rows)
}

fn shape<P: ShapingPolicy>(case: &mut Case<P>) -> Check {
    let groups = Groups::draw(&mut case.random, case.rows);
    let answer = case.policy.size(&groups.columns());
    let given = answered("size", answer)?.ok_or(UNANSWERED)?;
    shaping::sizes(&given, &groups.columns())?;

    let members = Members::draw(&mut case.random, groups.clone(), &given, false);
    let answer = answered("curtail", case.policy.curtail(&members.columns()))?;
    if let Some(verdicts) = optional("curtail", P::FUNCTIONS, answer)? {
        checks::length("curtail", verdicts.len(), members.group.len())?;
    }

    let members = Members::draw(&mut case.random, groups, &given, true);
    let answer = answered("select", case.policy.select(&members.columns()))?;
    match optional("select", P::FUNCTIONS, answer)? {
        Some(selected) => shaping::selection(&selected, &members.columns()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
