//! Secrets in the headers of a request: found, and taken out, so that no engine ever sees one.

use super::secret::SECRET_START;
use axum::http::{HeaderMap, HeaderName, header};

/// Header in which clients of Anthropic's interface send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Header by which an admin of the whole daemon chooses the tenant to act in.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("x-treadle-tenant");

/// What a request brought along.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credential {
    /// Nothing that is treadle's. Clients of OpenAI's interface always send a key, `EMPTY` and the
    /// like; those go on to the engine.
    None,
    /// A secret that begins as treadle's do.
    Secret(String),
    /// A JSON Web Token.
    Jwt(String),
    /// More than one of these.
    Several,
}

/// Takes treadle's own secrets out of the headers. JSON Web Tokens are treadle's only where
/// `takes_jwt`.
pub fn take(headers: &mut HeaderMap, takes_jwt: bool) -> Credential {
    let mut found = Credential::None;
    for name in [header::AUTHORIZATION, API_KEY] {
        if !headers.contains_key(&name) {
            continue;
        }
        let values = headers.get_all(&name).iter();
        let own: Vec<Credential> = values
            .filter_map(|value| read(value.to_str().ok()?, takes_jwt))
            .collect();
        if own.is_empty() {
            continue;
        }
        headers.remove(&name);
        for credential in own {
            found = if found == Credential::None || found == credential {
                credential
            } else {
                Credential::Several
            };
        }
    }
    found
}

fn read(value: &str, takes_jwt: bool) -> Option<Credential> {
    let value = value.trim();
    let text = match value.split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
        _ => value,
    };
    if text.starts_with(SECRET_START) {
        return Some(Credential::Secret(text.to_owned()));
    }
    // Every JWT begins with the encoded start of a JSON object.
    let is_jwt = text.starts_with("eyJ") && text.matches('.').count() == 2;
    (takes_jwt && is_jwt).then(|| Credential::Jwt(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pairs: &[(&'static str, &str)], takes_jwt: bool) -> (Credential, usize) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let credential = take(&mut headers, takes_jwt);
        (credential, headers.len())
    }

    #[test]
    fn own_secrets_go_and_keys_of_others_stay() {
        let secret = Credential::Secret("tr_1".into());
        for header in [
            ("authorization", "Bearer tr_1"),
            ("authorization", "bearer  tr_1 "),
            ("authorization", "tr_1"),
            ("x-api-key", "tr_1"),
        ] {
            assert_eq!(taken(&[header], false), (secret.clone(), 0), "{header:?}");
        }
        for key in [
            "EMPTY",
            "Bearer sk-123",
            "Bearer none",
            "Basic dHJfMQ==",
            "",
        ] {
            let kept = taken(&[("authorization", key)], true);
            assert_eq!(kept, (Credential::None, 1), "{key}");
        }
        let both = [("authorization", "Bearer EMPTY"), ("x-api-key", "tr_1")];
        assert_eq!(taken(&both, false), (secret.clone(), 1));
        let twice = [("authorization", "Bearer tr_1"), ("x-api-key", "tr_1")];
        assert_eq!(taken(&twice, false), (secret, 0));
        let two = [("authorization", "tr_1"), ("authorization", "tr_2")];
        assert_eq!(taken(&two, false), (Credential::Several, 0));
    }

    #[test]
    fn web_tokens_are_taken_where_they_are_expected() {
        let jwt = [("authorization", "Bearer eyJh.eyJi.c")];
        assert_eq!(taken(&jwt, false), (Credential::None, 1));
        let found = Credential::Jwt("eyJh.eyJi.c".into());
        assert_eq!(taken(&jwt, true), (found, 0));
    }
}
