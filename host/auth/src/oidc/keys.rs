//! The provider's keys, read from its address or from a file, and reloaded, with a rate limit, when
//! a token names an unknown key.

use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use treadle_config::OidcConfig;
use treadle_http::Upstream;
use treadle_trust::{Connector, Targets, Trust};

/// Largest set of keys, in bytes.
const SET_BYTES_MAX: usize = 1 << 20;
/// Timeout of requests to the provider.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A key and its allowed algorithms.
pub(super) struct Key {
    pub(super) key: DecodingKey,
    pub(super) algorithms: Vec<Algorithm>,
}

/// The provider's keys by their ids.
type Set = HashMap<String, Arc<Key>>;

/// The provider's keys.
pub(super) struct Keys {
    source: String,
    upstream: Upstream,
    pause: Duration,
    set: RwLock<Set>,
    /// When they were last read; locked while reading.
    read_at: Mutex<Option<Instant>>,
}

impl Keys {
    pub(super) fn new(config: &OidcConfig, trust: Trust) -> Self {
        let connector = Connector::new(Targets::all(), trust, ANSWER_TIMEOUT);
        Self {
            source: config.jwks.clone(),
            upstream: Upstream::over(connector),
            pause: Duration::from_secs(config.jwks_pause_s),
            set: RwLock::default(),
            read_at: Mutex::new(None),
        }
    }

    /// The key of this id. A token without an id is checked with the only key, if there is one.
    pub(super) async fn find(&self, id: Option<&str>) -> Result<Arc<Key>, String> {
        if let Some(key) = self.known(id) {
            return Ok(key);
        }
        let mut read_at = self.read_at.lock().await;
        // Another request may have loaded it while this one waited.
        if let Some(key) = self.known(id) {
            return Ok(key);
        }
        let is_due = read_at.is_none_or(|at| at.elapsed() >= self.pause);
        if is_due {
            *read_at = Some(Instant::now());
            match self.read().await {
                Ok(set) => {
                    if let Ok(mut held) = self.set.write() {
                        *held = set;
                    }
                }
                Err(why) => {
                    tracing::warn!(
                        source = self.source,
                        why,
                        "the identity provider's keys are not available"
                    );
                    return Err("the identity provider's keys could not be read".to_owned());
                }
            }
        }
        self.known(id).ok_or_else(|| {
            "it is signed with a key that the identity provider does not list".to_owned()
        })
    }

    fn known(&self, id: Option<&str>) -> Option<Arc<Key>> {
        let set = self.set.read().ok()?;
        match id {
            Some(id) => set.get(id).cloned(),
            None if set.len() == 1 => set.values().next().cloned(),
            None => None,
        }
    }

    async fn read(&self) -> Result<Set, String> {
        let bytes = if self.source.contains("://") {
            tokio::time::timeout(ANSWER_TIMEOUT, self.fetch())
                .await
                .map_err(|_| "no answer in time".to_owned())??
        } else {
            let read = tokio::fs::read(&self.source).await;
            read.map_err(|error| error.to_string())?.into()
        };
        if bytes.len() > SET_BYTES_MAX {
            return Err(format!("more than {SET_BYTES_MAX} bytes"));
        }
        let set: JwkSet = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Ok(usable(&set))
    }

    async fn fetch(&self) -> Result<Bytes, String> {
        let headers = HeaderMap::new();
        let sent = self
            .upstream
            .send(Method::GET, &self.source, "", &headers, Bytes::new());
        let response = sent.await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let body = Limited::new(response.into_body(), SET_BYTES_MAX).collect();
        Ok(body.await.map_err(|error| error.to_string())?.to_bytes())
    }
}

/// Keys that can be used here; others in the set are ignored.
fn usable(set: &JwkSet) -> Set {
    let read = |(at, jwk): (usize, &Jwk)| {
        let mut algorithms = algorithms(jwk).filter(|_| verifies(jwk))?;
        if let Some(only) = jwk.common.key_algorithm {
            algorithms.retain(|own| KeyAlgorithm::from(*own) == only);
        }
        if algorithms.is_empty() {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        // A key without an id can only be the only one.
        let id = jwk.common.key_id.clone();
        let id = id.unwrap_or_else(|| format!("#{at}"));
        Some((id, Arc::new(Key { key, algorithms })))
    };
    set.keys.iter().enumerate().filter_map(read).collect()
}

/// Whether a key is for signatures, if it names its use (RFC 7517 §4.2, §4.3): keys for encryption
/// may be known to others.
fn verifies(jwk: &Jwk) -> bool {
    let is_use = |stated: &PublicKeyUse| *stated == PublicKeyUse::Signature;
    let is_among = |stated: &Vec<KeyOperations>| stated.contains(&KeyOperations::Verify);
    let common = &jwk.common;
    common.public_key_use.as_ref().is_none_or(is_use)
        && common.key_operations.as_ref().is_none_or(is_among)
}

/// The algorithms allowed for a key, by its type, so that tokens can't choose one.
fn algorithms(jwk: &Jwk) -> Option<Vec<Algorithm>> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Some(vec![RS256, RS384, RS512, PS256, PS384, PS512]),
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => Some(vec![ES256]),
            EllipticCurve::P384 => Some(vec![ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            Some(vec![EdDSA])
        }
        _ => None,
    }
}
