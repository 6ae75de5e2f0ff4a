//! `[auth]` and `[oidc]`: authentication and authorisation.

use serde::{Deserialize, Serialize};

use super::section::{Form, Setting, section};
use super::{ConfigError, Secret, conflict};

/// What callers without a token may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnonymousScope {
    /// `operator` on a loopback address, `none` elsewhere.
    #[default]
    Auto,
    /// No access.
    None,
    /// Read only.
    Viewer,
    /// Also run programs.
    Job,
    /// Also change engines.
    Operator,
    /// Everything.
    Admin,
}

impl AnonymousScope {
    const CHOICES: &'static [&'static str] =
        &["auto", "none", "viewer", "job", "operator", "admin"];
}

impl Setting for AnonymousScope {
    const FORM: Form = Form::Choice(Self::CHOICES);
}

section! {
    /// Authentication and authorisation; `docs/security.md` has the details.
    AuthConfig in "auth" {
        /// What callers without a token may do, in the tenant `default`: `viewer` may read, `job` may also run programs, `operator` may also change engines, `admin` may do everything. Plugins, bindings, tokens, tenants and the audit log require a token unless it is `admin`. `auto` is `operator` while `server.listen` is a loopback address, and `none` otherwise.
        anonymous_scope: AnonymousScope = AnonymousScope::Auto, "";
        /// How long the old secret stays valid after a rotation.
        rotation_grace_s: u64 = 3600, "seconds", 0 ..= 2_592_000;
        /// Number of newest changes kept in the audit log; fewer if they have more than 4 KiB each on average.
        audit_rows_max: u64 = 1_000_000, "changes", 1000 ..= 1_000_000_000;
    }
}

section! {
    /// The identity provider whose JSON Web Tokens are accepted in addition to treadle's own tokens.
    OidcConfig in "oidc" {
        /// Required issuer (`iss`) of tokens; if empty, no such tokens are accepted.
        issuer: String = String::new(), "";
        /// Required audience (`aud`) of tokens.
        audience: String = "treadle".to_owned(), "";
        /// The provider's keys (JWKS): a file, or a URL with `https://`; `http://` is accepted for this machine only.
        jwks: String = String::new(), "";
        /// Client id under which browsers sign in to the console at the provider (authorization code with PKCE); without it they need a token. Register `https://THIS-DAEMON/api/v1/session/callback` with the provider as redirect URI.
        client_id: String = String::new(), "";
        /// Secret of that client, if the provider wants one.
        client_secret: Secret = Secret::default(), "";
        /// Claim with the tenant; `*` together with the scope `admin` stands for the whole daemon.
        tenant_claim: String = "treadle_tenant".to_owned(), "";
        /// Claim with the scope, a string or a list, with or without the prefix `treadle:`.
        scope_claim: String = "treadle_scope".to_owned(), "";
        /// Claim with the caller's name in the audit log.
        name_claim: String = "sub".to_owned(), "";
        fixed {
            /// Minimum time between two reads of the keys. They are read when a token refers to an unknown key.
            jwks_pause_s: u64 = 10, "seconds", 0 ..= 86_400;
        }
    }
}

impl OidcConfig {
    /// Rules across several values.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.issuer.is_empty() {
            if self.client_id.is_empty() {
                return Ok(());
            }
            let problem = "is empty, and `oidc.client_id` is set".to_owned();
            let remedy = "name the provider, such as https://login.example.com";
            return Err(conflict("oidc.issuer", problem, remedy));
        }
        if self.audience.is_empty() {
            let problem =
                "is empty, so tokens issued for other services would be accepted".to_owned();
            return Err(conflict(
                "oidc.audience",
                problem,
                "name the audience of the tokens, such as treadle",
            ));
        }
        if self.jwks.is_empty() {
            let problem = "is empty, so tokens can't be verified".to_owned();
            let remedy = "name a file, or an address with https://";
            return Err(conflict("oidc.jwks", problem, remedy));
        }
        Ok(())
    }
}
