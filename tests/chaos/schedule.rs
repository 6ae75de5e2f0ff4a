//! A seeded schedule of kills.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The process that a kill hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    /// The daemon that schedules.
    Leader,
    /// A daemon that does not schedule.
    Follower,
    /// RabbitMQ.
    Broker,
    /// PostgreSQL.
    Database,
    /// An inference engine.
    Engine,
    /// The supervisor of a running action.
    Executor,
    /// The agent of a node.
    Node,
    /// The trainer of a training run.
    Trainer,
    /// The trainer and its daemon at once.
    DaemonAndTrainer,
    /// All of these at once: a blackout.
    Everything,
}

impl Victim {
    /// Its name in the report.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Broker => "broker",
            Self::Database => "database",
            Self::Engine => "engine",
            Self::Executor => "executor",
            Self::Node => "node",
            Self::Trainer => "trainer",
            Self::DaemonAndTrainer => "daemon-and-trainer",
            Self::Everything => "everything",
        }
    }

    /// All that can be hit one by one.
    pub(crate) const ALL: [Self; 9] = [
        Self::Leader,
        Self::Follower,
        Self::Broker,
        Self::Database,
        Self::Engine,
        Self::Executor,
        Self::Node,
        Self::Trainer,
        Self::DaemonAndTrainer,
    ];
}

/// One kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    /// The process.
    pub(crate) victim: Victim,
    /// Which of several, to be taken modulo their number.
    pub(crate) which: usize,
    /// Pause after recovery from the previous kill.
    pub(crate) after: Duration,
    /// Time until the process is started again.
    pub(crate) down: Duration,
}

/// Kills each of `victims` `each` times, in a seeded order; then adds `blackouts` of everything. The
/// pauses are divided by `haste`.
pub(crate) fn kills(
    seed: u64,
    each: u32,
    victims: &[Victim],
    blackouts: u32,
    haste: u32,
) -> Vec<Kill> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut victims: Vec<Victim> = victims
        .iter()
        .flat_map(|victim| std::iter::repeat_n(*victim, each as usize))
        .collect();
    victims.shuffle(&mut random);
    victims.extend(std::iter::repeat_n(Victim::Everything, blackouts as usize));
    let kill = |victim| Kill {
        victim,
        which: random.random_range(0..1_000),
        after: Duration::from_millis(random.random_range(1_500..5_000)) / haste,
        down: Duration::from_millis(random.random_range(100..4_000)) / haste,
    };
    victims.into_iter().map(kill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_kills_and_each_victim_its_share() {
        let all = &Victim::ALL;
        let three = kills(7, 3, all, 1, 1);
        assert_eq!(three, kills(7, 3, all, 1, 1));
        assert_ne!(three, kills(8, 3, all, 1, 1));
        for victim in Victim::ALL {
            assert_eq!(three.iter().filter(|kill| kill.victim == victim).count(), 3);
        }
        assert_eq!(
            three.last().map(|kill| kill.victim),
            Some(Victim::Everything)
        );
    }
}
