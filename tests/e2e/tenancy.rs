//! Authentication and authorisation, and the isolation of tenants.

mod engines;
mod isolation;
mod limits;
mod names;
mod provider;
mod routes;
mod sessions;
mod tokens;

use serde_json::json;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

/// A client with a new token of a tenant; `*` is the whole daemon.
pub(super) async fn client_of(fixture: &Fixture, tenant: &str, scope: &str) -> Client {
    let body = json!({"name": format!("{tenant} {scope}"), "scope": scope, "tenant": tenant});
    let token = fixture.client.post("/api/v1/tokens", &body).await.ok();
    let secret = token["secret"].as_str().expect("a secret");
    fixture.client.with_token(secret)
}

/// Makes a tenant with some limits.
pub(super) async fn make_tenant(fixture: &Fixture, name: &str, limits: serde_json::Value) {
    let body = json!({"tenant": name, "limits": limits});
    let made = fixture.client.post("/api/v1/tenants", &body).await;
    assert_eq!(made.status, 201, "{:?}", made.body);
}
