//! The audit log, for investigations.

use super::{ok, store_failed};
use crate::app::App;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_store::{AuditPage, AuditRow};

/// Which changes.
#[derive(Deserialize)]
pub(super) struct AuditQuery {
    action: Option<String>,
    target: Option<String>,
    who: Option<String>,
    before: Option<u64>,
    limit: Option<u32>,
}

/// `GET /v1/audit?action=&target=&who=&before=ID&limit=N`: newest first. `next` is the `before` of
/// the page that follows; absent on the last one.
pub(super) async fn page(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Response {
    let principal = &caller.principal;
    let tenant = (!principal.whole).then(|| principal.tenant.tenant.name().to_owned());
    let limit = query
        .limit
        .unwrap_or(100)
        .clamp(1, treadle_store::PAGE_ROWS_MAX);
    let page = AuditPage {
        tenant,
        action: query.action,
        target: query.target,
        who: query.who,
        before: query.before,
        limit,
    };
    match app.store.audit(&page).await {
        Ok(rows) => {
            let is_full = rows.len() == limit as usize;
            let next = rows.last().filter(|_| is_full).map(|row| row.id);
            ok(json!({"changes": rows.iter().map(change_json).collect::<Vec<_>>(), "next": next}))
        }
        Err(error) => store_failed(&error),
    }
}

fn change_json(row: &AuditRow) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    json!({
        "id": row.id, "at_us": row.at_us, "tenant": row.tenant, "who": row.who,
        "action": row.action, "target": row.target, "before": read(&row.before),
        "after": read(&row.after), "request_id": row.request_id, "address": row.address,
    })
}
