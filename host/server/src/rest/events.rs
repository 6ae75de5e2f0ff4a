//! Reading the journal.

use super::Endpoint;
use super::{recorded_first, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{Query, optional, page_limit, sorted_by};
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_model::{ClientName, Tenant};
use treadle_store::{EventPage, EventRow, Order, SeqPage};
use treadle_wire::without_tenant;
use utoipa::{IntoParams, ToSchema};

/// Kinds of events without a program that every tenant may see, because workers serve all tenants.
/// Policies' answers are not among them: they are about programs of several tenants at once.
const SHARED_KINDS: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_use_read",
    "worker_speed_read",
    "worker_model_read",
    "worker_other_models_read",
    "worker_lost",
    "worker_recovered",
    "worker_removed",
    "worker_rest_read",
    "worker_state_set",
    "worker_class_set",
    "worker_role_set",
    "timer_fired",
    "daemon_restarted",
];

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/events", VIEW, page)
            .around(recorded_first)
            .summary("The journal: committed events, sorted and filtered")
            .details("Reading on from the last `seq` sees every event once."),
    ]
}

/// Filters and paging of events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those of this program.
    program: Option<String>,
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those at this time or later, in milliseconds on the clock of `at_us`.
    since_ms: Option<u64>,
    /// seq, or -seq for newest first; default seq.
    sort: Option<String>,
    /// Only those with a greater `seq`.
    after: Option<u64>,
    /// Only those with a smaller `seq`.
    before: Option<u64>,
    /// Maximum number of events; default 100.
    limit: Option<u32>,
    /// The newest instead of the oldest, still in ascending order.
    #[serde(default)]
    #[param(required = false)]
    latest: bool,
}

/// A page of the journal.
#[derive(Serialize, ToSchema)]
struct Events {
    /// In ascending order of `seq` unless `sort` names another.
    events: Vec<EventView>,
    /// The `after` of the next page, or with `-seq` its `before`; absent on the last one.
    next: Option<u64>,
}

/// An event.
#[derive(Serialize, ToSchema)]
pub(super) struct EventView {
    /// Position in the journal.
    seq: u64,
    /// When the core handled it, in microseconds on the journal's clock.
    at_us: u64,
    /// Kind of event, in past tense.
    kind: String,
    /// Job that it belongs to.
    job: String,
    /// Program that it belongs to, if any.
    program: Option<String>,
    /// The event itself.
    #[schema(value_type = Object)]
    event: Value,
}

impl EventView {
    /// An event with the names that a tenant uses.
    pub(super) fn of(tenant: &Tenant, row: EventRow) -> Self {
        let outside = |name: String| match tenant.outside(&name) {
            Some(own) => own.to_owned(),
            None => name,
        };
        let body = serde_json::from_str(&row.body).unwrap_or(Value::Null);
        Self {
            seq: row.seq,
            at_us: row.at_us,
            kind: row.kind,
            job: outside(row.job),
            program: row.program.map(outside),
            event: without_tenant(tenant, body),
        }
    }
}

/// The events that a caller may see, of these.
pub(super) fn visible(
    caller: &Caller,
    job: Option<String>,
    program: Option<String>,
    kind: Option<String>,
) -> Result<EventPage, Response> {
    let principal = &caller.principal;
    let inside = |name: ClientName| principal.inside(&name);
    Ok(EventPage {
        job: optional("job", job)?.map(inside),
        program: optional("program", program)?.map(inside),
        kind,
        names: (&principal.tenant.tenant).into(),
        shared_kinds: (!principal.root).then_some(SHARED_KINDS),
        range: SeqPage::default(),
    })
}

async fn page(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EventQuery>,
) -> Answer<Events> {
    let sort = query.sort.as_deref().unwrap_or("seq");
    let ((), ascending) = sorted_by(sort, &[("seq", ())])?;
    let limit = page_limit(query.limit);
    let page = EventPage {
        range: SeqPage {
            after: query.after,
            before: query.before,
            since_us: query.since_ms.map(|ms| ms.saturating_mul(1_000)),
            order: Order::of(ascending && !query.latest),
            limit,
        },
        ..visible(&caller, query.job, query.program, query.kind)?
    };
    let rows = app.store.events_page(&page).await;
    let mut rows = rows.map_err(|error| store_failed(&error))?;
    if ascending {
        rows.sort_by_key(|row| row.seq);
    }
    let is_full = rows.len() == limit as usize;
    let next = rows.last().filter(|_| is_full).map(|row| row.seq);
    let shown = |row| EventView::of(&caller.principal.tenant.tenant, row);
    Ok(Json(Events {
        events: rows.into_iter().map(shown).collect(),
        next,
    }))
}
