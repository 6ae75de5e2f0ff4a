//! The audit log, for investigations.

use super::Endpoint;
use super::store_failed;
use crate::app::App;
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use treadle_auth::Caller;
use treadle_auth::permissions::ADMIN;
use treadle_endpoints::arguments::{Query, page_limit, sorted_by};
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_store::{AuditPage, AuditRow};
use utoipa::{IntoParams, ToSchema};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![get("/api/v1/audit", ADMIN, page).summary("The audit log")]
}

/// Filters and paging of the audit log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// Only this action, such as `token.created`.
    action: Option<String>,
    /// Only changes of this target.
    target: Option<String>,
    /// Only changes by this caller.
    who: Option<String>,
    /// Only those at this time or later, in milliseconds since 1970.
    since_ms: Option<u64>,
    /// id, or -id for newest first; default -id.
    sort: Option<String>,
    /// Only changes older than the one with this id: `next` of a page with the newest first.
    before: Option<u64>,
    /// Only changes newer than the one with this id: `next` of a page with the oldest first.
    after: Option<u64>,
    /// Maximum number of changes; default 100.
    limit: Option<u32>,
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
struct Changes {
    /// The changes.
    changes: Vec<ChangeView>,
    /// The `before` or `after` of the next page; absent on the last one.
    next: Option<u64>,
}

/// A change and the caller who made it.
#[derive(Serialize, ToSchema)]
struct ChangeView {
    /// Its id; ids ascend.
    id: u64,
    /// When, in microseconds since 1970.
    at_us: u64,
    /// Tenant in which it was made.
    tenant: String,
    /// The caller.
    who: String,
    /// The action, such as `token.created`.
    action: String,
    /// The changed object.
    target: String,
    /// The object before the change.
    before: Value,
    /// The object after the change.
    after: Value,
    /// Id of the request.
    request_id: String,
    /// Address that the request came from.
    address: Option<String>,
}

async fn page(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Answer<Changes> {
    let principal = &caller.principal;
    let tenant = (!principal.whole).then(|| principal.tenant.tenant.name().to_owned());
    let limit = page_limit(query.limit);
    let ((), ascending) = sorted_by(query.sort.as_deref().unwrap_or("-id"), &[("id", ())])?;
    let page = AuditPage {
        tenant,
        action: query.action,
        target: query.target,
        who: query.who,
        since_us: query.since_ms.map(|ms| ms.saturating_mul(1_000)),
        before: query.before,
        after: query.after,
        ascending,
        limit,
    };
    let rows = app.store.audit(&page).await;
    let rows = rows.map_err(|error| store_failed(&error))?;
    let is_full = rows.len() == limit as usize;
    Ok(Json(Changes {
        next: rows.last().filter(|_| is_full).map(|row| row.id),
        changes: rows.into_iter().map(ChangeView::from).collect(),
    }))
}

impl From<AuditRow> for ChangeView {
    fn from(row: AuditRow) -> Self {
        let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
        Self {
            id: row.id,
            at_us: row.at_us,
            tenant: row.tenant,
            who: row.who,
            action: row.action,
            target: row.target,
            before: read(&row.before),
            after: read(&row.after),
            request_id: row.request_id,
            address: row.address,
        }
    }
}
