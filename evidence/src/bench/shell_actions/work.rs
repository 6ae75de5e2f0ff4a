//! Agents that take turns between thinking and a shell command.

use super::super::BenchError;
use super::super::latencies::Latencies;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Turns of the shell's loop whose time is taken to find out how many there are in a millisecond.
const TRIAL_TURNS: u64 = 200_000;
/// Number of trials. The fastest one counts: others may use the machine.
const TRIALS: usize = 5;

/// Who runs commands.
pub(super) trait System: Send + Sync + 'static {
    /// Runs a program's script to its end, in a shell.
    fn run(
        &self,
        program: u32,
        script: Arc<str>,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// What agents do.
pub(super) struct Workload {
    pub(super) programs: u32,
    pub(super) actions: u32,
    /// Before each command.
    pub(super) think: Duration,
    pub(super) script: Arc<str>,
}

/// How it went.
pub(super) struct Ended {
    pub(super) makespan: Duration,
    /// From the request for a command to its end.
    pub(super) times: Latencies,
    sum: Duration,
    /// From the beginning until each program had ended, less its thinking.
    acting: Duration,
    programs: u32,
}

impl Ended {
    pub(super) fn mean(&self) -> Duration {
        let count = u32::try_from(self.times.count()).unwrap_or(u32::MAX);
        self.sum / count.max(1)
    }

    /// Completion time of all actions of a program, the wait for its reservation included.
    pub(super) fn per_program(&self) -> Duration {
        self.acting / self.programs.max(1)
    }
}

/// A script that keeps a core busy for so long on an idle machine.
pub(super) async fn script(busy: Duration) -> Result<Arc<str>, BenchError> {
    let mut fastest = Duration::MAX;
    for _ in 0..TRIALS {
        let began = Instant::now();
        let done = super::systems::child(&looping(TRIAL_TURNS)).await;
        done.map_err(failed)?;
        fastest = fastest.min(began.elapsed());
    }
    let turns = TRIAL_TURNS as f64 * busy.as_secs_f64() / fastest.as_secs_f64();
    Ok(looping(turns.ceil() as u64).into())
}

fn looping(turns: u64) -> String {
    format!("i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done")
}

fn failed(cause: String) -> BenchError {
    BenchError::Requests {
        case: "shell-actions".to_owned(),
        count: 1,
        first: cause,
    }
}

impl Workload {
    /// The least time that the commands take on `cores` cores.
    pub(super) fn least(&self, cores: usize, busy: Duration) -> Duration {
        busy.mul_f64(f64::from(self.programs * self.actions) / cores as f64)
    }

    /// Runs it with all its programs at once.
    pub(super) async fn run<S: System>(
        &self,
        at_once: usize,
        system: Arc<S>,
    ) -> Result<Ended, BenchError> {
        let places = Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)));
        let began = Instant::now();
        let mut playing = JoinSet::new();
        for program in 0..self.programs {
            let (places, system) = (places.clone(), system.clone());
            let (script, actions, think) = (self.script.clone(), self.actions, self.think);
            // They don't begin in step.
            let first = think.mul_f64(f64::from(program) / f64::from(self.programs));
            playing.spawn(async move {
                let _place = places.acquire().await;
                let mut times = Vec::with_capacity(actions as usize);
                for action in 0..actions {
                    tokio::time::sleep(if action == 0 { first } else { think }).await;
                    let asked = Instant::now();
                    system.run(program, script.clone()).await?;
                    times.push(asked.elapsed());
                }
                let thought = first + think * actions.saturating_sub(1);
                Ok::<_, String>((times, began.elapsed().saturating_sub(thought)))
            });
        }
        let mut ended = Ended {
            makespan: Duration::ZERO,
            times: Latencies::default(),
            sum: Duration::ZERO,
            acting: Duration::ZERO,
            programs: self.programs,
        };
        while let Some(played) = playing.join_next().await {
            let played = played.map_err(|error| BenchError::Ended(error.to_string()))?;
            let (times, acting) = played.map_err(failed)?;
            ended.sum += times.iter().sum::<Duration>();
            ended.acting += acting;
            ended.times.absorb(times.into_iter().collect());
        }
        ended.makespan = began.elapsed();
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sleeping;

    impl System for Sleeping {
        async fn run(&self, _: u32, _: Arc<str>) -> Result<(), String> {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_waits_for_a_place_counts_as_acting() {
        let workload = Workload {
            programs: 4,
            actions: 2,
            think: Duration::from_millis(1),
            script: "true".into(),
        };
        let alone = workload.run(1, Arc::new(Sleeping)).await.unwrap();
        let together = workload.run(4, Arc::new(Sleeping)).await.unwrap();
        assert_eq!((alone.times.count(), together.times.count()), (8, 8));
        assert!(alone.makespan >= Duration::from_millis(160));
        assert!(alone.per_program() > together.per_program());
        let busy = Duration::from_millis(20);
        assert_eq!(workload.least(2, busy), Duration::from_millis(80));
    }
}
