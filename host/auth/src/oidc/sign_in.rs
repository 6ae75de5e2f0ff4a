//! Signing in with the identity provider in a browser: OpenID Connect's authorization code flow
//! with PKCE (RFC 7636). No state is stored here during the redirect, so that the browser may
//! return to another daemon: the state is in a cookie.

use super::{Oidc, invalid};
use crate::directory::Directory;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest;
use ring::rand::{self, SystemRandom};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use treadle_config::OidcConfig;
use treadle_http::Upstream;
use treadle_trust::{Connector, Secret, Targets, Trust};
use treadle_wire::{ErrorBody, ErrorCode};

/// Timeout of requests to the provider.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response of the provider.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Browsers take cookies of 4,096 bytes, attributes included.
const TOKEN_BYTES_MAX: usize = 3_800;
/// Longest path in the console to return to.
const BACK_BYTES_MAX: usize = 1_024;
/// Most concurrent requests to the provider, since any browser may cause one.
const AT_ONCE_MAX: usize = 8;
/// Characters that are percent-encoded in forms.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// Number of random bytes in a verifier.
const VERIFIER_BYTES: usize = 32;

/// The state of a sign-in, which the browser stores while its user is at the provider.
pub struct Pending {
    verifier: String,
    /// The path in the console to return to.
    pub back: String,
}

impl Pending {
    /// Starts a sign-in. An address that is not on this site is ignored.
    pub fn new(back: &str) -> Result<Self, ErrorBody> {
        let random: [u8; VERIFIER_BYTES] = rand::generate(&SystemRandom::new())
            .map_err(|_| failed("the system provides no random numbers"))?
            .expose();
        Ok(Self {
            verifier: URL_SAFE_NO_PAD.encode(random),
            back: own_path(back).to_owned(),
        })
    }

    /// The text for the cookie.
    pub fn to_text(&self) -> String {
        format!("{}.{}", self.verifier, URL_SAFE_NO_PAD.encode(&self.back))
    }

    /// Reads what [`Self::to_text`] wrote. `None` if the provider's response is for another
    /// browser.
    pub fn answered(text: &str, state: &str) -> Option<Self> {
        Self::read(text).filter(|pending| pending.state() == state)
    }

    fn read(text: &str) -> Option<Self> {
        let (verifier, back) = text.split_once('.')?;
        let random = URL_SAFE_NO_PAD.decode(verifier).ok()?;
        let back = String::from_utf8(URL_SAFE_NO_PAD.decode(back).ok()?).ok()?;
        (random.len() == VERIFIER_BYTES).then(|| Self {
            verifier: verifier.to_owned(),
            back: own_path(&back).to_owned(),
        })
    }

    /// The `state` that the provider returns, which ties its response to this browser.
    fn state(&self) -> String {
        self.derived("state ")
    }

    /// The `nonce` in the token, which ties the token to this browser.
    fn nonce(&self) -> String {
        self.derived("nonce ")
    }

    fn challenge(&self) -> String {
        self.derived("")
    }

    fn derived(&self, what: &str) -> String {
        let text = format!("{what}{}", self.verifier);
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, text.as_bytes()))
    }
}

/// A path of this site, or its first page: never an address on another site.
fn own_path(back: &str) -> &str {
    let is_own = back.starts_with('/') && !back.starts_with("//");
    let is_plain = back.len() <= BACK_BYTES_MAX && back.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own && is_plain && !back.contains('\\') {
        back
    } else {
        "/"
    }
}

/// The configuration of sign-in, and the provider's addresses once they are known.
pub(super) struct SignIn {
    client_id: String,
    client_secret: Secret,
    issuer: String,
    upstream: Upstream,
    places: RwLock<Option<Arc<Places>>>,
    at_once: Semaphore,
}

#[derive(Deserialize)]
struct Places {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

impl SignIn {
    /// `None` unless treadle is configured as a client of the provider.
    pub(super) fn new(config: &OidcConfig, trust: Trust) -> Option<Self> {
        let connector = Connector::new(Targets::all(), trust, ANSWER_TIMEOUT);
        (!config.client_id.is_empty()).then(|| Self {
            client_id: config.client_id.clone(),
            client_secret: config.client_secret.clone(),
            issuer: config.issuer.clone(),
            upstream: Upstream::over(connector),
            places: RwLock::default(),
            at_once: Semaphore::new(AT_ONCE_MAX),
        })
    }

    async fn places(&self) -> Result<Arc<Places>, String> {
        let known = self.places.read().ok().and_then(|places| places.clone());
        if let Some(places) = known {
            return Ok(places);
        }
        let issuer = self.issuer.trim_end_matches('/');
        let address = format!("{issuer}/.well-known/openid-configuration");
        let headers = HeaderMap::new();
        let found = self.ask(Method::GET, &address, &headers, String::new());
        let places: Places = read(&found.await?)?;
        if places.issuer != self.issuer {
            return Err(format!(
                "{address} belongs to another issuer, {}",
                places.issuer
            ));
        }
        let is_safe = |address: &String| {
            address.starts_with("https://") || self.issuer.starts_with("http://")
        };
        if ![&places.authorization_endpoint, &places.token_endpoint]
            .into_iter()
            .all(is_safe)
        {
            return Err(format!("{address} names addresses without https://"));
        }
        let places = Arc::new(places);
        if let Ok(mut known) = self.places.write() {
            *known = Some(places.clone());
        }
        Ok(places)
    }

    /// The address to which the browser is redirected.
    async fn address(&self, pending: &Pending, back_to: &str) -> Result<String, String> {
        let places = self.places().await?;
        let query = form(&[
            ("response_type", "code"),
            ("scope", "openid profile"),
            ("client_id", &self.client_id),
            ("redirect_uri", back_to),
            ("state", &pending.state()),
            ("nonce", &pending.nonce()),
            ("code_challenge", &pending.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        let address = &places.authorization_endpoint;
        let joint = if address.contains('?') { '&' } else { '?' };
        Ok(format!("{address}{joint}{query}"))
    }

    /// Exchanges the code for a token.
    async fn token(&self, pending: &Pending, code: &str, back_to: &str) -> Result<String, String> {
        let places = self.places().await?;
        let body = form(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back_to),
            ("client_id", &self.client_id),
            ("code_verifier", &pending.verifier),
        ]);
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, kind);
        let secret = self.client_secret.reveal();
        if !secret.is_empty() {
            let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret));
            let value = format!("Basic {}", STANDARD.encode(pair));
            let value = HeaderValue::from_str(&value).map_err(|error| error.to_string())?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let answer = self.ask(Method::POST, &places.token_endpoint, &headers, body);
        let tokens: Tokens = read(&answer.await?)?;
        Ok(tokens.id_token)
    }

    async fn ask(
        &self,
        method: Method,
        address: &str,
        headers: &HeaderMap,
        body: String,
    ) -> Result<Bytes, String> {
        let turn = self.at_once.try_acquire();
        let _turn = turn.map_err(|_| "too many browsers are signing in at once".to_owned())?;
        let exchange = async {
            let sent = self
                .upstream
                .send(method, address, "", headers, body.into());
            let answer = sent.await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
            let body = body.await.map_err(|error| error.to_string())?.to_bytes();
            if status.is_success() {
                return Ok(body);
            }
            Err(format!("{address} answered {status}"))
        };
        let in_time = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        in_time.unwrap_or_else(|_| Err(format!("{address} did not answer in time")))
    }
}

impl Oidc {
    /// Whether browsers may sign in with the provider.
    pub fn signs_in(&self) -> bool {
        self.sign_in.is_some()
    }

    /// The address where a browser signs in, to return to `back_to`.
    ///
    /// # Errors
    /// The provider does not publish the address, or sign-in is not configured.
    pub async fn sign_in_address(
        &self,
        pending: &Pending,
        back_to: &str,
    ) -> Result<String, ErrorBody> {
        let sign_in = self.sign_in()?;
        let address = sign_in.address(pending, back_to).await;
        address.map_err(|why| failed(&why))
    }

    /// The token of a browser that returns with a code.
    ///
    /// # Errors
    /// The provider issues no token, or one that is not trusted or was issued for another browser.
    pub(crate) async fn signed_in(
        &self,
        pending: &Pending,
        code: &str,
        back_to: &str,
        directory: &Directory,
    ) -> Result<String, ErrorBody> {
        let sign_in = self.sign_in()?;
        let token = sign_in.token(pending, code, back_to).await;
        let token = token.map_err(|why| failed(&why))?;
        if token.len() > TOKEN_BYTES_MAX {
            let length = token.len();
            return Err(invalid(&format!(
                "it has {length} bytes, but a cookie holds {TOKEN_BYTES_MAX}; have the provider \
                 put fewer claims into it"
            )));
        }
        self.principal(&token, directory).await?;
        // It has just been verified.
        if claim(&token, "nonce").as_deref() != Some(&pending.nonce()) {
            return Err(invalid("it was made for another browser; sign in again"));
        }
        if !is_for(&token, &sign_in.client_id) {
            return Err(invalid(
                "it is for another client of the identity provider (`aud`, `azp`)",
            ));
        }
        Ok(token)
    }

    fn sign_in(&self) -> Result<&SignIn, ErrorBody> {
        self.sign_in.as_ref().ok_or_else(|| {
            let message =
                "sign-in with the identity provider is not configured; set `oidc.client_id`";
            ErrorBody::new(ErrorCode::TokenInvalid, message)
        })
    }
}

fn claims(token: &str) -> Option<Value> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}

fn claim(token: &str, name: &str) -> Option<String> {
    claims(token)?.get(name)?.as_str().map(str::to_owned)
}

/// Whether a verified token was issued to this client (OpenID Connect Core §3.1.3.7): the client is
/// in its audience, and is its authorized party if it names one.
fn is_for(token: &str, client_id: &str) -> bool {
    let claims = claims(token).unwrap_or_default();
    let is_own = |value: &Value| value == client_id;
    let in_audience = match &claims["aud"] {
        Value::Array(all) => all.iter().any(is_own),
        one => is_own(one),
    };
    in_audience && claims.get("azp").is_none_or(is_own)
}

fn read<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("its response is invalid: {error}"))
}

fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn failed(why: &str) -> ErrorBody {
    tracing::warn!(why, "signing in with the identity provider failed");
    let message = "the identity provider issued no token; the daemon's log has the cause";
    ErrorBody::new(ErrorCode::TokenInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nobody_is_led_to_another_site() {
        for back in [
            "//evil.example",
            "https://evil.example",
            "/\\evil",
            "evil",
            "",
            "/a\nb",
        ] {
            assert_eq!(own_path(back), "/", "{back:?}");
        }
        assert_eq!(own_path("/console/workers?x=1#y"), "/console/workers?x=1#y");
    }

    #[test]
    fn what_a_browser_keeps_reads_back_and_nothing_else_does() {
        let pending = Pending::new("/console/lanes").unwrap();
        let again = Pending::read(&pending.to_text()).unwrap();
        assert_eq!(again.state(), pending.state());
        assert_eq!(again.back, "/console/lanes");
        assert_ne!(pending.state(), pending.nonce());
        assert_ne!(pending.state(), Pending::new("/").unwrap().state());
        for text in ["", ".", "a.b", "tr_1"] {
            assert!(Pending::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_token_is_for_the_client_that_it_was_given_to() {
        let of = |claims: &Value| format!("e.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()));
        for good in [
            json!({"aud": "console"}),
            json!({"aud": ["treadle", "console"], "azp": "console"}),
        ] {
            assert!(is_for(&of(&good), "console"), "{good}");
        }
        for bad in [
            json!({"aud": "treadle"}),
            json!({"aud": ["treadle"], "azp": "console"}),
            json!({"aud": ["treadle", "console"], "azp": "other"}),
            json!({"aud": "console", "azp": ["console"]}),
            json!({}),
        ] {
            assert!(!is_for(&of(&bad), "console"), "{bad}");
        }
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, Appendix B.
        let pending = Pending {
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned(),
            back: "/".to_owned(),
        };
        assert_eq!(
            pending.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
