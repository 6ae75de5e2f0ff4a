//! Every route, requested by all callers without permission.

use http::Method;
use serde_json::json;
use treadle_auth::Scope;
use treadle_auth::permissions::{Needs, Route};
use treadle_config::AnonymousScope;
use treadle_server::routes;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::Fixture;

use super::{client_of, make_tenant};

/// Requests a route with a value for each parameter.
async fn ask(client: &Client, route: &Route, parameter: &str) -> Answer {
    let mut path = route.path.clone();
    while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
        path.replace_range(start..=end, parameter);
    }
    let method = route.method.clone().unwrap_or(Method::POST);
    // The endless stream refuses this event id after the caller's permission is checked.
    let headers: &[_] = if path.ends_with("/stream") {
        &[("last-event-id", "none")]
    } else {
        &[]
    };
    client.send(method, &path, headers, "{}").await
}

/// The scope below the one that a route needs, if there is one.
fn too_weak(needs: Needs) -> Option<Scope> {
    let (Needs::Scope(needed) | Needs::Token(needed)) = needs else {
        return matches!(needs, Needs::Root | Needs::Machines).then_some(Scope::Admin);
    };
    Scope::ALL.into_iter().rfind(|scope| *scope < needed)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_need_a_valid_token_of_sufficient_scope() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.auth.anonymous_scope = AnonymousScope::None;
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let mut by_scope = Vec::new();
    for scope in Scope::ALL {
        by_scope.push((scope, client_of(&fixture, "acme", scope.as_str()).await));
    }
    let nobody = fixture.client.without_token();
    let stranger = nobody.with_token(format!("tr_{}", "0".repeat(64)));
    let malformed = nobody.with_token("tr_x");
    let told = treadle(&["status", "--url", fixture.client.base()]);
    assert!(told.success, "{}", told.all());
    assert!(
        told.stdout
            .contains("a token with the scope viewer shows more")
    );
    for route in routes() {
        for bad in [&stranger, &malformed] {
            ask(bad, &route, "p").await.refused(401, "token_invalid");
        }
        if route.needs == Needs::Nothing {
            // A session needs a body, and the sign-in redirects.
            let status = ask(&nobody, &route, "p").await.status;
            let answered = status.is_success() || status == 303 || status == 400;
            assert!(answered, "{route:?}: {status}");
            continue;
        }
        let answer = ask(&nobody, &route, "p").await;
        let message = answer.refused(401, "token_missing");
        assert!(message.contains(&route.path), "{message}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        let Some(weak) = too_weak(route.needs) else {
            continue;
        };
        let (_, client) = by_scope.iter().find(|(s, _)| *s == weak).expect("a client");
        ask(client, &route, "p").await.refused(403, "forbidden");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sufficient_scope_gets_in() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    for route in routes() {
        let (tenant, scope) = match route.needs {
            Needs::Scope(scope) | Needs::Token(scope) => ("acme", scope),
            Needs::Machines => ("*", Scope::Operator),
            Needs::Nothing | Needs::Root => continue,
        };
        let client = client_of(&fixture, tenant, scope.as_str()).await;
        let answer = ask(&client, &route, "nothing-of-this-name").await;
        let status = answer.status.as_u16();
        assert_ne!(status, 401, "{route:?}");
        // An engine may return this status itself.
        assert!(status != 405 || route.relayed, "{route:?}");
        assert_ne!(status, 403, "{route:?}: {:?}", answer.body);
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_caller_needs_a_token_to_manage_and_for_nothing_else() {
    let fixture = Fixture::start(1, 100_000).await;
    let nobody = fixture.client.without_token();
    for route in routes() {
        let answer = ask(&nobody, &route, "p").await;
        match route.needs {
            Needs::Token(_) | Needs::Root => {
                answer.refused(401, "token_missing");
            }
            Needs::Nothing | Needs::Scope(_) | Needs::Machines => {
                let refused = [401, 403].contains(&answer.status.as_u16());
                assert!(!refused, "{route:?}: {:?}", answer.body);
            }
        }
    }
    let page = [("origin", "https://example.com")];
    let answer = nobody.send(Method::POST, "/workers", &page, "{}").await;
    answer.refused(401, "token_missing");
    for strange in [
        ("host", "rebound.example.com"),
        ("host", "gpu-box"),
        ("forwarded", "for=127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 proxy"),
    ] {
        for route in routes() {
            let (Needs::Scope(_) | Needs::Machines) = route.needs else {
                continue;
            };
            let method = route.method.clone().unwrap_or(Method::POST);
            let path = route.path.replace(['{', '}'], "");
            let answer = nobody.send(method, &path, &[strange], "{}").await;
            let message = answer.refused(401, "token_missing");
            assert!(message.contains("send a token"), "{message}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
        // With a token it does not matter which proxy forwards requests.
        let headers = [strange];
        let answer = fixture.client.send(Method::GET, "/programs", &headers, "");
        answer.await.ok();
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_daemon_is_open_to_all() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.auth.anonymous_scope = AnonymousScope::Admin;
    })
    .await;
    let nobody = fixture.client.without_token();
    for route in routes() {
        let status = ask(&nobody, &route, "p").await.status.as_u16();
        assert!(![401, 403].contains(&status), "{route:?}: {status}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_whole_daemons_admin_chooses_a_tenant() {
    let fixture = Fixture::start(1, 100_000).await;
    make_tenant(&fixture, "acme", json!({})).await;
    make_tenant(&fixture, "beta", json!({})).await;
    let acme = client_of(&fixture, "acme", "admin").await;
    let who = async |client: &Client, tenant: &str| {
        let headers = [("x-treadle-tenant", tenant)];
        client
            .send(Method::GET, "/api/v1/whoami", &headers, "")
            .await
    };
    assert_eq!(who(&fixture.client, "beta").await.ok()["tenant"], "beta");
    who(&fixture.client, "gamma")
        .await
        .refused(404, "tenant_unknown");
    assert_eq!(who(&acme, "acme").await.ok()["tenant"], "acme");
    for other in ["beta", "default", "*"] {
        who(&acme, other).await.refused(403, "forbidden");
    }
    let nobody = fixture.client.without_token();
    who(&nobody, "acme").await.refused(403, "forbidden");
    fixture.finish().await;
}
