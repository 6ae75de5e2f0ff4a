//! One daemon among several.

use super::candidate::{LeaderSlot, run_candidate};
use super::routes;
use crate::start::{EndCause, StartError};
use crate::start::{GatewayContext, gateway_state};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use treadle_actions::Gpus;
use treadle_auth::Auth;
use treadle_config::{Config, Role, Secret};
use treadle_engines::transfers::Node;
use treadle_gateway::routing::{Peer, Scheduler, Shards, keep_connected};
use treadle_gateway::{GatewayState, PayloadWriter, RequestIds};
use treadle_http::OpenStreams;
use treadle_http::serve;
use treadle_model::{GATEWAYS_MAX, GatewayId};
use treadle_runs::actions::actions_folder;
use treadle_runs::machine;
use treadle_runs::proxy::{Proxy, connector};
use treadle_runs::{listen, serve_limits};
use treadle_scheduler::link::Withdrawn;
use treadle_store::{Bodies, Candidate, Cluster, Store};

/// Pause between two reads of tenants and tokens.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// State for answering requests.
pub(super) struct Parts {
    /// This daemon's role.
    pub(super) role: Role,
    /// Its name.
    pub(super) name: String,
    /// The gateway.
    pub(super) gateway: Arc<GatewayState>,
    /// Authentication, as far as the gateway needs it.
    pub(super) auth: Arc<Auth>,
    /// The secret that the daemons share.
    pub(super) secret: Secret,
    /// One per shard; the first stores tenants and tokens.
    pub(super) shards: Vec<Shard>,
    /// The client for other daemons.
    pub(super) proxy: Proxy,
}

/// A shard: a part of the jobs.
pub(super) struct Shard {
    /// Its name.
    pub(super) name: String,
    /// Its stored state, for reading.
    pub(super) store: Arc<dyn Store>,
    /// The routes of the shard while this daemon schedules it.
    pub(super) slot: LeaderSlot,
}

/// A running daemon of a cluster.
pub struct Member {
    /// Its listening address.
    pub addr: SocketAddr,
    scheme: &'static str,
    streams: Arc<OpenStreams>,
    stop: watch::Sender<bool>,
    resign: watch::Sender<bool>,
    served: JoinHandle<()>,
    candidates: JoinSet<()>,
    followers: JoinSet<()>,
    lost: Vec<Lost>,
}

/// Notifies once a shard's store is gone.
type Lost = watch::Receiver<Option<Arc<str>>>;

impl Member {
    /// Opens the store, starts to listen, and campaigns for every shard unless it is only a
    /// gateway.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let (listener, addr) = listen(config).await?;
        let mut config = config.clone();
        // No engine may use the port that the system has chosen.
        config.server.listen = addr;
        let config = &config;
        let candidate = candidate(config, addr);
        let names = &config.cluster.shards;
        let configs = shard_configs(config, names)?;
        let shards = open_shards(names, &configs).await?;
        let lost = shards.iter().map(|shard| shard.store.lost()).collect();
        let gateway = gateway_id(&*shards[0].store, &candidate.name).await?;
        let clients = Arc::new(Shards::new(gateway, names.clone()));
        let context = GatewayContext::new(config, Node::open(config).await?)?;
        let scheduler = Scheduler::Shards(clients.clone());
        let stores = shards
            .iter()
            .map(|shard| shard.store.clone() as Arc<dyn Bodies>);
        let bodies = PayloadWriter::start(&config.payloads, names.clone(), stores.collect(), None);
        let parts = Arc::new(Parts {
            role: config.cluster.role,
            name: candidate.name.clone(),
            gateway: gateway_state(config, scheduler, context.clone(), bodies, None),
            auth: Auth::follow(config, shards[0].store.clone()).await?,
            secret: config.cluster.secret.clone(),
            shards,
            proxy: Proxy::new(connector(config)),
        });
        let mut followers = JoinSet::new();
        followers.spawn(refresh(parts.auth.clone()));
        for (at, (shard, client)) in clients.clients().enumerate() {
            let peer = peer(config, &candidate.name, shard, at, &parts);
            followers.spawn(keep_connected(client.clone(), peer));
        }
        let (stop, mut stopped) = watch::channel(false);
        let (resign, resigning) = watch::channel(false);
        let mut candidates = JoinSet::new();
        if config.cluster.role == Role::All {
            for (at, config) in configs.into_iter().enumerate() {
                let slot = parts.shards[at].slot.clone();
                let home = (at > 0).then(|| parts.auth.clone());
                let context = context.clone();
                let candidacy = run_candidate(
                    config,
                    candidate.clone(),
                    slot,
                    home,
                    context,
                    resigning.clone(),
                );
                candidates.spawn(candidacy);
            }
        }
        let router = treadle_http::open_to(&config.server.cors_origins, routes::router(parts));
        let served = tokio::spawn(serve(listener, router, serve_limits(config), async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
        Ok(Self {
            addr,
            scheme: config.scheme(),
            streams: context.streams,
            stop,
            resign,
            served,
            candidates,
            followers,
            lost,
        })
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// Completes when the daemon can't go on, with the reason.
    pub async fn ended(&self) -> EndCause {
        let lost = self.lost.iter().cloned().map(|mut lost| async move {
            let why = lost.wait_for(Option::is_some).await;
            why.ok().and_then(|why| why.as_deref().map(str::to_owned))
        });
        let (why, ..) = futures_util::future::select_all(lost.map(Box::pin)).await;
        why.map_or(EndCause::Superseded, EndCause::StoreLost)
    }

    /// Lets requests in flight end, then hands over the shards that it schedules.
    pub async fn stop(mut self) {
        self.streams.stop();
        let _ = self.stop.send(true);
        let _ = (&mut self.served).await;
        let _ = self.resign.send(true);
        while self.candidates.join_next().await.is_some() {}
        self.followers.shutdown().await;
    }
}

/// This daemon as a candidate: its name and its URL for other daemons.
fn candidate(config: &Config, addr: SocketAddr) -> Candidate {
    let cluster = &config.cluster;
    let url = match cluster.advertise.as_str() {
        "" => format!("{}://{addr}", config.scheme()),
        url => url.trim_end_matches('/').to_owned(),
    };
    let name = match cluster.name.as_str() {
        "" => treadle_runs::machine::name(addr),
        name => name.to_owned(),
    };
    Candidate { name, url }
}

async fn open_shards(names: &[String], configs: &[Config]) -> Result<Vec<Shard>, StartError> {
    let mut shards = Vec::with_capacity(names.len());
    for (name, config) in names.iter().zip(configs) {
        let (location, options) = (config.store.location(), config.store_options());
        shards.push(Shard {
            name: name.clone(),
            store: treadle_store::open_with(&location, &options).await?,
            slot: LeaderSlot::default(),
        });
    }
    Ok(shards)
}

/// Each shard has its own part of the store, of the engines, and of the resources of actions.
fn shard_configs(config: &Config, names: &[String]) -> Result<Vec<Config>, StartError> {
    // A gateway schedules no actions.
    let runs_actions = config.actions.enabled && config.cluster.role != Role::Gateway;
    let deals_actions = runs_actions && names.len() > 1;
    let gpus = if deals_actions {
        Gpus::find(&config.actions.gpus)?
    } else {
        Gpus::default()
    };
    let machine = machine::measure();
    let own = |(at, name): (usize, &String)| {
        let mut own = config.clone();
        own.cluster.shards = vec![name.clone()];
        own.store = config.store.of_shard(name, at == 0);
        own.broker = config.broker.of_shard(name, at == 0);
        let endpoints = config.engines.endpoints.iter().enumerate();
        let dealt = endpoints.filter(|(nth, _)| nth % names.len() == at);
        own.kv.host_tokens_max = config.kv.host_tokens_max / names.len() as u64;
        own.engines.endpoints = dealt.map(|(_, endpoint)| endpoint.clone()).collect();
        if deals_actions {
            let dealt = config
                .actions
                .of_shard(at, names.len(), machine, gpus.names());
            own.actions = dealt?;
            // Each shard has its own markers, since each numbers its actions.
            let folder = actions_folder(config).join(name);
            own.actions.folder = folder.display().to_string();
        }
        Ok(own)
    };
    names.iter().enumerate().map(own).collect()
}

/// An id that no gateway had before: a process's steps end with its id.
async fn gateway_id(store: &dyn Cluster, name: &str) -> Result<GatewayId, StartError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let started_us = now.unwrap_or_default().as_micros();
    let id = store.gateway_id(&format!("{name} {started_us}")).await?;
    if id >= GATEWAYS_MAX {
        return Err(StartError::Gateways);
    }
    Ok(GatewayId(id))
}

fn peer(config: &Config, name: &str, shard: &str, at: usize, parts: &Arc<Parts>) -> Peer {
    let store = parts.shards[at].store.clone();
    let requests = parts.gateway.requests.clone();
    Peer {
        shard: shard.to_owned(),
        name: name.to_owned(),
        secret: config.cluster.secret.reveal().to_owned(),
        connector: connector(config),
        leader: Box::new(move || {
            let store = store.clone();
            Box::pin(async move { Some(store.leader().await.ok()??.url) })
        }),
        withdraw: Box::new(move |withdrawn| withdraw(&requests, &withdrawn)),
    }
}

fn withdraw(requests: &RequestIds, withdrawn: &Withdrawn) {
    let tenant = withdrawn.tenant.as_deref().map(treadle_model::Tenant::new);
    let chosen = |key: &str| {
        let outside = match &tenant {
            Some(tenant) => tenant.outside(key),
            None => Some(key),
        };
        let of_id = |key: &str, id: &str| {
            let rest = key.strip_prefix(id);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let id = withdrawn.id.as_deref();
        outside.is_some_and(|key| id.is_none_or(|id| of_id(key, id)))
    };
    requests.withdraw(chosen, withdrawn.cut);
}

/// Keeps reading tenants and tokens that other daemons have changed.
async fn refresh(auth: Arc<Auth>) {
    loop {
        tokio::time::sleep(REFRESH_PAUSE).await;
        if let Err(error) = auth.refresh().await {
            tracing::debug!(%error, "tenants and tokens could not be read; using the last known ones");
        }
    }
}
