//! Tests of web tokens, with keys made here.

use super::*;
use crate::secret;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;
use std::path::Path;
use treadle_store::TenantRow;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys that sign, and their public halves as a set lists them.
struct Signer {
    curve: EcdsaKeyPair,
    edwards: Ed25519KeyPair,
    id: String,
}

impl Signer {
    fn new(id: &str) -> Self {
        let random = SystemRandom::new();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let curve = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self {
            curve: EcdsaKeyPair::from_pkcs8(scheme, curve.as_ref(), &random).unwrap(),
            edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            id: id.into(),
        }
    }

    fn listed(&self) -> Value {
        let point = self.curve.public_key().as_ref();
        json!({"keys": [
            {"kty": "EC", "crv": "P-256", "kid": format!("{}-ec", self.id),
                "x": encoded(&point[1..33]), "y": encoded(&point[33..])},
            {"kty": "OKP", "crv": "Ed25519", "kid": format!("{}-ed", self.id),
                "x": encoded(self.edwards.public_key())},
            {"kty": "oct", "kid": "shared", "k": encoded("secret")},
        ]})
    }

    fn es256(&self, claims: &Value) -> String {
        let id = format!("{}-ec", self.id);
        let message = message("ES256", &id, claims);
        let signed = self.curve.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", encoded(signed.unwrap()))
    }

    fn eddsa(&self, claims: &Value) -> String {
        let id = format!("{}-ed", self.id);
        let message = message("EdDSA", &id, claims);
        format!(
            "{message}.{}",
            encoded(self.edwards.sign(message.as_bytes()))
        )
    }
}

fn message(algorithm: &str, id: &str, claims: &Value) -> String {
    let header = json!({"alg": algorithm, "typ": "JWT", "kid": id});
    format!(
        "{}.{}",
        encoded(header.to_string()),
        encoded(claims.to_string())
    )
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer", "aud": ["treadle", "other"], "sub": "ada",
        "exp": now_us() / 1_000_000 + 600, "treadle_tenant": "acme",
        "treadle_scope": "openid treadle:job viewer",
    })
}

fn oidc(file: &Path) -> Oidc {
    let config = OidcConfig {
        issuer: "https://issuer".into(),
        jwks: file.to_str().unwrap().into(),
        jwks_pause_s: 0,
        ..OidcConfig::default()
    };
    Oidc::new(&config, Trust::default()).unwrap()
}

fn directory() -> Directory {
    let tenant = TenantRow {
        tenant: "acme".into(),
        created_at_us: 0,
        limits: "{}".into(),
    };
    Directory::new(vec![tenant], Vec::new(), None, None)
}

#[tokio::test]
async fn a_signed_token_names_tenant_and_scope() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let signer = Signer::new("a");
    std::fs::write(file.path(), signer.listed().to_string()).unwrap();
    let (oidc, directory) = (oidc(file.path()), directory());
    for token in [signer.es256(&claims()), signer.eddsa(&claims())] {
        // The second time it is known by its hash.
        for _ in 0..2 {
            let principal = oidc.principal(&token, &directory).await.unwrap();
            assert_eq!(principal.scope, Some(Scope::Job));
            assert_eq!(principal.tenant.tenant.name(), "acme");
            assert_eq!(principal.who, PrincipalKind::Subject("ada".into()));
            assert!(!principal.root);
        }
        let hash = secret::hash(&token);
        assert!(oidc.known(&hash, &directory, now_us()).is_some());
        let later = now_us() + 3_600_000_000;
        assert!(oidc.known(&hash, &directory, later).is_none());
    }
    let mut whole = claims();
    whole["treadle_tenant"] = json!("*");
    whole["treadle_scope"] = json!(["admin"]);
    let token = signer.es256(&whole);
    assert!(oidc.principal(&token, &directory).await.unwrap().root);
}

#[tokio::test]
async fn tokens_with_anything_wrong_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (signer, stranger) = (Signer::new("a"), Signer::new("a"));
    std::fs::write(file.path(), signer.listed().to_string()).unwrap();
    let (oidc, directory) = (oidc(file.path()), directory());
    let with = |field: &str, value: Value| {
        let mut claims = claims();
        claims[field] = value;
        signer.es256(&claims)
    };
    let without = |field: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(field);
        signer.es256(&claims)
    };
    let now_s = now_us() / 1_000_000;
    let good = signer.es256(&claims());
    let (start, signature) = good.rsplit_once('.').unwrap();
    let unsigned = message("none", "a-ec", &claims());
    let confused = message("HS256", "a-ec", &claims());
    let shared = message("HS256", "shared", &claims());
    let crossed = message("EdDSA", "a-ec", &claims());
    let (invalid, forbidden) = (ErrorCode::TokenInvalid, ErrorCode::Forbidden);
    for (token, code) in [
        (stranger.es256(&claims()), invalid),
        (with("iss", json!("https://other")), invalid),
        (with("aud", json!("other")), invalid),
        (with("nbf", json!(now_s + 3_600)), invalid),
        (with("nbf", json!("soon")), invalid),
        (with("exp", json!(now_s - 3_600)), ErrorCode::TokenExpired),
        (without("exp"), invalid),
        (without("aud"), invalid),
        (without("iss"), invalid),
        (with("treadle_tenant", json!("nobody")), forbidden),
        (with("treadle_tenant", json!("*")), forbidden),
        (with("treadle_scope", json!("everything")), forbidden),
        (without("sub"), forbidden),
        (format!("{start}.{}", encoded([0; 64])), invalid),
        (format!("{unsigned}."), invalid),
        (format!("{confused}.{signature}"), invalid),
        (format!("{shared}.{signature}"), invalid),
        (format!("{crossed}.{signature}"), invalid),
        ("eyJh.eyJi.c".to_owned(), invalid),
    ] {
        let error = oidc.principal(&token, &directory).await.unwrap_err();
        assert_eq!(error.code, code, "{token}: {}", error.message);
    }
}

/// A token of this key whose head says more.
fn with_head(signer: &Signer, more: &Value) -> String {
    let mut head = json!({"alg": "ES256", "typ": "JWT", "kid": format!("{}-ec", signer.id)});
    for (name, value) in more.as_object().unwrap() {
        head[name] = value.clone();
    }
    let message = format!(
        "{}.{}",
        encoded(head.to_string()),
        encoded(claims().to_string())
    );
    let signature = signer.curve.sign(&SystemRandom::new(), message.as_bytes());
    format!("{message}.{}", encoded(signature.unwrap()))
}

#[tokio::test]
async fn what_a_token_says_in_another_form_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let signer = Signer::new("a");
    std::fs::write(file.path(), signer.listed().to_string()).unwrap();
    let (oidc, directory) = (oidc(file.path()), directory());
    let with = |field: &str, value: Value| {
        let mut claims = claims();
        claims[field] = value;
        signer.es256(&claims)
    };
    let plain = with_head(&signer, &json!({}));
    assert!(oidc.principal(&plain, &directory).await.is_ok());
    let one = with("aud", json!("treadle"));
    assert!(oidc.principal(&one, &directory).await.is_ok());
    let (invalid, forbidden) = (ErrorCode::TokenInvalid, ErrorCode::Forbidden);
    for (token, code) in [
        (with_head(&signer, &json!({"crit": ["exp"]})), invalid),
        (with_head(&signer, &json!({"crit": ["x"], "x": 1})), invalid),
        (with_head(&signer, &json!({"crit": []})), invalid),
        (with_head(&signer, &json!({"crit": "x"})), invalid),
        (
            with_head(&signer, &json!({"crit": ["b64"], "b64": false})),
            invalid,
        ),
        (with_head(&signer, &json!({"b64": false})), invalid),
        (with_head(&signer, &json!({"zip": "DEF"})), invalid),
        (with("iss", json!(["https://issuer"])), invalid),
        (
            with("iss", json!(["https://issuer", "https://other"])),
            invalid,
        ),
        (with("iss", json!({"https://issuer": 1})), invalid),
        (with("aud", json!([])), invalid),
        (with("aud", json!(["other", "another"])), invalid),
        (with("aud", json!(["treadle", 5])), invalid),
        (with("aud", json!([["treadle"]])), invalid),
        (with("aud", json!({"treadle": true})), invalid),
        (with("aud", json!("treadle,other")), invalid),
        (with("sub", json!("a\u{1b}[2J")), forbidden),
        (with("sub", json!("a\nb")), forbidden),
        (with("sub", json!("")), forbidden),
        (with("sub", json!("x".repeat(5_000))), forbidden),
    ] {
        let error = oidc.principal(&token, &directory).await.unwrap_err();
        assert_eq!(error.code, code, "{token}: {}", error.message);
    }
}

#[tokio::test]
async fn keys_that_are_not_for_signatures_sign_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let signer = Signer::new("a");
    let directory = directory();
    for (more, is_good) in [
        (json!({}), true),
        (json!({"use": "sig"}), true),
        (
            json!({"use": "sig", "key_ops": ["verify"], "alg": "ES256"}),
            true,
        ),
        (json!({"key_ops": ["sign", "verify"]}), true),
        (json!({"use": "enc"}), false),
        (json!({"use": "tls"}), false),
        (json!({"use": "sig", "key_ops": ["encrypt"]}), false),
        (json!({"key_ops": ["deriveKey", "wrapKey"]}), false),
        (json!({"key_ops": []}), false),
        (json!({"alg": "ES384"}), false),
        (json!({"alg": "ECDH-ES"}), false),
        (json!({"alg": "RS256"}), false),
    ] {
        let mut listed = signer.listed();
        for (name, value) in more.as_object().unwrap() {
            listed["keys"][0][name] = value.clone();
        }
        std::fs::write(file.path(), listed.to_string()).unwrap();
        let oidc = oidc(file.path());
        let taken = oidc.principal(&signer.es256(&claims()), &directory).await;
        assert_eq!(taken.is_ok(), is_good, "{more}");
        // The other key stays what it is.
        let taken = oidc.principal(&signer.eddsa(&claims()), &directory).await;
        assert!(taken.is_ok(), "{more}");
    }
}

#[tokio::test]
async fn new_keys_are_read_when_a_token_names_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (old, new) = (Signer::new("a"), Signer::new("b"));
    std::fs::write(file.path(), old.listed().to_string()).unwrap();
    let (oidc, directory) = (oidc(file.path()), directory());
    let is_good = async |token: String| oidc.principal(&token, &directory).await.is_ok();
    assert!(is_good(old.es256(&claims())).await);
    assert!(!is_good(new.es256(&claims())).await);
    std::fs::write(file.path(), new.listed().to_string()).unwrap();
    assert!(is_good(new.es256(&claims())).await);
    // A key that is no longer listed is not read again from memory.
    let mut other = claims();
    other["sub"] = json!("bob");
    assert!(!is_good(old.es256(&other)).await);
}

/// The example of RFC 7515, appendix A.2: a signature made by other software.
#[test]
fn a_signature_of_another_implementation_is_verified() {
    verifier::install();
    let jwk = json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"});
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let key = jsonwebtoken::DecodingKey::from_jwk(&serde_json::from_value(jwk).unwrap()).unwrap();
    let (message, signed) = token.rsplit_once('.').unwrap();
    let verify = |message: &str| {
        let algorithm = jsonwebtoken::Algorithm::RS256;
        jsonwebtoken::crypto::verify(signed, message.as_bytes(), &key, algorithm).unwrap()
    };
    assert!(verify(message));
    assert!(!verify(&message.replace('y', "z")));
}
