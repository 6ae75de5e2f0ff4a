//! Figures over time.

use super::arguments::Query;
use super::endpoint::{Endpoint, get};
use super::signature::Answer;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use treadle_auth::permissions::VIEW;
use treadle_store::SamplePage;
use utoipa::{IntoParams, ToSchema};

/// Points of an answer that names no number, and most of any.
const POINTS: (u32, u32) = (240, 2_000);
/// How far back an answer goes that names no time, in microseconds.
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

/// Which time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// From when on, in milliseconds since 1970; an hour before `until_ms` without it.
    since_ms: Option<u64>,
    /// Until when, in milliseconds since 1970; now without it.
    until_ms: Option<u64>,
    /// Most points; 240 without it.
    points: Option<u32>,
}

/// Figures over time.
#[derive(Serialize, ToSchema)]
struct History {
    /// Oldest first.
    points: Vec<HistoryPoint>,
}

/// What was shown at one time.
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
        // The first and the last stretch may be parts.
        limit: points + 1,
    };
    let rows = app.store.samples(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let points = rows.iter().map(|row| HistoryPoint {
        at_us: row.at_us,
        values: serde_json::from_str(&row.values).unwrap_or_default(),
    });
    Ok(Json(History {
        points: points.collect(),
    }))
}
