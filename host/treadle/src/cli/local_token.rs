//! The token that a daemon on this machine wrote at its first start, and the check that a daemon is
//! the one that the token belongs to.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Uri;
use serde_json::Value;

use super::environment;
use treadle_auth::secret::{self, Hash, NoRandomness};
use treadle_auth::{first_token, identity};
use treadle_config::{Config, StoreConfig};

/// Maximum size of a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4_096;
/// Maximum number of tokens that are tried with a daemon.
const TOKENS_MAX: usize = 8;

/// A token from a local file. It may belong to another daemon.
#[derive(Clone, Debug)]
pub(super) struct LocalToken {
    /// The token.
    pub(super) secret: String,
    /// The file.
    pub(super) file: PathBuf,
}

/// Tokens beside the stores that a daemon started here, or in a parent folder, would use; the
/// nearest first. They are sent to this machine only.
pub(super) fn find(url: &str) -> Vec<LocalToken> {
    let uri: Option<Uri> = url.parse().ok();
    if !uri.is_some_and(|uri| uri.host().is_some_and(is_loopback)) {
        return Vec::new();
    }
    let Some(file) = first_token::file_of(&store()) else {
        return Vec::new();
    };
    let here = std::env::current_dir().unwrap_or_default();
    files(&here, &file)
        .filter_map(read)
        .take(TOKENS_MAX)
        .collect()
}

/// Candidate paths of a relative file name: in the folder and in its parents.
fn files(here: &Path, file: &Path) -> impl Iterator<Item = PathBuf> {
    let is_absolute = file.is_absolute();
    let folders = here
        .ancestors()
        .take(if is_absolute { 1 } else { usize::MAX });
    folders.map(move |folder| folder.join(file))
}

fn read(file: PathBuf) -> Option<LocalToken> {
    let seen = std::fs::metadata(&file).ok()?;
    if !seen.is_file() || seen.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let text = std::fs::read_to_string(&file).ok()?;
    let secret = text.trim().to_owned();
    (!secret.is_empty()).then_some(LocalToken { secret, file })
}

/// The result of a challenge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ChallengeOutcome {
    /// The daemon knows the token, so it may be sent.
    Own,
    /// The daemon does not know the token.
    Unknown,
    /// The daemon claims to know the token without proof.
    Unproven,
}

/// A challenge that only the daemon that knows the token can answer (`auth::identity`).
pub(super) struct Challenge {
    hash: Hash,
    text: String,
}

impl Challenge {
    /// A new challenge.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn of(token: &LocalToken) -> Result<Self, NoRandomness> {
        Ok(Self {
            hash: secret::hash(&token.secret),
            text: secret::new_challenge()?,
        })
    }

    /// The path to request.
    pub(super) fn path(&self) -> String {
        let name = identity::name(&self.hash);
        format!("/api/v1/identity?token={name}&challenge={}", self.text)
    }

    /// Checks the response of the daemon at this address.
    pub(super) fn check(&self, called: SocketAddr, answer: &Value) -> ChallengeOutcome {
        match answer.get("proof") {
            None | Some(Value::Null) => ChallengeOutcome::Unknown,
            Some(said) if *said == identity::proof(&self.hash, called, &self.text) => {
                ChallengeOutcome::Own
            }
            Some(_) => ChallengeOutcome::Unproven,
        }
    }
}

/// The store's configuration. An invalid configuration does not matter to a client.
fn store() -> StoreConfig {
    let file = std::env::var_os(environment::CONFIG).map(PathBuf::from);
    let config = Config::load(file.as_deref(), environment::all(), &[]);
    config.map_or_else(|_| StoreConfig::default(), |config| config.store)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_found_here_stays_here() {
        for local in ["127.0.0.1", "[::1]", "localhost", "127.8.0.1"] {
            assert!(is_loopback(local), "{local}");
        }
        for elsewhere in [
            "10.0.0.1",
            "example.com",
            "localhost.example.com",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
        assert!(find("http://10.0.0.1:8300").is_empty());
    }

    #[test]
    fn tokens_are_looked_for_in_folders_above_and_the_nearest_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        std::fs::create_dir_all(inner.join(".treadle")).unwrap();
        std::fs::create_dir_all(folder.path().join(".treadle/admin-token")).unwrap();
        std::fs::create_dir_all(folder.path().join("a/.treadle")).unwrap();
        std::fs::write(inner.join(".treadle/admin-token"), "tr_near\n").unwrap();
        std::fs::write(folder.path().join("a/.treadle/admin-token"), "tr_far\n").unwrap();
        let name = Path::new(".treadle/admin-token");
        let secrets = |here: &Path, file: &Path| -> Vec<String> {
            let found = files(here, file).filter_map(read);
            found.map(|token| token.secret).take(2).collect()
        };
        assert_eq!(secrets(&inner, name), ["tr_near", "tr_far"]);
        let far = folder.path().join("a").join(name);
        assert_eq!(
            secrets(&inner, &far),
            ["tr_far"],
            "a whole path is one place"
        );
    }

    #[test]
    fn challenge_answers_are_checked() {
        let token = LocalToken {
            secret: "tr_1".to_owned(),
            file: PathBuf::new(),
        };
        let challenge = Challenge::of(&token).unwrap();
        let called = "127.0.0.1:8300".parse().unwrap();
        let check = |answer: &Value| challenge.check(called, answer);
        let proof = |token: &str, called, text: &str| json!({"proof": identity::proof(&secret::hash(token), called, text)});
        let good = proof("tr_1", called, &challenge.text);
        assert_eq!(check(&good), ChallengeOutcome::Own);
        let elsewhere = "127.0.0.1:8301".parse().unwrap();
        assert_eq!(
            challenge.check(elsewhere, &good),
            ChallengeOutcome::Unproven
        );
        for bad in [
            proof("tr_2", called, &challenge.text),
            proof("tr_1", called, "another"),
            json!({"proof": true}),
            json!({"proof": ""}),
        ] {
            assert_eq!(check(&bad), ChallengeOutcome::Unproven, "{bad}");
        }
        for unknown in [json!({"proof": null}), json!({}), json!([])] {
            assert_eq!(check(&unknown), ChallengeOutcome::Unknown, "{unknown}");
        }
        assert!(!challenge.path().contains("tr_1"));
        assert_ne!(challenge.text, Challenge::of(&token).unwrap().text);
    }
}
