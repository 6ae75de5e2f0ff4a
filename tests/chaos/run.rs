//! A run from its first process to its result.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use treadle_services::Service;

use crate::agents::{self, Pulse, Shared};
use crate::checker::{self, Evidence};
use crate::consumer::Consumer;
use crate::error::ChaosError;
use crate::exchange::Client;
use crate::fixture::{Fixture, SCHEMA};
use crate::options::Options;
use crate::record::Record;
use crate::report::Report;
use crate::report_progress;
use crate::schedule::{Kill, Victim, kills};

/// How long service may be away after a kill before the run goes on anyway.
const OUTAGE_MAX: Duration = Duration::from_mins(1);
/// How long the last messages may take to the consumer.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Runs, checks, and reports the result.
pub(crate) async fn run(options: Options) -> Result<Report, ChaosError> {
    let began = Instant::now();
    let folder = options.folder()?;
    report_progress(&format!("records and logs go to {}", folder.display()));
    let mut fixture = Fixture::start(&options, &folder).await?;
    let files = Files::of(&folder);
    let consumer = match &fixture.amqp_url {
        Some(url) => Some(Consumer::start(url, &files.messages).await?),
        None => None,
    };
    fixture.start_processes().await?;
    report_progress("all processes answer; the programs start");
    let shared = Arc::new(Shared {
        daemons: fixture.daemon_urls(),
        client: Client::new(),
        record: Record::create(&files.clients)?,
        ending: AtomicBool::new(false),
        pulse: Pulse::default(),
    });
    let mut programs = agents::start(&shared, &options);
    let mut storm = Storm {
        fixture,
        shared: shared.clone(),
        outages_ms: BTreeMap::new(),
        ended_by_themselves: 0,
    };
    storm.rage(&options).await?;
    shared.ending.store(true, Ordering::Relaxed);
    let deadline = began + Duration::from_secs(options.seconds_max);
    storm.join(&mut programs, deadline).await?;
    let mut evidence = Evidence {
        programs: options.programs,
        program_ends: shared.pulse.ended.load(Ordering::Relaxed),
        clients: files.clients,
        messages: consumer.is_some().then_some(files.messages),
        schema: SCHEMA,
        psql: storm.fixture.psql.clone(),
        ..Evidence::default()
    };
    storm.settle(consumer.as_ref(), &mut evidence).await?;
    if let Some(consumer) = consumer {
        consumer.stop().await?;
    }
    let check_result = tokio::task::spawn_blocking(move || checker::check(&evidence))
        .await
        .map_err(|error| ChaosError::Nonsense(error.to_string()))??;
    Ok(Report {
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

struct Files {
    clients: PathBuf,
    messages: PathBuf,
}

impl Files {
    fn of(folder: &std::path::Path) -> Self {
        Self {
            clients: folder.join("clients.jsonl"),
            messages: folder.join("messages.jsonl"),
        }
    }
}

/// The kills, and what they did to the service.
struct Storm {
    fixture: Fixture,
    shared: Arc<Shared>,
    outages_ms: BTreeMap<Victim, Vec<f64>>,
    ended_by_themselves: u64,
}

impl Storm {
    /// All kills, one after another.
    async fn rage(&mut self, options: &Options) -> Result<(), ChaosError> {
        let victims = options.victims();
        for kill in kills(options.seed, options.kills, &victims, options.blackouts) {
            self.sleep(kill.after).await?;
            self.kill(kill).await?;
        }
        self.sleep(Duration::from_secs(2)).await
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
            Victim::Leader => self.fixture.leader()?,
            Victim::Follower => (self.fixture.leader()? + 1 + kill.which % (daemons - 1)) % daemons,
            Victim::Engine => kill.which % engines,
            Victim::Broker | Victim::Database | Victim::Everything => 0,
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
            Victim::Broker => self.server(Service::Rabbitmq, Deed::Kill).await,
            Victim::Database => self.server(Service::Postgres, Deed::Kill).await,
            Victim::Everything => {
                let (engines, daemons) = self.fixture.sizes();
                self.server(Service::Postgres, Deed::Kill).await?;
                for daemon in 0..daemons {
                    self.fixture.kill_daemon(daemon).await?;
                }
                if self.fixture.amqp_url.is_some() {
                    self.server(Service::Rabbitmq, Deed::Kill).await?;
                }
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
            Victim::Broker => self.server(Service::Rabbitmq, Deed::Restart).await,
            Victim::Database => self.server(Service::Postgres, Deed::Restart).await,
            Victim::Everything => {
                self.server(Service::Postgres, Deed::Restart).await?;
                self.fixture.start_processes().await?;
                if self.fixture.amqp_url.is_some() {
                    self.server(Service::Rabbitmq, Deed::Restart).await?;
                }
                Ok(())
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

    /// Waits for the programs; those that have not ended by the deadline are stuck.
    async fn join(
        &mut self,
        programs: &mut JoinSet<Result<(), ChaosError>>,
        deadline: Instant,
    ) -> Result<(), ChaosError> {
        report_progress("no more kills; the programs come to their ends");
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

    /// Waits until nothing runs and the consumer has it all; then stops the daemons and asks for
    /// the core's final state.
    async fn settle(
        &mut self,
        consumer: Option<&Consumer>,
        evidence: &mut Evidence,
    ) -> Result<(), ChaosError> {
        let deadline = Instant::now() + SETTLE_MAX;
        loop {
            let running = self.fixture.metric("treadle_steps_running").await;
            let waiting = self.fixture.metric("treadle_queue_steps").await;
            let live = self.fixture.metric("treadle_programs").await;
            evidence.steps_open = running.zip(waiting).map(|(r, w)| r + w);
            evidence.programs_open = live;
            if evidence.steps_open == Some(0) && live == Some(0) || Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        evidence.seq = checker::last_seq(&self.fixture.psql, SCHEMA)?;
        let lags = |seq| consumer.is_some_and(|consumer| consumer.seq() < seq);
        while lags(evidence.seq) && Instant::now() < deadline {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        evidence.daemons_ended_badly = self.fixture.stop_processes().await?;
        evidence.replays = vec![
            self.fixture.replay(false).await?,
            self.fixture.replay(true).await?,
        ];
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Deed {
    Kill,
    Restart,
}
