//! Isolation of tenants at shared engines: filtering fields of requests, and salting the prefix
//! cache.

use bytes::Bytes;
use treadle_auth::{CacheSalts, Principal};
use treadle_model::EngineKind;
use treadle_wire::{Endpoint, OwnedKind, RequestHead, insert_fields, remove_fields, salt_field};

/// The body and the salt of its tenant's prefix cache. If tenants share engines, fields that
/// treadle sets itself are removed from the body; a client's own salt becomes part of its tenant's.
pub(super) fn isolate(
    salts: &CacheSalts,
    principal: &Principal,
    head: &mut RequestHead,
    body: Bytes,
) -> (Bytes, Option<String>) {
    if principal.is_alone() {
        return (body, None);
    }
    let owned = std::mem::take(&mut head.owned);
    head.has_priority = false;
    let own = owned.iter().filter(|field| field.kind == OwnedKind::Salt);
    let own = own.filter_map(|field| body.get(field.span.clone()));
    let salt = salts.of(&principal.tenant.tenant, own);
    if owned.is_empty() {
        return (body, Some(salt));
    }
    let left = remove_fields(&body, owned.into_iter().map(|field| field.span));
    (left.into(), Some(salt))
}

/// The field that carries the salt to an engine of this kind, and its value.
pub(super) fn salt_of(
    salt: Option<&str>,
    engine: EngineKind,
    endpoint: Endpoint,
) -> Option<(&'static str, String)> {
    let name = salt_field(engine, endpoint)?;
    // Hexadecimal digits need no escapes.
    Some((name, format!("\"{}\"", salt?)))
}

/// The body with its salt.
pub(super) fn salted(
    salt: Option<&str>,
    engine: EngineKind,
    endpoint: Endpoint,
    body: &Bytes,
) -> Bytes {
    let field = salt_of(salt, engine, endpoint);
    let salted = field.and_then(|field| insert_fields(body, &[field]));
    salted.map_or_else(|| body.clone(), Bytes::from)
}
