//! Hidden labels of E2B sandboxes, which survive a restart: the idempotency key of the request, and
//! whether calls resume the sandbox.

use super::errors::refuse;
use super::users::base64_of;
use axum::http::HeaderMap;
use axum::response::Response;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use treadle_model::Tenant;
use treadle_runs::sandboxes::Host;
use treadle_sandbox::Sandbox;
use treadle_wire::ErrorCode;

const KEY: &str = "treadle/e2b_key";
const DIGEST: &str = "treadle/e2b_request";
const RESUMED: &str = "treadle/e2b_auto_resume";
/// Longest key.
const KEY_MAX: usize = 255;

/// A client's idempotency key, with the digest of its request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Key {
    name: String,
    digest: String,
}

impl Key {
    /// The key in the headers of a request with this body.
    pub(super) fn of(headers: &HeaderMap, body: &[u8]) -> Result<Option<Self>, Response> {
        let Some(value) = headers.get("idempotency-key") else {
            return Ok(None);
        };
        let name = value.to_str().unwrap_or_default();
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || name.len() > KEY_MAX || !name.chars().all(is_known) {
            let message =
                format!("`Idempotency-Key` must be at most {KEY_MAX} letters, digits, `-` and `_`");
            return Err(refuse(ErrorCode::InvalidField, message));
        }
        let digest = Sha256::digest(body);
        Ok(Some(Self {
            name: name.to_owned(),
            digest: base64_of(&digest),
        }))
    }

    /// The tenant's sandbox that was created for the key.
    pub(super) fn find(
        &self,
        host: &Host,
        tenant: &Tenant,
    ) -> Result<Option<Arc<Sandbox>>, Response> {
        let mut all = host.list(tenant).into_iter().filter(super::view::is_there);
        let Some(found) = all.find(|status| status.spec.labels.get(KEY) == Some(&self.name)) else {
            return Ok(None);
        };
        if found.spec.labels.get(DIGEST) != Some(&self.digest) {
            let message = format!(
                "the `Idempotency-Key` {} belongs to another request; send a new key",
                self.name
            );
            return Err(refuse(ErrorCode::IdempotencyKeyTaken, message));
        }
        Ok(host.sandboxes.get(&found.id).ok())
    }

    /// Stores the key in the labels.
    pub(super) fn note(self, labels: &mut BTreeMap<String, String>) {
        labels.insert(KEY.to_owned(), self.name);
        labels.insert(DIGEST.to_owned(), self.digest);
    }
}

/// Removes the key: copies have none.
pub(super) fn forget(labels: &mut BTreeMap<String, String>) {
    labels.remove(KEY);
    labels.remove(DIGEST);
}

/// Stores that calls resume the sandbox.
pub(super) fn have_resumed_by_calls(labels: &mut BTreeMap<String, String>) {
    labels.insert(RESUMED.to_owned(), String::new());
}

pub(super) fn is_resumed_by_calls(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(RESUMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_noted_with_its_request_and_hidden() {
        let of = |key: &str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", key.parse().expect("a header"));
            Key::of(&headers, body)
        };
        assert!(of("a b", b"{}").is_err() && of(&"x".repeat(256), b"{}").is_err());
        let key = of("a-1", b"{}").expect("a key").expect("it is there");
        assert_ne!(Some(&key), of("a-1", b"{ }").expect("a key").as_ref());
        let mut labels = BTreeMap::from([("own".to_owned(), "1".to_owned())]);
        key.note(&mut labels);
        have_resumed_by_calls(&mut labels);
        assert_eq!(labels.len(), 4);
        assert_eq!(super::super::view::metadata(labels.clone()).len(), 1);
        forget(&mut labels);
        assert!(is_resumed_by_calls(&labels) && labels.len() == 2);
    }
}
