//! Secrets in the headers of a request: extracted, so that no engine ever sees one.
//!
//! The console has its token in a cookie that scripts can't read. It only counts for requests of
//! the daemon's own pages, and only if no header has another token.

use super::secret::{SECRET_START, is_held_in};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Header in which clients of Anthropic's interface send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Header in which clients of Azure's interface send their key.
const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");
/// Base64, padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Header by which an admin of the whole daemon chooses the tenant to act in.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("x-treadle-tenant");

/// The console's cookie.
const COOKIE: &str = "treadle_session";
/// The cookie of a browser during sign-in, its path and its age.
const SIGN_IN: &str = "treadle_sign_in";
const SIGN_IN_PATH: &str = "/api/v1/session";
const SIGN_IN_S: u32 = 600;
/// Header with the site of the page that sends a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How long a browser keeps the console's cookie, in seconds.
const COOKIE_S: u32 = 30 * 86_400;

/// The credential in a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credential {
    /// No credential of treadle. OpenAI clients always send a key, such as `EMPTY`, which is passed
    /// to the engine.
    None,
    /// A secret with treadle's prefix.
    Secret(String),
    /// A JSON Web Token.
    Jwt(String),
    /// A secret or a JWT from the console's cookie.
    Session(Box<Credential>),
    /// A secret of treadle in a form that is not understood.
    Unclear,
    /// More than one of these.
    Several,
}

/// Removes treadle's own secrets from the headers. JSON Web Tokens only count as treadle's with
/// `takes_jwt`.
pub fn take(headers: &mut HeaderMap, takes_jwt: bool) -> Credential {
    let from_cookie = take_cookie(headers);
    let mut found = Credential::None;
    for name in [header::AUTHORIZATION, API_KEY, AZURE_KEY] {
        if !headers.contains_key(&name) {
            continue;
        }
        let values = headers.get_all(&name).iter();
        let own: Vec<Credential> = values
            .filter_map(|value| read(&String::from_utf8_lossy(value.as_bytes()), takes_jwt))
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
    match (found, from_cookie) {
        (Credential::None, Some(text)) if is_of_own_page(headers) => {
            read(&text, takes_jwt).map_or(Credential::None, |own| Credential::Session(own.into()))
        }
        (found, _) => found,
    }
}

/// Replaces a valid console cookie by its token, before a request is forwarded: the receiving
/// daemon can't check the request's origin.
pub fn open_cookie(headers: &mut HeaderMap, takes_jwt: bool) {
    let mut seen = headers.clone();
    if let Credential::Session(own) = take(&mut seen, takes_jwt)
        && let Credential::Secret(text) | Credential::Jwt(text) = *own
        && let Ok(value) = HeaderValue::from_str(&format!("Bearer {text}"))
    {
        take_cookie(headers);
        headers.insert(header::AUTHORIZATION, value);
    }
}

/// The cookie of a console session; without a token, the one that ends it.
pub fn cookie(token: Option<&str>, is_encrypted: bool) -> String {
    let (value, age_s) = token.map_or(("", 0), |token| (token, COOKIE_S));
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}")
}

/// The cookie of a browser during sign-in with the identity provider. It must be sent when the
/// browser returns, and is never sent to engines.
pub fn cookie_of_sign_in(pending: Option<&str>, is_encrypted: bool) -> String {
    let (value, age_s) = pending.map_or(("", 0), |pending| (pending, SIGN_IN_S));
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!(
        "{SIGN_IN}={value}; Path={SIGN_IN_PATH}; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}"
    )
}

/// The content of the sign-in cookie.
pub fn pending_sign_in(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let own = pairs.filter_map(|pair| pair.trim().strip_prefix(SIGN_IN)?.strip_prefix('='));
    own.map(str::to_owned).next()
}

/// Removes the console's cookie and leaves all others.
fn take_cookie(headers: &mut HeaderMap) -> Option<String> {
    let is_own =
        |pair: &&[u8]| pair.starts_with(COOKIE.as_bytes()) && pair.get(COOKIE.len()) == Some(&b'=');
    let (mut own, mut others) = (None, Vec::new());
    for line in headers.get_all(header::COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            if is_own(&pair) {
                own = own.or_else(|| String::from_utf8(pair[COOKIE.len() + 1..].to_vec()).ok());
            } else if !pair.is_empty() {
                others.push(pair.to_vec());
            }
        }
    }
    let own = own?;
    headers.remove(header::COOKIE);
    if let Ok(others) = HeaderValue::from_bytes(&others.join(&b"; "[..]))
        && !others.is_empty()
    {
        headers.insert(header::COOKIE, others);
    }
    Some(own)
}

/// Whether a page of this daemon sent the request, not one of another site. Browsers report this in
/// one header, old ones in another.
pub fn is_of_own_page(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if let Some(site) = text(SITE) {
        return matches!(site, "same-origin" | "none");
    }
    let host = text(header::HOST).unwrap_or_default();
    text(header::ORIGIN).is_none_or(|origin| {
        let origin = origin.parse::<Uri>();
        origin.is_ok_and(|origin| origin.authority().is_some_and(|at| at.as_str() == host))
    })
}

/// The kind of a header's value or a bare token.
pub(crate) fn read(value: &str, takes_jwt: bool) -> Option<Credential> {
    let value = value.trim();
    let mut pair = String::new();
    let text = match value.split_once([' ', '\t']) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
        // Clients that have nothing but a URL send what it has before the host.
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => {
            pair = pair_in(rest.trim()).unwrap_or_default();
            secret_of(&pair)
        }
        _ => value,
    };
    if is_held_in(value.as_bytes()) || is_held_in(pair.as_bytes()) {
        let is_whole = text.starts_with(SECRET_START) && !text.contains([' ', '\t', ',', ';']);
        return Some(if is_whole {
            Credential::Secret(text.to_owned())
        } else {
            Credential::Unclear
        });
    }
    if text.starts_with(SECRET_START) {
        return Some(Credential::Secret(text.to_owned()));
    }
    // Every JWT begins with the encoded start of a JSON object.
    let is_jwt = text.starts_with("eyJ") && text.matches('.').count() == 2;
    (takes_jwt && is_jwt).then(|| Credential::Jwt(text.to_owned()))
}

/// User and password of HTTP's basic authentication, in either alphabet of base64.
fn pair_in(encoded: &str) -> Option<String> {
    let encoded = encoded.replace('-', "+").replace('_', "/");
    let pair = BASE64.decode(encoded).ok()?;
    Some(String::from_utf8_lossy(&pair).into_owned())
}

/// The password of a pair, or its user if only that is a secret or not empty.
fn secret_of(pair: &str) -> &str {
    let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
    let is_secret = |part: &str| part.starts_with(SECRET_START);
    if password.is_empty() || (is_secret(user) && !is_secret(password)) {
        return user;
    }
    password
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
            ("api-key", "tr_1"),
            ("authorization", "Bearer\ttr_1"),
            ("authorization", "Basic dHJlYWRsZTp0cl8x"),
            ("authorization", "Basic dHJfMTo="),
            ("authorization", "Basic dHJfMTo"),
            ("authorization", "basic\tdHJfMQ=="),
        ] {
            assert_eq!(taken(&[header], false), (secret.clone(), 0), "{header:?}");
        }
        for key in [
            "EMPTY",
            "Bearer sk-123",
            "Bearer none",
            "Basic c2stMTp4",
            "Basic ?",
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
    fn a_secret_in_an_odd_form_is_no_key_of_another() {
        let secret = format!("tr_{}", "0a".repeat(32));
        let encoded = BASE64.encode(format!("x {secret}:"));
        for value in [
            format!("Token {secret}"),
            format!("ApiKey {secret}"),
            format!("Bearer \"{secret}\""),
            format!("Bearer Bearer {secret}"),
            format!("Bearer sk-x, Bearer {secret}"),
            format!("Bearer {secret}, Bearer sk-x"),
            format!("sk-x{secret}"),
            format!("\u{e4} {secret}"),
            format!("Basic {secret}"),
            format!("Basic {encoded}"),
        ] {
            for name in ["authorization", "x-api-key", "api-key"] {
                let mut headers = HeaderMap::new();
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                headers.append(name, value);
                assert_eq!(take(&mut headers, true), Credential::Unclear);
                assert!(headers.is_empty());
            }
        }
        let bearer = format!("Bearer {secret}");
        let taken = taken(&[("authorization", bearer.as_str())], false);
        assert_eq!(taken, (Credential::Secret(secret), 0));
    }

    #[test]
    fn the_consoles_cookie_counts_for_its_own_pages_alone() {
        let secret = Credential::Session(Credential::Secret("tr_1".into()).into());
        let own = ("cookie", "a=b; treadle_session=tr_1; c=d");
        let host = ("host", "t:1");
        let taken = |more: &[(&'static str, &str)]| {
            let pairs: Vec<_> = [own, host]
                .into_iter()
                .chain(more.iter().copied())
                .collect();
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value.parse().unwrap());
            }
            let credential = take(&mut headers, false);
            assert_eq!(headers[header::COOKIE], "a=b; c=d", "no engine sees it");
            credential
        };
        assert_eq!(taken(&[]), secret);
        assert_eq!(taken(&[("origin", "http://t:1")]), secret);
        assert_eq!(taken(&[("sec-fetch-site", "same-origin")]), secret);
        assert_eq!(taken(&[("sec-fetch-site", "none")]), secret);
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://t:2"),
            ("origin", "null"),
        ] {
            assert_eq!(taken(&[(name, value)]), Credential::None, "{name}: {value}");
        }
        let other = Credential::Secret("tr_2".into());
        assert_eq!(taken(&[("authorization", "Bearer tr_2")]), other);
        let mut two = HeaderMap::new();
        two.append(
            header::COOKIE,
            HeaderValue::from_bytes(b"x=\xc3\xa4").unwrap(),
        );
        two.append(
            header::COOKIE,
            HeaderValue::from_static("treadle_session=tr_1"),
        );
        open_cookie(&mut two, false);
        assert_eq!(two[header::AUTHORIZATION], "Bearer tr_1");
        assert_eq!(
            two[header::COOKIE].as_bytes(),
            b"x=\xc3\xa4",
            "that of another"
        );
        let ended = cookie(None, true);
        assert!(
            ended.contains("Max-Age=0") && ended.contains("Secure"),
            "{ended}"
        );
        let begun = cookie(Some("tr_1"), false);
        assert!(begun.starts_with("treadle_session=tr_1;"), "{begun}");
        assert!(begun.contains("HttpOnly; SameSite=Strict") && !begun.contains("Secure"));
    }

    #[test]
    fn web_tokens_are_taken_where_they_are_expected() {
        let jwt = [("authorization", "Bearer eyJh.eyJi.c")];
        assert_eq!(taken(&jwt, false), (Credential::None, 1));
        let found = Credential::Jwt("eyJh.eyJi.c".into());
        assert_eq!(taken(&jwt, true), (found, 0));
    }
}
