//! Metrics over time.

use super::Endpoint;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::Query;
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_store::SamplePage;
use utoipa::{IntoParams, ToSchema};

/// Default and maximum number of points.
const POINTS: (u32, u32) = (240, 2_000);
/// Default time range, in microseconds.
const BACK_US: u64 = 3_600 * 1_000_000;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/history", VIEW, show)
            .summary("Metrics of the last three days")
            .details(
                "Samples of `/metrics`, summed over all workers, four per minute: programs by \
                 state, steps, tokens, KV memory and its uses. Times are those of the scheduler's \
                 clock.",
            ),
    ]
}

/// The time range.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// Start, in milliseconds since 1970; default an hour before `until_ms`.
    since_ms: Option<u64>,
    /// End, in milliseconds since 1970; default now.
    until_ms: Option<u64>,
    /// Maximum number of points; default 240.
    points: Option<u32>,
}

/// Metrics over time.
#[derive(Serialize, ToSchema)]
struct History {
    /// Oldest first.
    points: Vec<HistoryPoint>,
}

/// The metrics at one time.
#[derive(Serialize, ToSchema)]
struct HistoryPoint {
    /// When, in microseconds since 1970.
    at_us: u64,
    /// Metrics by name; those of KV memory by use too.
    values: BTreeMap<String, f64>,
}

async fn show(State(app): State<App>, Query(query): Query<HistoryQuery>) -> Answer<History> {
    let now_us = app.driver.overview().await.map_or(u64::MAX, |o| o.at.0);
    let until_us = query.until_ms.map_or(now_us, |ms| ms.saturating_mul(1_000));
    let since_us = query.since_ms.map(|ms| ms.saturating_mul(1_000));
    let since_us = since_us.unwrap_or(until_us.saturating_sub(BACK_US));
    let points = query.points.unwrap_or(POINTS.0).clamp(1, POINTS.1);
    let page = SamplePage {
        since_us,
        until_us,
        each_us: until_us.saturating_sub(since_us) / u64::from(points),
        // The first and the last interval may be partial.
        limit: points + 1,
    };
    let rows = app.store.samples(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let points = rows.iter().map(|row| HistoryPoint {
        at_us: row.at_us,
        values: serde_json::from_str(&row.values_json).unwrap_or_default(),
    });
    Ok(Json(History {
        points: points.collect(),
    }))
}
