//! Engines of the configuration, and those that were registered before a restart.

use super::StartError;
use crate::app::App;
use crate::engine_profiles;
use futures_util::future::{join_all, try_join_all};
use std::sync::atomic::Ordering::Relaxed;
use treadle_config::{self as config, Config};
use treadle_core::programs::Worker;
use treadle_engines::Declared;
use treadle_model::{WorkerId, endpoint_of};

/// Registers all.
pub(super) async fn register_engines(config: &Config, app: &App) -> Result<(), StartError> {
    let endpoints = &config.engines.endpoints;
    let declared = try_join_all(endpoints.iter().map(|e| declared(config, e))).await?;
    let configured: Vec<_> = endpoints.iter().map(|e| &*e.url).zip(declared).collect();
    let known = app.driver.workers().await.unwrap_or_default();
    // Concurrently, so that an unresponsive engine does not delay the others.
    let registered = known.iter().map(|Worker { id, url, .. }| {
        let endpoint = endpoint_of(url).0;
        let declared = configured
            .iter()
            .find(|(at, _)| endpoint_of(at).0 == endpoint);
        let declared = declared.map_or_else(Declared::default, |(_, declared)| declared.clone());
        app.engines.register(*id, url, declared)
    });
    join_all(registered).await;
    let is_new = |at: &str| {
        let mut known = known.iter().map(|worker| endpoint_of(&worker.url).0);
        known.all(|endpoint| endpoint != endpoint_of(at).0)
    };
    let new = configured.iter().filter(|(url, _)| is_new(url));
    let registered = new.map(|(url, declared)| {
        let next = &app.next_worker;
        let id = next.fetch_add(1, Relaxed);
        app.engines.register(WorkerId(id), url, declared.clone())
    });
    join_all(registered).await;
    Ok(())
}

async fn declared(config: &Config, endpoint: &config::Endpoint) -> Result<Declared, StartError> {
    let speeds = match &endpoint.profile {
        Some(profile) => Some(engine_profiles::of_setting(profile).await?),
        None => None,
    };
    let declared = Declared {
        kind: config.engines.kind_of(endpoint),
        capacity_tokens: endpoint.capacity_tokens,
        speeds,
        ..Declared::default()
    };
    // The configuration was checked.
    let whole = declared.clone().of_class(endpoint.class.as_deref());
    let whole = whole.and_then(|declared| declared.with_role(endpoint.role.as_deref()));
    Ok(whole.unwrap_or(declared))
}
