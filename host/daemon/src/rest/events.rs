//! The journal, for those who read along.

use super::{ok, store_failed};
use crate::app::App;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_store::{EventPage, EventRow, Order, SeqPage};

/// Which events.
#[derive(Deserialize)]
pub(super) struct EventQuery {
    program: Option<String>,
    kind: Option<String>,
    after: Option<u64>,
    limit: Option<u32>,
    /// The newest instead of the oldest, still in rising order.
    #[serde(default)]
    latest: bool,
}

/// `GET /v1/events?after=SEQ&limit=N`: committed events in order. Reading on
/// from the last `seq` sees every event once.
pub(super) async fn page(State(app): State<App>, Query(query): Query<EventQuery>) -> Response {
    let order = if query.latest {
        Order::NewestFirst
    } else {
        Order::OldestFirst
    };
    let range = SeqPage {
        after: query.after,
        order,
        limit: query.limit.unwrap_or(100),
        ..SeqPage::default()
    };
    let page = EventPage {
        program: query.program,
        kind: query.kind,
        range,
    };
    match app.store.events_page(&page).await {
        Ok(mut rows) => {
            rows.sort_by_key(|row| row.seq);
            ok(json!({"events": rows.iter().map(event_json).collect::<Vec<_>>()}))
        }
        Err(error) => store_failed(&error),
    }
}

fn event_json(row: &EventRow) -> Value {
    let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::Null);
    json!({"seq": row.seq, "at_us": row.at_us, "kind": row.kind, "job": row.job,
        "program": row.program, "event": body})
}
