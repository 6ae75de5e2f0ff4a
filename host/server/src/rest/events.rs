//! The journal, for readers.

use super::names::optional;
use super::{ok, store_failed};
use crate::app::App;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_store::{EventPage, EventRow, Order, SeqPage};
use treadle_wire::without_tenant;

/// Kinds of events that are about no program and that every tenant may see: workers serve all of
/// them. Answers of policies are about programs of several tenants at once.
const SHARED_KINDS: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_use_read",
    "worker_lost",
    "worker_recovered",
    "worker_removed",
    "timer_fired",
    "daemon_restarted",
];

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
pub(super) async fn page(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EventQuery>,
) -> Response {
    let principal = &caller.principal;
    let tenant = &principal.tenant.tenant;
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
    let program = match optional("program", query.program) {
        Ok(program) => program,
        Err(response) => return response,
    };
    let page = EventPage {
        program: program.map(|name| tenant.inside(&name).into_owned()),
        kind: query.kind,
        names: tenant.into(),
        shared_kinds: (!principal.root).then_some(SHARED_KINDS),
        range,
    };
    match app.store.events_page(&page).await {
        Ok(mut rows) => {
            rows.sort_by_key(|row| row.seq);
            let shown = |row| without_tenant(tenant, event_json(row));
            ok(json!({"events": rows.iter().map(shown).collect::<Vec<_>>()}))
        }
        Err(error) => store_failed(&error),
    }
}

fn event_json(row: &EventRow) -> Value {
    let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::Null);
    json!({"seq": row.seq, "at_us": row.at_us, "kind": row.kind, "job": row.job,
        "program": row.program, "event": body})
}
