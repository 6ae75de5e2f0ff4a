//! The parts that run while this daemon schedules: the driver, the watch over engines, the
//! policies, and pruning of the store.

use super::StartError;
use super::engines::register_engines;
use super::pruning::prune_forever;
use super::training::{captures, training, work_on_training};
use super::weight_hosts::WeightHosts;
use crate::app::App;
use crate::history::sample_forever;
use crate::maintenance::keep_up;
use crate::messaging::Messaging;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_auth::{Auth, AuthError, CacheSalts};
use treadle_config::{Config, Role};
use treadle_core::{DaemonEvent, Event};
use treadle_engines::transfers::{Node, TransferExecutor};
use treadle_engines::{EngineWatch, LogprobKinds, WatchOptions};
use treadle_gateway::Metrics;
use treadle_gateway::routing::Scheduler;
use treadle_gateway::{
    Captures, Counted, GatewayState, Identities, PayloadWriter, RequestIds, Room,
};
use treadle_http::OpenStreams;
use treadle_http::{Tally, Upstream};
use treadle_policy::evaluator::{Notice, PolicyEvaluator};
use treadle_registry as policies;
use treadle_registry::{PluginRegistry, RemotePredictor, evaluator_limits, forecast};
use treadle_runs::StorageQuotas;
use treadle_runs::actions::{Actions, Running, RunningInputs};
use treadle_runs::sandboxes::{self, Host, Tenants};
use treadle_sandbox::Sandboxes;
use treadle_scheduler::orders::Order;
use treadle_scheduler::recovery;
use treadle_scheduler::{
    ActionInstruction, Clock, DriverHandle, DriverOptions, Excerpts, ForecastFeed, spawn_driver,
    spawn_journal,
};
use treadle_store::{Bodies, Cluster, PayloadRoom, Store};
use treadle_whatif::WhatIfQueue;
use treadle_wire::request::share_hash_key;

/// Most inferred programs of a tenant in the gateway.
const INFERRED_PROGRAMS_MAX: usize = 100_000;
/// Most inferred programs of all tenants together.
const INFERRED_PROGRAMS_SUM_MAX: usize = 200_000;
/// The purpose of the key for hashes of prompts.
const HASHES: &str = "hashes of prompts";

/// State that all parts of a process share: the gateway's counters and requests, and KV transfers.
#[derive(Clone)]
pub(crate) struct GatewayContext {
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Requests by their clients' ids.
    pub(crate) requests: Arc<RequestIds>,
    /// Its host tier, and the executor of KV transfers.
    pub(crate) node: Arc<Node>,
    /// Open event streams.
    pub(crate) streams: Arc<OpenStreams>,
    /// Salts of tenants' prefix caches.
    pub(crate) salts: Arc<CacheSalts>,
    /// Bytes of request bodies in memory.
    pub(crate) bodies: Arc<Tally>,
    /// Bytes of assembled responses in memory.
    pub(crate) answers: Arc<Tally>,
    /// Excerpts of prompts for a prediction service.
    pub(crate) excerpts: Arc<Excerpts>,
}

impl GatewayContext {
    /// Starts with all counters at zero.
    pub(crate) fn new(config: &Config, node: Arc<Node>) -> Result<Self, StartError> {
        let salts = CacheSalts::new(config.cluster.secret.reveal()).map_err(AuthError::from)?;
        if !config.cluster.secret.is_empty() {
            // The scheduler compares the hashes of all gateways.
            share_hash_key(salts.number(HASHES));
        }
        Ok(Self {
            metrics: Arc::default(),
            requests: Arc::default(),
            node,
            streams: Arc::default(),
            salts: Arc::new(salts),
            bodies: Arc::default(),
            answers: Arc::default(),
            excerpts: Arc::new(Excerpts::of_jobs(config.prediction.shared_jobs())),
        })
    }
}

/// Hashes prompts with the store's key from now on, so that equal prompts have equal hashes after a
/// restart. Daemons with a shared secret use that as the key.
pub(crate) async fn keep_hash_key(config: &Config, store: &dyn Cluster) -> Result<(), StartError> {
    if config.cluster.secret.is_empty() {
        let salts = CacheSalts::new("").map_err(AuthError::from)?;
        share_hash_key(store.key(HASHES, salts.number(HASHES)).await?);
    }
    Ok(())
}

/// A running scheduler.
pub(crate) struct Leading {
    /// What REST handlers share.
    pub(crate) app: App,
    messaging: Option<Arc<Messaging>>,
    running: Option<Running>,
    maintenance: JoinHandle<()>,
    transfer_executor: TransferExecutor,
}

impl Leading {
    /// Replays the journal, binds policies and registers the configured engines. `epoch` is this
    /// daemon's term as leader of its store.
    pub(crate) async fn start(
        config: &Config,
        store: Arc<dyn Store>,
        auth: Arc<Auth>,
        context: GatewayContext,
        epoch: u64,
    ) -> Result<Self, StartError> {
        let (notices, told) = unbounded_channel();
        let (forecasts, seen, wanted) = ForecastFeed::new();
        let excerpts = context.excerpts.clone();
        let (transfers, orders) = unbounded_channel();
        let (actions, instructed) = unbounded_channel();
        let feeds = Feeds {
            forecasts,
            transfers,
            actions,
        };
        let metrics = context.metrics.clone();
        let started = start_driver(config, &store, notices.clone(), feeds, metrics).await;
        let (driver, committed) = started?;
        let transfer_executor =
            TransferExecutor::start(context.node.clone(), driver.clone(), orders, owner(config));
        let sandboxes = own_sandboxes(config, &auth).await?;
        let quotas = StorageQuotas::new(store.clone(), auth.clone(), config.payloads.bytes_max);
        let inputs = RunningInputs {
            instructions: instructed,
            sandboxes: sandboxes.clone(),
            auth: auth.clone(),
            quotas: quotas.clone(),
        };
        let running = Running::start(config, &driver, &store, epoch, inputs).await?;
        let actions = running.as_ref().map(|running| running.actions.clone());
        let sandboxes = host(config, sandboxes, actions.as_ref());
        let messaging = Messaging::connect(&config.broker)?;
        let parts = Parts {
            driver,
            committed: committed.clone(),
            store,
            auth,
            forecasts_wanted: wanted,
            notices,
            context,
            quotas: quotas.clone(),
        };
        let app = App {
            nodes: actions.as_ref().and_then(|ours| ours.nodes().cloned()),
            broker: messaging.as_ref().map(|broker| broker.status().clone()),
            actions,
            sandboxes,
            ..assemble(config, parts).await?
        };
        let policy = app.policies.restore().await?;
        tracing::info!(%policy, "the eviction policy is bound");
        register_engines(config, &app).await?;
        if let Some(messaging) = &messaging {
            messaging.start(&app, committed);
        }
        let policies = keep_up(app.policies.clone(), app.auth.clone(), told);
        let pruning = prune_forever(config.clone(), app.clone(), quotas);
        let sampling = sample_forever(app.clone(), config.scheduler.time_scale);
        // Its address was checked with the configuration.
        let remote = RemotePredictor::of(&config.prediction, config.tls.trust(), excerpts)
            .ok()
            .flatten();
        let forecasts = forecast(app.policies.clone(), app.driver.clone(), seen, remote);
        let hosts = WeightHosts::new(config, app.nodes.clone());
        let members = work_on_training(app.clone(), Arc::new(hosts));
        let maintenance =
            tokio::spawn(async { tokio::join!(pruning, policies, forecasts, sampling, members).1 });
        Ok(Self {
            app,
            messaging,
            running,
            maintenance,
            transfer_executor,
        })
    }

    /// Writes all state to the store and stops.
    pub(crate) async fn stop(self) {
        self.maintenance.abort();
        self.app.whatif.stop();
        if let Some(messaging) = &self.messaging {
            messaging.stop().await;
        }
        if let Some(running) = self.running {
            running.stop().await;
        }
        if let Some(sandboxes) = &self.app.sandboxes {
            sandboxes.stop().await;
        }
        if let Err(error) = self.app.policies.save_states().await {
            tracing::warn!(%error, "stored data of policies could not be saved");
        }
        self.transfer_executor.stop().await;
        self.app.driver.stop().await;
    }

    /// Stops without writing, because another daemon has taken over.
    pub(crate) fn abandon(self) {
        self.maintenance.abort();
        self.app.whatif.stop();
        if let Some(messaging) = self.messaging {
            tokio::spawn(async move { messaging.stop().await });
        }
        // Its thread may wait for an input; it notices that writes fail.
        let (driver, transfer_executor) = (self.app.driver, self.transfer_executor);
        let running = self.running;
        tokio::spawn(async move {
            if let Some(running) = running {
                running.stop().await;
            }
            transfer_executor.stop().await;
            driver.stop().await;
        });
    }
}

/// The owner of the cache copies in a node's host tier.
fn owner(config: &Config) -> Box<str> {
    match config.cluster.role {
        Role::Single => "".into(),
        Role::All | Role::Gateway => config.cluster.shards.join(",").into(),
    }
}

/// Sandboxes of this machine, if they are enabled.
async fn own_sandboxes(config: &Config, auth: &Arc<Auth>) -> Result<Option<Sandboxes>, StartError> {
    if !config.sandboxes.enabled {
        return Ok(None);
    }
    let tenants = Tenants::Known(auth.clone());
    Ok(Some(sandboxes::start(config, "", tenants).await?))
}

/// The host of sandboxes and their commands.
fn host(
    config: &Config,
    sandboxes: Option<Sandboxes>,
    actions: Option<&Arc<Actions>>,
) -> Option<Arc<Host>> {
    let turns = Arc::new(actions?.clone());
    let memory_bytes_max = config.sandboxes.memory_bytes;
    sandboxes.map(|sandboxes| Host::start(sandboxes, turns, memory_bytes_max))
}

/// The gateway's part of a daemon.
pub(crate) fn gateway_state(
    config: &Config,
    scheduler: Scheduler,
    context: GatewayContext,
    bodies: Option<Arc<PayloadWriter>>,
    captures: Option<Arc<Captures>>,
) -> Arc<GatewayState> {
    Arc::new(GatewayState {
        scheduler,
        upstream: Upstream::over(context.node.connector().clone()),
        identities: Identities::new(INFERRED_PROGRAMS_MAX, INFERRED_PROGRAMS_SUM_MAX),
        bodies,
        requests: context.requests,
        responses: Arc::default(),
        metrics: context.metrics,
        prompts: context.node.prompts(),
        excerpts: context.excerpts,
        captures,
        body_bytes_max: usize::try_from(config.server.body_bytes_max).unwrap_or(usize::MAX),
        pass_fields: config.engines.pass_fields.clone(),
        salts: context.salts,
        answer_bytes_max: config.engines.answer_bytes_max,
        body_timeout: Duration::from_secs(config.server.body_read_timeout_s),
        room: Room {
            bodies: (context.bodies, config.server.bodies_bytes_max),
            answers: (context.answers, config.engines.answers_bytes_max),
            steps_max: config
                .scheduler
                .queue_len_max
                .min(config.server.connections_max as u64),
            programs_max: config.scheduler.programs_max,
        },
        forward_timeout: Duration::from_secs(config.engines.forward_timeout_s),
        response_timeout: Duration::from_secs(config.engines.response_timeout_s),
        keep_alive: Duration::from_secs(config.server.keep_alive_s),
    })
}

/// Where the driver sends what others carry out.
struct Feeds {
    forecasts: ForecastFeed,
    transfers: UnboundedSender<Order>,
    actions: UnboundedSender<ActionInstruction>,
}

async fn start_driver(
    config: &Config,
    store: &Arc<dyn Store>,
    notices: UnboundedSender<Notice>,
    feeds: Feeds,
    metrics: Arc<Metrics>,
) -> Result<(DriverHandle, watch::Receiver<u64>), StartError> {
    let began = Instant::now();
    let recovered = recovery::recover(&**store, config.core()).await?;
    let replay_time = began.elapsed();
    tracing::info!(
        seq = recovered.seq,
        snapshot_seq = recovered.snapshot_seq,
        programs = recovered.core.programs().live.len(),
        ms = replay_time.as_millis() as u64,
        "the journal was replayed"
    );
    let clock = Clock::start(recovered.core.now(), config.scheduler.time_scale);
    let journal = spawn_journal(store.clone(), metrics.journal.clone());
    let committed = journal.committed();
    let wanted = config.core();
    let configured = recovered.core.programs().config.as_ref() == Some(&wanted);
    let policies = PolicyEvaluator::new(evaluator_limits(&config.plugins));
    let driver = spawn_driver(DriverOptions {
        core: recovered.core,
        seq: recovered.seq,
        restarted: recovered.seq > 0,
        snapshot_seq: recovered.snapshot_seq,
        replay_time,
        clock,
        policies,
        journal: Some(journal),
        snapshot_events: config.store.snapshot_events,
        forecasts: Some(feeds.forecasts),
        transfers: Some(feeds.transfers),
        actions: Some(feeds.actions),
        notices: Some(notices),
    })
    .map_err(StartError::Thread)?;
    if !configured {
        let config = Box::new(wanted);
        driver.event(Event::Daemon(DaemonEvent::Configured { config }));
    }
    Ok((driver, committed))
}

/// What an [`App`] is assembled from.
struct Parts {
    driver: DriverHandle,
    /// The last event on disk.
    committed: watch::Receiver<u64>,
    store: Arc<dyn Store>,
    auth: Arc<Auth>,
    /// Whether predictions are requested.
    forecasts_wanted: Arc<AtomicBool>,
    /// What the registry learns about policies.
    notices: UnboundedSender<Notice>,
    context: GatewayContext,
    quotas: Arc<StorageQuotas>,
}

async fn assemble(config: &Config, parts: Parts) -> Result<App, StartError> {
    let Parts {
        driver,
        committed,
        store,
        auth,
        forecasts_wanted,
        notices,
        context,
        quotas,
    } = parts;
    let scheduler = Scheduler::Local(driver.clone());
    let bodies = bodies_of(config, &store, quotas);
    let (node, streams) = (context.node.clone(), context.streams.clone());
    let room = Arc::new(PayloadRoom::new(store.clone(), config.training.bytes_max));
    let kinds = LogprobKinds::new(Upstream::over(node.connector().clone()));
    let captures = captures(config, &driver, &store, &room, &kinds);
    let gateway = gateway_state(config, scheduler, context, bodies, captures);
    let upstream = gateway.upstream.clone();
    let workers = driver.workers().await.unwrap_or_default();
    let next_worker = workers.last().map_or(0, |worker| worker.id.0 + 1);
    let next_worker = Arc::new(AtomicU32::new(next_worker));
    let engines = EngineWatch::new(
        driver.clone(),
        upstream,
        watching(config),
        node.clone(),
        config.core(),
        next_worker.clone(),
        kinds,
    );
    let policies = Arc::new(PluginRegistry::new(
        policies::engine(config)?,
        store.clone(),
        driver.clone(),
        evaluator_limits(&config.plugins),
        policies::signing(config)?,
        forecasts_wanted,
        notices,
    )?);
    let whatif = WhatIfQueue::new(
        store.clone(),
        gateway.upstream.clone(),
        policies::replay_engine(config)?,
        config.core(),
    );
    let training = training(config, &driver, &store, &auth, room, &streams, &committed);
    Ok(App {
        gateway,
        auth,
        driver,
        store,
        training,
        engines,
        policies,
        whatif,
        actions: None,
        sandboxes: None,
        nodes: None,
        broker: None,
        node,
        streams,
        committed,
        next_worker,
        relay_ports: config.engines.relay_ports().into(),
        demo: Arc::default(),
    })
}

fn watching(config: &Config) -> WatchOptions {
    WatchOptions {
        interval: Duration::from_millis(config.engines.probe_interval_ms),
        measures: config.engines.measure,
        time_scale: config.scheduler.time_scale,
    }
}

/// Stores bodies of steps. In a cluster each gateway does that itself; this one would never get any.
fn bodies_of(
    config: &Config,
    store: &Arc<dyn Store>,
    quotas: Arc<StorageQuotas>,
) -> Option<Arc<PayloadWriter>> {
    if config.cluster.role != Role::Single {
        return None;
    }
    let stores: Vec<Arc<dyn Bodies>> = vec![store.clone()];
    let counted: Counted =
        Arc::new(move |program: &str, bytes: u64| quotas.added_of(program, bytes));
    PayloadWriter::start(&config.payloads, vec![String::new()], stores, Some(counted))
}
