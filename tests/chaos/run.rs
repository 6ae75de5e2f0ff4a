//! A run from its first process to its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use treadle_broker::{Address, Names, RabbitMq, Settings};
use treadle_services::Service;

use crate::actions::RAN;
use crate::agents::{self, Pulse, Shared};
use crate::checker::{self, Evidence, ShardEvidence};
use crate::consumer::Consumer;
use crate::error::ChaosError;
use crate::exchange::Client;
use crate::fixture::Fixture;
use crate::form::{Form, Shard};
use crate::options::Options;
use crate::record::Record;
use crate::report::Report;
use crate::report_progress;
use crate::schedule::{Kill, Victim, kills};
use crate::training::{self, LoadFaults};

/// How long service may be away after a kill before the run goes on anyway.
const OUTAGE_MAX: Duration = Duration::from_mins(1);
/// Time limit for the last messages to reach the consumer.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// Time limit for agents to notice that the trainer has come to its end, or has not.
const TRAINED_MAX: Duration = Duration::from_secs(30);
/// Pause between two polls.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Programs at work.
type Programs = JoinSet<Result<(), ChaosError>>;

/// Runs a form, checks, and reports the result.
pub(crate) async fn run(options: &Options, form: Form) -> Result<Report, ChaosError> {
    let began = Instant::now();
    options.check(form)?;
    let folder = options.folder(form)?;
    let name = form.as_str();
    report_progress(&format!(
        "{name}: records and logs go to {}",
        folder.display()
    ));
    let mut fixture = Fixture::start(options, form, &folder).await?;
    let consumers = listen(&fixture, form, &folder).await?;
    fixture.start_processes().await?;
    fixture.bind_policy(form).await?;
    report_progress("all processes answer; the programs start");
    let clients = folder.join("clients.jsonl");
    let shared = Arc::new(Shared {
        daemons: fixture.daemon_urls(),
        client: Client::new(),
        runs: runs(&fixture, form)?,
        record: Record::create(&clients)?,
        ending: AtomicBool::new(false),
        pulse: Pulse::default(),
    });
    let mut programs = start(&mut fixture, &shared, options, form).await?;
    let mut storm = Storm {
        fixture,
        form,
        shared: shared.clone(),
        outages_ms: BTreeMap::new(),
        ended_by_themselves: 0,
    };
    storm.rage(options, &folder).await?;
    let deadline = began + Duration::from_secs(options.seconds_max);
    let training = storm.end_programs(&mut programs, &folder, deadline);
    let training = training.await?;
    let mut evidence = Evidence {
        programs: options.programs,
        program_ends: shared.pulse.ended.load(Ordering::Relaxed),
        keeps: form.keeps(),
        clients,
        training,
        ran: (form == Form::Actions).then(|| folder.join(RAN)),
        psql: storm.fixture.psql.clone(),
        ..Evidence::default()
    };
    storm.settle(&consumers, &folder, &mut evidence).await?;
    for consumer in consumers {
        consumer.stop().await?;
    }
    let check_result = tokio::task::spawn_blocking(move || checker::check(&evidence))
        .await
        .map_err(|error| ChaosError::Nonsense(error.to_string()))??;
    Ok(Report {
        form: name,
        seed: options.seed,
        seconds: began.elapsed().as_secs_f64(),
        daemons: options.daemons,
        programs: options.programs,
        requests: shared.pulse.requests.load(Ordering::Relaxed),
        outages_ms: storm.outages_ms,
        ended_by_themselves: storm.ended_by_themselves,
        folder: folder.display().to_string(),
        check_result,
    })
}

/// Starts the programs, and the trainer in the form that has one.
async fn start(
    fixture: &mut Fixture,
    shared: &Arc<Shared>,
    options: &Options,
    form: Form,
) -> Result<Programs, ChaosError> {
    if form != Form::Training {
        return Ok(agents::start(shared, options, form));
    }
    training::declare(fixture).await?;
    fixture.start_trainer()?;
    Ok(training::start(shared, options))
}

/// A consumer for each shard, in their order; none without a broker.
async fn listen(fixture: &Fixture, form: Form, folder: &Path) -> Result<Vec<Consumer>, ChaosError> {
    let mut consumers = Vec::new();
    if let Some(url) = &fixture.amqp_url {
        for shard in form.shards() {
            let file = messages_of(*shard, folder);
            consumers.push(Consumer::start(url, shard.prefix, &file).await?);
        }
    }
    Ok(consumers)
}

fn messages_of(shard: Shard, folder: &Path) -> PathBuf {
    folder.join(format!("messages-{}.jsonl", shard.name))
}

/// The kills, and their effects on the service.
struct Storm {
    fixture: Fixture,
    form: Form,
    shared: Arc<Shared>,
    outages_ms: BTreeMap<Victim, Vec<f64>>,
    ended_by_themselves: u64,
}

impl Storm {
    /// All kills, one after another; in a training run loads of weights fail beside them.
    async fn rage(&mut self, options: &Options, folder: &Path) -> Result<(), ChaosError> {
        let victims = options.victims(self.form);
        let (seed, blackouts) = (options.seed, options.blackouts);
        let kills = kills(seed, options.kills, &victims, blackouts, self.form.haste());
        let faults = (self.form == Form::Training)
            .then(|| LoadFaults::new(&self.fixture, options, folder, kills.len()));
        let mut faults = faults.transpose()?;
        for (number, kill) in kills.into_iter().enumerate() {
            self.sleep(kill.after).await?;
            self.await_load_faults(faults.as_mut(), number).await?;
            self.kill(kill).await?;
        }
        self.await_load_faults(faults.as_mut(), usize::MAX).await?;
        if let Some(faults) = &faults {
            faults.calm().await;
        }
        self.sleep(Duration::from_secs(2)).await
    }

    /// Waits until the load faults that are due before a kill permit it.
    async fn await_load_faults(
        &mut self,
        faults: Option<&mut LoadFaults>,
        kill: usize,
    ) -> Result<(), ChaosError> {
        let Some(faults) = faults else { return Ok(()) };
        while !faults.look(kill).await? {
            self.sleep(LOOK_PAUSE).await?;
        }
        Ok(())
    }

    async fn sleep(&mut self, time: Duration) -> Result<(), ChaosError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.ended_by_themselves += self.fixture.supervise()?;
            tokio::time::sleep(LOOK_PAUSE.min(until - Instant::now())).await;
        }
        Ok(())
    }

    async fn kill(&mut self, kill: Kill) -> Result<(), ChaosError> {
        let (engines, daemons) = self.fixture.sizes();
        let target = match kill.victim {
            Victim::Leader => self.fixture.leader(kill.which)?,
            Victim::Follower => {
                (self.fixture.leader(kill.which)? + 1 + kill.which % (daemons - 1)) % daemons
            }
            Victim::Engine => kill.which % engines,
            Victim::Executor | Victim::DaemonAndTrainer => kill.which,
            Victim::Trainer
            | Victim::Broker
            | Victim::Database
            | Victim::Node
            | Victim::Everything => 0,
        };
        let killed = Instant::now();
        self.end(kill.victim, target).await?;
        let dead = Instant::now();
        let shared = self.shared.clone();
        let answered = tokio::spawn(async move {
            let answer = shared.pulse.answer_begun_after(dead);
            tokio::time::timeout(OUTAGE_MAX, answer).await.ok()
        });
        tokio::time::sleep(kill.down).await;
        self.begin(kill.victim, target).await?;
        let answered = answered.await.ok().flatten();
        let outage = answered.map_or(OUTAGE_MAX, |at| at - killed);
        let outage_ms = outage.as_secs_f64() * 1e3;
        let (acknowledged, victim) = (
            self.shared.pulse.acknowledged.load(Ordering::Relaxed),
            kill.victim.as_str(),
        );
        report_progress(&format!(
            "killed {victim} {target}, back after {} ms; service after {outage_ms:.0} ms; \
             {acknowledged} answers so far",
            kill.down.as_millis()
        ));
        self.outages_ms
            .entry(kill.victim)
            .or_default()
            .push(outage_ms);
        Ok(())
    }

    /// Kills it.
    async fn end(&mut self, victim: Victim, target: usize) -> Result<(), ChaosError> {
        match victim {
            Victim::Leader | Victim::Follower => self.fixture.kill_daemon(target).await,
            Victim::Engine => self.fixture.kill_engine(target).await,
            Victim::Executor => self.fixture.kill_executor(target).await,
            Victim::Node => self.fixture.kill_node().await,
            Victim::Broker => self.server(Service::Rabbitmq, Deed::Kill).await,
            Victim::Database => self.server(Service::Postgres, Deed::Kill).await,
            Victim::Trainer => self.fixture.kill_trainer().await,
            Victim::DaemonAndTrainer => {
                self.fixture.kill_daemon(0).await?;
                self.fixture.kill_trainer().await
            }
            Victim::Everything => {
                let (engines, daemons) = self.fixture.sizes();
                self.server(Service::Postgres, Deed::Kill).await?;
                for daemon in 0..daemons {
                    self.fixture.kill_daemon(daemon).await?;
                }
                if self.fixture.amqp_url.is_some() {
                    self.server(Service::Rabbitmq, Deed::Kill).await?;
                }
                self.fixture.kill_node().await?;
                self.fixture.kill_trainer().await?;
                for engine in 0..engines {
                    self.fixture.kill_engine(engine).await?;
                }
                Ok(())
            }
        }
    }

    /// Starts it again.
    async fn begin(&mut self, victim: Victim, target: usize) -> Result<(), ChaosError> {
        match victim {
            Victim::Leader | Victim::Follower => self.fixture.start_daemon(target).await,
            Victim::Engine => self.fixture.start_engine(target).await,
            // The daemon has another supervisor.
            Victim::Executor => Ok(()),
            Victim::Node => self.fixture.start_node().await,
            Victim::Broker => self.server(Service::Rabbitmq, Deed::Restart).await,
            Victim::Database => self.server(Service::Postgres, Deed::Restart).await,
            Victim::Trainer => self.fixture.start_trainer(),
            // Either comes up first.
            Victim::DaemonAndTrainer if target.is_multiple_of(2) => {
                self.fixture.start_trainer()?;
                self.fixture.start_daemon(0).await
            }
            Victim::DaemonAndTrainer => {
                self.fixture.start_daemon(0).await?;
                self.fixture.start_trainer()
            }
            Victim::Everything => {
                self.server(Service::Postgres, Deed::Restart).await?;
                self.fixture.start_processes().await?;
                if self.fixture.amqp_url.is_some() {
                    self.server(Service::Rabbitmq, Deed::Restart).await?;
                }
                self.fixture.start_trainer()
            }
        }
    }

    async fn server(&self, service: Service, deed: Deed) -> Result<(), ChaosError> {
        let servers = self.fixture.servers.clone();
        let done = tokio::task::spawn_blocking(move || match deed {
            Deed::Kill => servers.kill(service),
            Deed::Restart => servers.restart(service),
        });
        let done = done.await;
        Ok(done.map_err(|error| ChaosError::Nonsense(error.to_string()))??)
    }

    /// Has the trainer, in the form that has one, and then the programs come to their ends.
    async fn end_programs(
        &mut self,
        programs: &mut Programs,
        folder: &Path,
        deadline: Instant,
    ) -> Result<Option<training::Ended>, ChaosError> {
        report_progress("no more kills; the programs come to their ends");
        if self.form != Form::Training {
            self.shared.ending.store(true, Ordering::Relaxed);
            self.join(programs, deadline).await?;
            return Ok(None);
        }
        training::stop(folder)?;
        while !self.fixture.is_trained()? && Instant::now() < deadline {
            self.sleep(LOOK_PAUSE).await?;
        }
        let is_trained = self.fixture.is_trained()?;
        self.shared.ending.store(true, Ordering::Relaxed);
        self.join(programs, deadline + TRAINED_MAX).await?;
        let ended = training::finish(&self.fixture, folder, is_trained).await?;
        Ok(Some(ended))
    }

    /// Waits for the programs; those that have not ended by the deadline are stuck.
    async fn join(&mut self, programs: &mut Programs, deadline: Instant) -> Result<(), ChaosError> {
        while Instant::now() < deadline {
            self.ended_by_themselves += self.fixture.supervise()?;
            match tokio::time::timeout(LOOK_PAUSE, programs.join_next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(ended))) => ended?,
                Ok(Some(Err(error))) => return Err(ChaosError::Nonsense(error.to_string())),
                Err(_) => {}
            }
        }
        report_progress(&format!("{} programs are stuck", programs.len()));
        programs.shutdown().await;
        Ok(())
    }

    /// Waits until nothing runs and the consumers have all messages; then stops the daemons and
    /// reads the final states of their cores.
    async fn settle(
        &mut self,
        consumers: &[Consumer],
        folder: &Path,
        evidence: &mut Evidence,
    ) -> Result<(), ChaosError> {
        let deadline = Instant::now() + SETTLE_MAX;
        self.actions_recorded(deadline).await?;
        for (at, shard) in self.form.shards().iter().enumerate() {
            let mut found = self.rest(*shard, deadline).await;
            found.seq = checker::last_seq(&self.fixture.psql, shard.schema)?;
            found.messages = consumers.get(at).map(|_| messages_of(*shard, folder));
            let lags = || consumers.get(at).is_some_and(|c| c.seq() < found.seq);
            while lags() && Instant::now() < deadline {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            evidence.shards.push(found);
        }
        evidence.daemons_ended_badly = self.fixture.stop_processes().await?;
        if self.form == Form::Actions {
            // Other forms have no sandboxes, and may run beside this one.
            evidence.orphans = checker::orphans(self.fixture.binary());
        }
        for (shard, found) in self.form.shards().iter().zip(&mut evidence.shards) {
            found.replays = vec![self.fixture.replay(*shard, false).await?];
            if self.form.keeps().is_none() {
                found.replays.push(self.fixture.replay(*shard, true).await?);
            }
        }
        Ok(())
    }

    /// Number of actions that wait or run; 0 in forms without actions.
    async fn actions_open(&self, shard: Shard) -> Option<u64> {
        if self.form != Form::Actions {
            return Some(0);
        }
        let waiting = self
            .fixture
            .metric(shard, "treadle_actions_waiting")
            .await?;
        let started = self
            .fixture
            .metric(shard, "treadle_actions_started")
            .await?;
        Some(waiting + started)
    }

    /// Waits until all actions that were sent over the broker are on record.
    async fn actions_recorded(&self, deadline: Instant) -> Result<(), ChaosError> {
        let sent = self.shared.pulse.sent.load(Ordering::Relaxed);
        let schema = self.form.shards()[0].schema;
        while self.form == Form::Actions && Instant::now() < deadline {
            if checker::actions_by_job(&self.fixture.psql, schema)? >= sent {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// The report of a shard's scheduler once it has no open work, or at the deadline.
    async fn rest(&self, shard: Shard, deadline: Instant) -> ShardEvidence {
        loop {
            let metric = |name| self.fixture.metric(shard, name);
            let running = metric("treadle_steps_running").await;
            let waiting = metric("treadle_queue_steps").await;
            let open = [
                ("steps", running.zip(waiting).map(|(r, w)| r + w)),
                ("programs", metric("treadle_programs").await),
                ("tokens of copies", metric("treadle_kv_held_tokens").await),
                ("actions", self.actions_open(shard).await),
            ];
            let is_done = open.iter().all(|(_, open)| *open == Some(0));
            if is_done || Instant::now() > deadline {
                let mut counted = Vec::new();
                for counter in self.form.counters() {
                    counted.push((*counter, metric(counter).await));
                }
                return ShardEvidence {
                    schema: shard.schema,
                    open: open.to_vec(),
                    counted,
                    ..ShardEvidence::default()
                };
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

/// The way to the queue of actions, in the form that runs some.
fn runs(fixture: &Fixture, form: Form) -> Result<Option<RabbitMq>, ChaosError> {
    let url = fixture.amqp_url.as_deref();
    let Some(url) = url.filter(|_| form == Form::Actions) else {
        return Ok(None);
    };
    let names = Names::new(form.shards()[0].prefix)?;
    let settings = Settings {
        names,
        ..Settings::new(Address::parse(url)?)
    };
    Ok(Some(RabbitMq::start(settings)))
}

#[derive(Clone, Copy)]
enum Deed {
    Kill,
    Restart,
}
