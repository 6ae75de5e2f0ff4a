//! The scheduler of a job, for the gateway: the driver in this process, or one of several other
//! schedulers, by the job's name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::UnboundedReceiver;
use treadle_core::Event;
use treadle_core::programs::StepArrival;
use treadle_model::{GatewayId, StepId};
use treadle_scheduler::link::RemoteScheduler;
use treadle_scheduler::{DriverHandle, DriverStopped, Instruction, LiveLimit, Recording};
use xxhash_rust::xxh3::xxh3_64;

/// The scheduler or schedulers.
#[derive(Clone)]
pub enum Scheduler {
    /// The driver of this process, for every job.
    Local(DriverHandle),
    /// Several schedulers, each for some jobs.
    Shards(Arc<Shards>),
}

/// Schedulers of the shards, in this or other processes, all reached over links.
pub struct Shards {
    gateway: GatewayId,
    next_step: AtomicU64,
    names: Vec<String>,
    clients: Vec<Arc<RemoteScheduler>>,
}

/// The client for the scheduler of one job.
#[derive(Clone)]
pub enum SchedulerClient {
    /// Within this process.
    Local(DriverHandle),
    /// Over a link.
    Remote(RemoteClient),
}

/// See [`SchedulerClient::Remote`].
#[derive(Clone)]
pub struct RemoteClient(Arc<RemoteScheduler>);

impl Shards {
    /// One link per shard, in the order of the names.
    pub fn new(gateway: GatewayId, names: Vec<String>) -> Self {
        let client = |_| Arc::new(RemoteScheduler::new(gateway));
        let clients = names.iter().map(client).collect();
        Self {
            gateway,
            next_step: AtomicU64::new(1),
            names,
            clients,
        }
    }

    /// The links, with their shards' names.
    pub fn clients(&self) -> impl Iterator<Item = (&str, &Arc<RemoteScheduler>)> {
        self.names.iter().map(String::as_str).zip(&self.clients)
    }

    fn client(&self, job: &str) -> Arc<RemoteScheduler> {
        self.clients[shard_of(&self.names, job)].clone()
    }
}

/// The shard of a job by rendezvous hashing, so that an added shard takes over some jobs, and no
/// others move.
pub fn shard_of(names: &[String], job: &str) -> usize {
    let weight = |name: &String| xxh3_64(format!("{name}\0{job}").as_bytes());
    let all = names.iter().enumerate();
    all.max_by_key(|(_, name)| weight(name))
        .map_or(0, |(at, _)| at)
}

impl Scheduler {
    /// A fresh step id.
    pub fn step_id(&self) -> StepId {
        match self {
            Self::Local(driver) => driver.step_id(),
            Self::Shards(shards) => {
                let counter = shards.next_step.fetch_add(1, Ordering::Relaxed);
                StepId::of(shards.gateway, counter)
            }
        }
    }

    /// The client for the scheduler of a job.
    pub fn client(&self, job: &str) -> SchedulerClient {
        match self {
            Self::Local(driver) => SchedulerClient::Local(driver.clone()),
            Self::Shards(shards) => SchedulerClient::Remote(RemoteClient(shards.client(job))),
        }
    }

    /// The driver of this process, if that schedules.
    pub fn local(&self) -> Option<&DriverHandle> {
        match self {
            Self::Local(driver) => Some(driver),
            Self::Shards(_) => None,
        }
    }
}

impl SchedulerClient {
    /// Submits a step and returns the channel for its instructions. A new program beyond `live`
    /// never reaches the core.
    pub fn submit(
        &self,
        arrival: StepArrival,
        live: Option<LiveLimit>,
    ) -> Result<UnboundedReceiver<Instruction>, DriverStopped> {
        match self {
            Self::Local(driver) => driver.submit(arrival, live),
            Self::Remote(remote) => remote.0.submit(arrival, live),
        }
    }

    /// Submits an event; it is handled soon and committed later.
    pub fn event(&self, event: Event) {
        match self {
            Self::Local(driver) => driver.event(event),
            Self::Remote(remote) => remote.0.event(event),
        }
    }

    /// Submits an event, and returns a future that completes once it is on record, or fails if it
    /// never will be.
    pub fn event_to_record(&self, event: Event) -> Recording {
        match self {
            Self::Local(driver) => driver.event_to_record(event),
            Self::Remote(remote) => remote.0.event_to_record(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_shard_moves_jobs_to_itself_only() {
        let two = ["a".to_owned(), "b".to_owned()];
        let three = [two.to_vec(), vec!["c".to_owned()]].concat();
        let mut moved = 0;
        for job in (0..300).map(|n| format!("job-{n}")) {
            let (before, after) = (shard_of(&two, &job), shard_of(&three, &job));
            assert!(after == before || after == 2, "{job}");
            moved += usize::from(after == 2);
        }
        assert!((60..140).contains(&moved), "{moved} of 300");
    }
}
