//! Sessions of browsers.

use http::Method;
use serde_json::json;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::Fixture;

const SESSION: &str = "/api/v1/session";

async fn begin(client: &Client, token: &str) -> Answer {
    client.post(SESSION, &json!({"token": token})).await
}

/// The answer to a page's request from a browser with this cookie.
async fn tokens_for(client: &Client, cookie: &str, site: &str) -> Answer {
    let headers = [("cookie", cookie), ("sec-fetch-site", site)];
    let path = "/api/v1/tokens";
    client
        .send(Method::GET, path, &headers, String::new())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_tokens_and_ends_with_it() {
    let fixture = Fixture::start(1, 100_000).await;
    let made = json!({"name": "console", "scope": "admin"});
    let made = fixture.client.post("/api/v1/tokens", &made).await.ok();
    let (id, secret) = (&made["id"], made["secret"].as_str().expect("a secret"));
    let browser = fixture.client.without_token();
    begin(&browser, "tr_no").await.refused(401, "token_invalid");
    begin(&browser, "EMPTY").await.refused(401, "token_invalid");

    let begun = begin(&browser, secret).await;
    assert_eq!(begun.ok()["scope"], "admin");
    let cookie = begun.headers["set-cookie"].to_str().expect("text");
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a pair");
    tokens_for(&browser, cookie, "same-origin").await.ok();
    let elsewhere = tokens_for(&browser, cookie, "cross-site").await;
    elsewhere.refused(401, "token_missing");

    let ended = browser.delete(SESSION).await;
    let ended = ended.headers["set-cookie"].to_str().expect("text");
    assert!(ended.starts_with("treadle_session=;"), "{ended}");

    let revoked = format!("/api/v1/tokens/{}", id.as_str().expect("an id"));
    fixture.client.delete(&revoked).await.ok();
    let after = tokens_for(&browser, cookie, "same-origin").await;
    after.refused(401, "token_invalid");
    // The browser can sign in again although it still has the cookie.
    let stale = [("cookie", cookie), ("sec-fetch-site", "same-origin")];
    let other = json!({"token": fixture.client.token().expect("it has one")}).to_string();
    let again = browser
        .send(Method::POST, SESSION, &stale, other.clone())
        .await;
    assert_eq!(again.ok()["scope"], "admin");
    browser.send(Method::DELETE, SESSION, &stale, "").await.ok();
    let elsewhere = [("sec-fetch-site", "cross-site")];
    let foisted = browser.send(Method::POST, SESSION, &elsewhere, other).await;
    foisted.refused(403, "forbidden");
    fixture.finish().await;
}
