//! An identity provider on this machine, whose tokens the gateway accepts.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use percent_encoding::percent_decode_str;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use treadle_config::{AnonymousScope, Secret};
use treadle_tests::support::certificates::Certificates;
use treadle_tests::support::client::{Answer, Client};
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
        let claims = json!({"treadle_tenant": tenant, "treadle_scope": scope});
        self.signed("https://issuer", "treadle", claims)
    }

    fn signed(&self, issuer: &str, audience: &str, mut claims: Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let header = json!({"alg": "EdDSA", "kid": self.id});
        claims["iss"] = issuer.into();
        claims["aud"] = audience.into();
        claims["sub"] = "ada".into();
        claims["exp"] = (now.as_secs() + 600).into();
        let message = [header, claims]
            .map(|part| encoded(part.to_string()))
            .join(".");
        format!("{message}.{}", encoded(self.pair.sign(message.as_bytes())))
    }
}

/// Serves the content of `page`; returns the address and the number of requests.
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

/// A provider for browsers' sign-in: every code yields a token with the nonce in `nonce`. Returns
/// its address and the last token request.
async fn provide(key: Key, nonce: Arc<Mutex<String>>) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let (own, asked) = (issuer.clone(), Arc::new(Mutex::new(String::new())));
    let last = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 16_384];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let body = match path {
                "/.well-known/openid-configuration" => json!({
                    "issuer": own, "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"),
                })
                .to_string(),
                "/keys" => key.listed(),
                _ => {
                    let claims = json!({
                        "treadle_tenant": "default", "treadle_scope": "viewer",
                        "nonce": *nonce.lock().unwrap(),
                    });
                    last.lock().unwrap().clone_from(&request);
                    json!({"id_token": key.signed(&own, "console", claims)}).to_string()
                }
            };
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
            let answer = format!("{head} {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (issuer, asked)
}

/// The value of a field of an address's query, or of a form.
fn field(of: &str, name: &str) -> String {
    let pairs = of.split(['?', '&', '\n']);
    let value = pairs.filter_map(|pair| pair.split_once('='));
    let mut found = value
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    percent_decode_str(found.next_back().unwrap_or_default())
        .decode_utf8_lossy()
        .into_owned()
}

/// A daemon that is a client of the provider's.
async fn client_of(issuer: &str) -> Fixture {
    Fixture::tuned(1, 100_000, |config| {
        config.auth.anonymous_scope = AnonymousScope::None;
        config.oidc.jwks = format!("{issuer}/keys");
        issuer.clone_into(&mut config.oidc.issuer);
        "console".clone_into(&mut config.oidc.client_id);
        config.oidc.client_secret = Secret::new("hush");
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_signs_in_with_the_provider_and_only_the_one_that_left() {
    let nonce = Arc::new(Mutex::new(String::new()));
    let (issuer, asked) = provide(Key::new("k"), nonce.clone()).await;
    let fixture = client_of(&issuer).await;
    let browser = fixture.client.without_token();
    let ways = browser.get("/api/v1/session").await.ok();
    let leave = ways["provider"].as_str().expect("a way").to_owned();
    let left = browser
        .get(&format!("{leave}?back=%2Fconsole%2Flanes"))
        .await;
    assert_eq!(left.status, 303);
    let (to, pending) = (header(&left, "location"), header(&left, "set-cookie"));
    assert!(to.starts_with(&format!("{issuer}/authorize?")), "{to}");
    assert!(pending.contains("HttpOnly; SameSite=Lax"), "{pending}");
    let pending = pending.split(';').next().unwrap().to_owned();
    nonce.lock().unwrap().clone_from(&field(&to, "nonce"));

    let come_back = async |query: String, cookie: &str| {
        let path = format!("/api/v1/session/callback?{query}");
        let headers = [("cookie", cookie)];
        browser.send(Method::GET, &path, &headers, "").await
    };
    let state = field(&to, "state");
    let good = format!("code=c1&state={state}");
    for (query, cookie) in [
        (format!("code=c1&state=x{state}"), &*pending),
        (good.clone(), "a=b"),
        (good.clone(), "treadle_sign_in=AAAA.AAAA"),
        (format!("error=access_denied&state={state}"), &*pending),
    ] {
        let refused = come_back(query.clone(), cookie).await;
        let to = header(&refused, "location");
        assert!(to.starts_with("/console/sign-in?failed="), "{query}: {to}");
        // An answer to another browser does not complete this one's sign-in.
        assert_eq!(ends(&refused), query.starts_with("error"), "{query}");
        let text = format!("{:?}", refused.headers);
        assert!(!text.contains("treadle_session"), "{text}");
    }
    assert!(
        asked.lock().unwrap().is_empty(),
        "no code was shown to the provider"
    );

    let back = come_back(good.clone(), &pending).await;
    assert_eq!(
        (back.status.as_u16(), &*header(&back, "location")),
        (303, "/console/lanes")
    );
    let request = asked.lock().unwrap().clone();
    let verifier = field(request.split("\r\n\r\n").last().unwrap(), "code_verifier");
    let hashed = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
    assert_eq!(encoded(hashed), field(&to, "code_challenge"));
    assert!(
        request.contains("Basic Y29uc29sZTpodXNo") || request.contains("basic "),
        "{request}"
    );
    let who = signed_in(&browser, &back).await;
    assert_eq!(who["who"], "subject ada");

    "of another".clone_into(&mut nonce.lock().unwrap());
    let stolen = come_back(good, &pending).await;
    assert!(
        header(&stolen, "location").contains("failed="),
        "a token for another browser"
    );
    fixture.finish().await;
}

/// The subject of the session that an answer starts.
async fn signed_in(browser: &Client, back: &Answer) -> Value {
    let session = header(back, "set-cookie");
    let headers = [("cookie", session.split(';').next().unwrap())];
    let who = browser.send(Method::GET, "/api/v1/whoami", &headers, "");
    who.await.ok()
}

/// Whether an answer deletes a cookie.
fn ends(answer: &Answer) -> bool {
    format!("{:?}", answer.headers).contains("Max-Age=0")
}

fn header(answer: &Answer, name: &str) -> String {
    let value = answer.headers.get(name).expect(name);
    value.to_str().expect("text").to_owned()
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
