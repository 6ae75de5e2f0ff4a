//! Callers authenticated by an identity provider: JSON Web Tokens instead of treadle's own.
//!
//! A token is verified once and then cached by its hash until it expires, so that each request only
//! costs a hash and a look-up.

mod keys;
mod sign_in;
mod verifier;

use super::directory::Directory;
use super::now_us;
use super::principal::{Principal, PrincipalKind};
use super::scope::Scope;
use super::secret::{Hash, hash};
use super::tenant::DEFAULT_TENANT;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use keys::{Key, Keys};
use serde_json::{Map, Value};
pub use sign_in::Pending;
use sign_in::SignIn;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use treadle_config::OidcConfig;
use treadle_model::ClientName;
use treadle_model::tenant::WHOLE_DAEMON;
use treadle_trust::Trust;
use treadle_wire::{ErrorBody, ErrorCode};

/// Most cached tokens; at the limit the cache is cleared.
const VERIFIED_MAX: usize = 4_096;
/// Largest assumed difference of two machines' clocks.
const LEEWAY_S: u64 = 60;

/// The identity provider.
pub struct Oidc {
    config: OidcConfig,
    keys: Keys,
    sign_in: Option<SignIn>,
    verified: Mutex<HashMap<Hash, Verified>>,
}

struct Verified {
    principal: Arc<Principal>,
    until_us: u64,
    /// Generation of the directory that tenant and limits are from.
    generation: u64,
}

impl Oidc {
    /// The configured provider, if any; `trust` verifies its certificate when its keys are read.
    pub fn new(config: &OidcConfig, trust: Trust) -> Option<Self> {
        if config.issuer.is_empty() {
            return None;
        }
        verifier::install();
        Some(Self {
            sign_in: SignIn::new(config, trust.clone()),
            keys: Keys::new(config, trust),
            config: config.clone(),
            verified: Mutex::default(),
        })
    }

    /// The subject of a token.
    pub(super) async fn principal(
        &self,
        token: &str,
        directory: &Directory,
    ) -> Result<Arc<Principal>, ErrorBody> {
        let hash = hash(token);
        let now_us = now_us();
        if let Some(principal) = self.known(&hash, directory, now_us) {
            return Ok(principal);
        }
        let header = decode_header(token).map_err(|error| invalid(&error.to_string()))?;
        check_header(&header)?;
        let key = self.keys.find(header.kid.as_deref()).await;
        let key = key.map_err(|why| invalid(&why))?;
        let claims = self.claims(token, &key)?;
        let principal = Arc::new(self.read(&claims, directory)?);
        let until_s = claims.get("exp").and_then(Value::as_u64).unwrap_or(0);
        let verified = Verified {
            principal: principal.clone(),
            until_us: until_s.saturating_mul(1_000_000),
            generation: directory.generation,
        };
        if let Ok(mut known) = self.verified.lock() {
            if known.len() >= VERIFIED_MAX {
                known.clear();
            }
            known.insert(hash, verified);
        }
        Ok(principal)
    }

    fn known(&self, hash: &Hash, directory: &Directory, now_us: u64) -> Option<Arc<Principal>> {
        let known = self.verified.lock().ok()?;
        let verified = known.get(hash)?;
        let is_good = now_us < verified.until_us && verified.generation == directory.generation;
        is_good.then(|| verified.principal.clone())
    }

    fn claims(&self, token: &str, key: &Key) -> Result<Map<String, Value>, ErrorBody> {
        let mut validation = Validation::default();
        validation.algorithms.clone_from(&key.algorithms);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        // Tokens from sign-in have the client as audience, which is treadle too.
        let client = Some(&self.config.client_id).filter(|id| !id.is_empty());
        let audience = [Some(&self.config.audience), client];
        validation.set_audience(&audience.into_iter().flatten().collect::<Vec<_>>());
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(str::to_owned));
        let decoded = decode::<Map<String, Value>>(token, &key.key, &validation);
        match decoded {
            // The library also accepts a list of issuers that includes the right one.
            Ok(decoded) if decoded.claims.get("iss").is_none_or(|iss| !iss.is_string()) => {
                Err(invalid("its claim `iss` is not a string"))
            }
            Ok(decoded) => Ok(decoded.claims),
            Err(error) if *error.kind() == jsonwebtoken::errors::ErrorKind::ExpiredSignature => {
                let message = "the token has expired; get a new one from the identity provider";
                Err(ErrorBody::new(ErrorCode::TokenExpired, message))
            }
            Err(error) => Err(invalid(&error.to_string())),
        }
    }

    fn read(
        &self,
        claims: &Map<String, Value>,
        directory: &Directory,
    ) -> Result<Principal, ErrorBody> {
        let lacks = |claim: &str, what: &str| {
            let message = format!("the token's claim `{claim}` does not name a {what}");
            ErrorBody::new(ErrorCode::Forbidden, message)
        };
        let claim = &self.config.scope_claim;
        let scope = claims.get(claim).and_then(highest_scope);
        let scope = scope.ok_or_else(|| lacks(claim, "scope of treadle"))?;
        let claim = &self.config.tenant_claim;
        let name = claims.get(claim).and_then(Value::as_str);
        let name = name.ok_or_else(|| lacks(claim, "tenant"))?;
        let global = name == WHOLE_DAEMON && scope >= Scope::Operator;
        let root = global && scope == Scope::Admin;
        let home = if global { DEFAULT_TENANT } else { name };
        let tenant = directory.tenants.get(home);
        let tenant = tenant.ok_or_else(|| lacks(claim, "tenant that treadle knows"))?;
        let claim = &self.config.name_claim;
        let subject = claims.get(claim).and_then(Value::as_str);
        let subject = subject.ok_or_else(|| lacks(claim, "person"))?;
        let subject = ClientName::parse(claim, subject).map_err(|error| {
            ErrorBody::new(ErrorCode::Forbidden, format!("the token's claim {error}"))
        })?;
        Ok(Principal {
            tenant: tenant.clone(),
            scope: Some(scope),
            global,
            root,
            whole: root,
            tenants: directory.tenants.len(),
            who: PrincipalKind::Subject(subject.to_string()),
        })
    }
}

/// Refuses critical header extensions (RFC 7515 §4.1.11), since none is supported.
fn check_header(header: &Header) -> Result<(), ErrorBody> {
    if let Some(critical) = &header.crit {
        let message = format!("its `crit` names {critical:?}, which treadle does not know");
        return Err(invalid(&message));
    }
    // An extension without `crit` that changes what is signed (RFC 7797).
    if header.extras.inner().contains_key("b64") || header.enc.is_some() || header.zip.is_some() {
        return Err(invalid("it is not encoded as a signed token"));
    }
    Ok(())
}

/// The highest scope that a claim names: words in a text or a list, with or without `treadle:`.
fn highest_scope(claim: &Value) -> Option<Scope> {
    let of_text = |text: &str| {
        let words = text.split_whitespace();
        let scopes = words
            .filter_map(|word| Scope::from_name(word.strip_prefix("treadle:").unwrap_or(word)));
        scopes.max()
    };
    match claim {
        Value::String(text) => of_text(text),
        Value::Array(list) => list.iter().filter_map(|item| of_text(item.as_str()?)).max(),
        _ => None,
    }
}

fn invalid(why: &str) -> ErrorBody {
    let message = format!("the token is not trusted: {why}");
    ErrorBody::new(ErrorCode::TokenInvalid, message)
}

#[cfg(test)]
mod tests;
