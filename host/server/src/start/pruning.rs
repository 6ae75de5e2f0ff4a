//! Removes expired rows from the store.

use crate::app::App;
use std::sync::Arc;
use std::time::Duration;
use treadle_config::Config;
use treadle_runs::StorageQuotas;
use treadle_store::{PRUNE_BODIES_MAX, Retention};

/// Pause between two removals of old rows.
const PRUNE_PAUSE: Duration = Duration::from_mins(1);

/// Starts immediately: if leadership terms are shorter than the pause, old rows would otherwise
/// never be removed.
pub(super) async fn prune_forever(config: Config, app: App, quotas: Arc<StorageQuotas>) {
    loop {
        app.auth.run_maintenance().await;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let kept_us = config.store.keep_ended_s.saturating_mul(1_000_000);
        let retention = Retention {
            keep_events: config.store.keep_events,
            ended_before_us: (now.unwrap_or_default().as_micros() as u64).saturating_sub(kept_us),
            // Without a broker, nothing would ever consume what is kept for it.
            sink_lag_events_max: if config.broker.is_on() {
                config.broker.lag_events_max
            } else {
                0
            },
        };
        loop {
            match app.store.prune(&retention).await {
                Ok(pruned) if pruned.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old rows could not be removed");
                    break;
                }
            }
        }
        prune_bodies(&config, &app).await;
        hold_to_shares(&quotas).await;
    }
}

/// Trims tenants that exceed their share, until it is time to prune again.
async fn hold_to_shares(quotas: &StorageQuotas) {
    let until = tokio::time::Instant::now() + PRUNE_PAUSE;
    loop {
        if let Err(error) = quotas.keep_within().await {
            tracing::warn!(%error, "stored data of tenants could not be trimmed to their shares");
            tokio::time::sleep_until(until).await;
        }
        if tokio::time::timeout_at(until, quotas.is_full())
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn prune_bodies(config: &Config, app: &App) {
    let kept_us = config.payloads.keep_s.saturating_mul(1_000_000);
    loop {
        let before_us = treadle_auth::now_us().saturating_sub(kept_us);
        match app.store.prune_bodies(before_us).await {
            Ok(pruned) if pruned >= PRUNE_BODIES_MAX => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, "old bodies could not be removed");
                return;
            }
        }
    }
}
