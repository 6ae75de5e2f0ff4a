//! Candidacy for a shard: leads it whenever no other daemon does.

use crate::cluster::link::{LinkServer, expect_back};
use crate::rest;
use crate::start::StartError;
use crate::start::{GatewayContext, Leading};
use axum::Router;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use treadle_auth::Auth;
use treadle_config::Config;
use treadle_store::{Candidate, Leadership, Options, Store};

/// Pause between two attempts to lead.
const CAMPAIGN_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a start that failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The routes of a shard while this daemon schedules it.
#[derive(Clone, Default)]
pub(super) struct LeaderSlot(Arc<RwLock<Option<Occupied>>>);

/// See [`LeaderSlot`].
#[derive(Clone)]
pub(super) struct Occupied {
    /// All paths but those of generation requests.
    pub(super) router: Router,
    /// The server for gateways' connections.
    pub(super) link: LinkServer,
}

impl LeaderSlot {
    /// The current routes.
    pub(super) fn occupied(&self) -> Option<Occupied> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, occupied: Option<Occupied>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = occupied;
    }
}

/// Campaigns for a shard until stopped. `home` has tenants and tokens if another shard stores them.
pub(super) async fn run_candidate(
    config: Config,
    candidate: Candidate,
    slot: LeaderSlot,
    home: Option<Arc<Auth>>,
    context: GatewayContext,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let term = term(
            &config,
            &candidate,
            &slot,
            home.clone(),
            &context,
            stopping.clone(),
        );
        match term.await {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(%error, "this daemon cannot schedule at present");
                let pause = tokio::time::timeout(FAILURE_PAUSE, stopping.wait_for(|stop| *stop));
                let _ = pause.await;
            }
        }
        if *stopping.borrow() {
            return;
        }
    }
}

/// One term, from the campaign to its end.
async fn term(
    config: &Config,
    candidate: &Candidate,
    slot: &LeaderSlot,
    home: Option<Arc<Auth>>,
    context: &GatewayContext,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), StartError> {
    // The store existed when this daemon started: a missing one must not be recreated.
    let options = Options {
        create: false,
        ..config.store_options()
    };
    let store = treadle_store::open_with(&config.store.location(), &options).await?;
    let epoch = loop {
        if let Some(epoch) = store.campaign(candidate).await? {
            break epoch;
        }
        let pause = tokio::time::timeout(CAMPAIGN_PAUSE, stopping.wait_for(|stop| *stop));
        if pause.await.is_ok() {
            return Ok(());
        }
    };
    tracing::info!(
        epoch,
        schema = config.store.schema,
        "this daemon schedules now"
    );
    let led = lead(config, &store, epoch, slot, home, context, &mut stopping).await;
    slot.set(None);
    if let Err(error) = store.resign().await {
        tracing::debug!(%error, "leadership could not be released");
    }
    let _ = store.close().await;
    led
}

async fn lead(
    config: &Config,
    store: &Arc<dyn Store>,
    epoch: u64,
    slot: &LeaderSlot,
    home: Option<Arc<Auth>>,
    context: &GatewayContext,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), StartError> {
    let own_auth = home.is_none();
    let auth = match home {
        Some(auth) => auth,
        None => Auth::open(config, store.clone()).await?.0,
    };
    let leading = Leading::start(config, store.clone(), auth, context.clone(), epoch).await?;
    let app = leading.app.clone();
    let link = LinkServer {
        driver: app.driver.clone(),
        timeout: Duration::from_secs(config.cluster.gateway_timeout_s),
    };
    expect_gateways(&link).await;
    let router = rest::router(app.clone());
    slot.set(Some(Occupied { router, link }));
    let mut leadership = store.leadership();
    let superseded = async move {
        let superseded = leadership.wait_for(|leadership| *leadership == Leadership::Superseded);
        superseded.await.is_ok()
    };
    let mut lost = store.lost();
    let lost = async move { lost.wait_for(Option::is_some).await.is_ok() };
    let told_to_stop = async { stopping.wait_for(|stop| *stop).await.is_ok() };
    tokio::select! {
        _ = told_to_stop => {
            // Another daemon continues with the requests in flight.
            slot.set(None);
            leading.stop().await;
            if own_auth {
                app.auth.close().await;
            }
        }
        _ = superseded => {
            tracing::error!("another daemon took over scheduling; this one is on standby");
            leading.abandon();
        }
        _ = lost => {
            tracing::error!("the store is gone; this daemon stops scheduling");
            leading.abandon();
        }
        () = app.driver.stopped() => {
            tracing::error!("the scheduler has ended; this daemon is on standby");
            leading.abandon();
        }
    }
    Ok(())
}

/// Gives gateways of the last scheduler time to connect.
async fn expect_gateways(link: &LinkServer) {
    // Those without a step have nothing to lose.
    for gateway in link.driver.gateways().await.unwrap_or_default() {
        let link = link.clone();
        tokio::spawn(async move { expect_back(&link, gateway).await });
    }
}
