//! An identity provider on this machine: its keys at an address, its tokens at the gateway.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use treadle_tests::support::certificates::Certificates;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};

use super::make_tenant;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

struct Key {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(bytes.as_ref()).unwrap();
        Self { id, pair }
    }

    fn listed(&self) -> String {
        let x = encoded(self.pair.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x}]}).to_string()
    }

    fn token(&self, tenant: &str, scope: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let header = json!({"alg": "EdDSA", "kid": self.id});
        let claims = json!({
            "iss": "https://issuer", "aud": "treadle", "sub": "ada", "exp": now.as_secs() + 600,
            "treadle_tenant": tenant, "treadle_scope": scope,
        });
        let message = [header, claims]
            .map(|part| encoded(part.to_string()))
            .join(".");
        format!("{message}.{}", encoded(self.pair.sign(message.as_bytes())))
    }
}

/// Serves what is in `page`; gives the address and how often it was asked.
async fn serve(page: Arc<Mutex<String>>) -> (String, Arc<Mutex<u32>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/keys", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head).await;
            *count.lock().unwrap() += 1;
            let body = page.lock().unwrap().clone();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_the_provider_are_taken_and_its_keys_may_change() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let page = Arc::new(Mutex::new(old.listed()));
    let (address, asked) = serve(page.clone()).await;
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.oidc.issuer = "https://issuer".to_owned();
        config.oidc.jwks = address;
        config.oidc.jwks_pause_s = 0;
    })
    .await;
    make_tenant(&fixture, "acme", json!({})).await;
    let with = |token: String| fixture.client.with_token(token);
    let job = with(old.token("acme", "job"));
    for _ in 0..5 {
        job.post(CHAT, &chat("p", "hello", 4)).await.ok();
    }
    assert_eq!(*asked.lock().unwrap(), 1, "keys are read once");
    let who: Value = job.get("/api/v1/whoami").await.ok();
    assert_eq!(
        (&who["who"], &who["tenant"]),
        (&json!("subject ada"), &json!("acme"))
    );
    job.get("/api/v1/tokens").await.refused(403, "forbidden");
    with(old.token("acme", "admin"))
        .get("/api/v1/tokens")
        .await
        .ok();
    with(old.token("nobody", "job"))
        .get("/programs")
        .await
        .refused(403, "forbidden");

    let rotated = with(new.token("acme", "viewer"));
    rotated.get("/programs").await.refused(401, "token_invalid");
    *page.lock().unwrap() = new.listed();
    rotated.get("/programs").await.ok();
    fixture.finish_all(&[&job]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_unknown_keys_asks_the_provider_once() {
    let (known, unknown) = (Key::new("known"), Key::new("unknown"));
    let (address, asked) = serve(Arc::new(Mutex::new(known.listed()))).await;
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.oidc.issuer = "https://issuer".to_owned();
        config.oidc.jwks = address;
        config.oidc.jwks_pause_s = 600;
    })
    .await;
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let client = fixture.client.with_token(unknown.token("default", "job"));
            tokio::spawn(async move { client.get("/programs").await })
        })
        .collect();
    for answer in asking {
        answer.await.unwrap().refused(401, "token_invalid");
    }
    assert_eq!(*asked.lock().unwrap(), 1);
    let good = fixture.client.with_token(known.token("default", "job"));
    good.get("/programs").await.ok();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_by_tls_from_a_provider_that_proves_itself() {
    let key = Key::new("k");
    let page = Arc::new(Mutex::new(key.listed()));
    let (address, asked) = serve(page).await;
    let (own, other) = (Certificates::new(), Certificates::new());
    for (trusted, status) in [(&own, 200), (&other, 401)] {
        let jwks = own.before(address.trim_end_matches("/keys")).await;
        let fixture = Fixture::tuned(1, 100_000, |config| {
            config.oidc.issuer = "https://issuer".to_owned();
            config.oidc.jwks = format!("{jwks}/keys");
            trusted.trusted_by(config);
        })
        .await;
        let client = fixture.client.with_token(key.token("default", "viewer"));
        assert_eq!(client.get("/programs").await.status.as_u16(), status);
        fixture.finish().await;
    }
    assert_eq!(*asked.lock().unwrap(), 1, "the second never came to ask");
}
