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
    /// Nothing.
    None,
    /// Look.
    Viewer,
    /// Run programs too.
    Job,
    /// Change engines too.
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
        /// What callers without a token may do, in the tenant `default`: `viewer` look, `job` run programs, `operator` change engines, `admin` everything. Plugins, bindings, tokens, tenants and the audit log take a token unless it is `admin`. `auto` is `operator` while `server.listen` is a loopback address, and `none` otherwise.
        anonymous_scope: AnonymousScope = AnonymousScope::Auto, "";
        /// How long the secret before a rotation stays good.
        rotation_grace_s: u64 = 3600, "seconds", 0 ..= 2_592_000;
        /// Newest changes that stay in the audit log.
        audit_rows_max: u64 = 1_000_000, "changes", 1000 ..= 1_000_000_000;
    }
}

section! {
    /// The identity provider whose JSON Web Tokens are taken beside treadle's own.
    OidcConfig in "oidc" {
        /// What tokens must name as their issuer (`iss`); none are taken while it is empty.
        issuer: String = String::new(), "";
        /// What tokens must name among their audience (`aud`).
        audience: String = "treadle".to_owned(), "";
        /// Where the provider's keys are (JWKS): a file, or an address with `https://`; with `http://` on this machine only.
        jwks: String = String::new(), "";
        /// Client at the provider that browsers sign in to the console as (authorization code with PKCE); without one they need a token. The provider must know `https://THIS-DAEMON/api/v1/session/callback` as an address to come back to.
        client_id: String = String::new(), "";
        /// Secret of that client, if the provider wants one.
        client_secret: Secret = Secret::default(), "";
        /// Claim that names the tenant; `*` with the scope `admin` is the whole daemon.
        tenant_claim: String = "treadle_tenant".to_owned(), "";
        /// Claim that names the scope, in a text or a list, with or without `treadle:` before it.
        scope_claim: String = "treadle_scope".to_owned(), "";
        /// Claim that names the caller in the audit log.
        name_claim: String = "sub".to_owned(), "";
        fixed {
            /// Least time between two readings of the keys; they are read when a token names a key that is not known.
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
            let problem = "is empty, so tokens for others would be taken".to_owned();
            return Err(conflict(
                "oidc.audience",
                problem,
                "name who tokens are for",
            ));
        }
        if self.jwks.is_empty() {
            let problem = "is empty, so no token could be checked".to_owned();
            let remedy = "name a file, or an address with https://";
            return Err(conflict("oidc.jwks", problem, remedy));
        }
        Ok(())
    }
}
