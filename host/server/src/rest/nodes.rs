//! Nodes: machines that run sandboxes for this daemon.

use super::Endpoint;
use super::{not_audited, refuse};
use crate::app::App;
use axum::extract::{Request, State};
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::permissions::{ENGINES, VIEW};
use treadle_auth::{Caller, Change};
use treadle_endpoints::arguments::{Body, InPath};
use treadle_endpoints::signature::Answer;
use treadle_endpoints::{get, patch};
use treadle_runs::nodes::NodeRow;
use treadle_wire::ErrorCode;
use utoipa::ToSchema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/nodes", VIEW, list).summary("Nodes that run sandboxes for this daemon"),
        patch("/api/v1/nodes/{node}", ENGINES, set_state)
            .summary("Cordons a node, by name or mark, or takes it back")
            .details(
                "A cordoned node gets no new sandboxes and keeps those that it has. The \
                      setting survives a restart of its agent.",
            )
            .fails(&[ErrorCode::NodeUnknown, ErrorCode::NodeAway]),
    ]
}

/// Accepts the connection of a node's agent.
pub(super) async fn connect(State(app): State<App>, request: Request) -> Response {
    let (Some(nodes), Some(actions)) = (app.nodes, app.actions) else {
        let message = "this daemon accepts no nodes; set actions.enabled = true, and give it the \
                       cluster.secret of the nodes (docs/sandboxes.md)";
        return refuse(ErrorCode::Forbidden, message);
    };
    treadle_runs::nodes::connect(nodes, actions, request)
}

/// The nodes of this daemon.
#[derive(Serialize, ToSchema)]
struct Nodes {
    /// Whether this daemon accepts nodes: true if `actions.enabled` and `cluster.secret` are set.
    enabled: bool,
    /// By name.
    nodes: Vec<NodeRow>,
}

async fn list(State(app): State<App>, caller: Caller) -> Answer<Nodes> {
    let (nodes, tenant) = (app.nodes.as_ref(), caller.principal.tenant.tenant.name());
    Ok(Json(Nodes {
        enabled: nodes.is_some(),
        nodes: nodes.map_or_else(Vec::new, |nodes| nodes.rows(tenant)),
    }))
}

/// The wanted state of a node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NodeState {
    /// `ready`, or `cordoned`: no new sandboxes are created there.
    state: WantedState,
}

#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
enum WantedState {
    Ready,
    Cordoned,
}

async fn set_state(
    State(app): State<App>,
    caller: Caller,
    InPath(node): InPath<String>,
    Body(wanted): Body<NodeState>,
) -> Answer<NodeRow> {
    let cordoned = wanted.state == WantedState::Cordoned;
    let (nodes, tenant) = (app.nodes.as_ref(), caller.principal.tenant.tenant.name());
    let row = match nodes.and_then(|nodes| nodes.cordon(tenant, &node, cordoned)) {
        Some(Ok(row)) => row,
        Some(Err(since)) => {
            let message = format!(
                "{node} has been disconnected for {} s; try again once it is back",
                since.as_secs()
            );
            return Err(refuse(ErrorCode::NodeAway, message));
        }
        None => {
            let message = format!("there is no node {node}; GET /api/v1/nodes lists them");
            return Err(refuse(ErrorCode::NodeUnknown, message));
        }
    };
    let change = Change {
        action: if cordoned {
            "node.cordoned"
        } else {
            "node.activated"
        },
        target: &row.name,
        before: Value::Null,
        after: json!({"cordoned": cordoned}),
    };
    let recorded = app.auth.audit.record(&caller, change).await;
    recorded.map_err(|_| not_audited())?;
    Ok(Json(row))
}
