//! The client of the API server: configuration, and the meaning of its errors.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use treadle_sandbox::SandboxError;

use crate::config::KubernetesConfig;

/// Timeout of a request.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Maximum length of an API server's message that is passed on.
const TOLD_BYTES_MAX: usize = 512;

/// A client for the pods of the namespace.
///
/// # Errors
/// An invalid configuration.
pub(crate) async fn pods(config: &KubernetesConfig) -> Result<Api<Pod>, SandboxError> {
    let mut found = found(config).await?;
    // Refusals because of quotas are reported at once.
    found.default_retry = false;
    if let Some(namespace) = &config.namespace {
        found.default_namespace.clone_from(namespace);
    }
    let client = Client::try_from(found).map_err(|error| {
        let problem = format!("can't be used: {error}; correct it");
        SandboxError::Value("kubernetes.kubeconfig", problem)
    })?;
    Ok(Api::default_namespaced(client))
}

async fn found(config: &KubernetesConfig) -> Result<Config, SandboxError> {
    let options = KubeConfigOptions {
        context: config.context.clone(),
        ..KubeConfigOptions::default()
    };
    let wrong = |problem: String| SandboxError::Value("kubernetes.kubeconfig", problem);
    let Some(path) = &config.kubeconfig else {
        let inferred = if config.context.is_some() {
            Config::from_kubeconfig(&options)
                .await
                .map_err(|error| error.to_string())
        } else {
            Config::infer().await.map_err(|error| error.to_string())
        };
        return inferred.map_err(|error| {
            wrong(format!(
                "is empty, and neither $KUBECONFIG, ~/.kube/config nor a pod's service account is \
                 there: {error}; name a kubeconfig file"
            ))
        });
    };
    let shown = path.display();
    let read = Kubeconfig::read_from(path).map_err(|error| {
        wrong(format!(
            "names {shown}, which is not a kubeconfig: {error}; name a readable kubeconfig"
        ))
    })?;
    let chosen = Config::from_custom_kubeconfig(read, &options).await;
    chosen.map_err(|error| match &config.context {
        Some(context) => SandboxError::Value(
            "kubernetes.context",
            format!(
                "is {context}, which is missing or incomplete in {shown}: {error}; name one of its contexts"
            ),
        ),
        None => wrong(format!(
            "names {shown}, which lacks a required entry: {error}; correct it"
        )),
    })
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The pod does not exist.
    NotFound,
    /// A pod with this name exists.
    Exists,
    /// A concurrent change conflicts with the request.
    Conflict,
    /// The cluster has no room, or the API server is overloaded.
    NoRoom(String),
    /// The API server refused the request.
    Refused(String),
    /// The requested version is too old.
    Expired,
    /// The request failed without an answer, or the API server is unavailable.
    Lost(String),
    /// The connection broke after the request was sent; its result is unknown.
    Broken,
}

impl Failure {
    /// The error for a caller who requests a sandbox.
    pub(crate) fn told(self) -> SandboxError {
        match self {
            Self::NoRoom(told) => SandboxError::NoRoom(told),
            Self::NotFound | Self::Broken => SandboxError::Gone,
            other => SandboxError::Preparation(other.to_string()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => text.write_str("there is no such pod"),
            Self::Exists => text.write_str("a pod with this name already exists"),
            Self::Conflict => text.write_str("it was changed at the same time; try again"),
            Self::Expired => text.write_str("the requested version has expired"),
            Self::NoRoom(told) => write!(text, "the cluster has no room: {told}"),
            Self::Refused(told) => write!(text, "the API server refuses it: {told}"),
            Self::Broken => text.write_str("the connection broke"),
            Self::Lost(told) => write!(text, "the API server does not answer: {told}"),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Lost(short(&error.to_string()));
        };
        failure_of(status.code, &status.reason, &status.message)
    }
}

/// The meaning of an error response of the API server.
pub(crate) fn failure_of(code: u16, reason: &str, message: &str) -> Failure {
    let told = short(message);
    match (code, reason) {
        (404, _) => Failure::NotFound,
        (409, "AlreadyExists") => Failure::Exists,
        (409, _) => Failure::Conflict,
        (410, _) => Failure::Expired,
        (403, _) if message.contains("exceeded quota") => Failure::NoRoom(told),
        (403, _) => Failure::Refused(format!("{told}{}", remedy(message))),
        (429 | 503 | 504, _) => Failure::NoRoom(told),
        (500.., _) => Failure::Lost(told),
        _ => Failure::Refused(told),
    }
}

/// The remedy for a forbidden request.
fn remedy(message: &str) -> &'static str {
    if message.contains("PodSecurity") {
        "; use a namespace that allows the level `baseline` of pod security"
    } else if message.contains(" cannot ") {
        "; give the daemon's account the rights in docs/sandboxes.md"
    } else {
        ""
    }
}

/// Sends a request with a timeout.
pub(crate) async fn asked<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(REQUEST_MAX, request).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Failure::Lost("no answer came in time".to_owned())),
    }
}

/// Another program's message as a single line of limited length.
pub(crate) fn short(told: &str) -> String {
    let line = told.trim().replace(['\n', '\r'], " ");
    line[..line.floor_char_boundary(TOLD_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_for_want_of_room_differ_from_others() {
        let quota = "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9";
        assert!(matches!(
            failure_of(403, "Forbidden", quota),
            Failure::NoRoom(_)
        ));
        let rights = "pods is forbidden: User \"u\" cannot create resource \"pods\"";
        let Failure::Refused(told) = failure_of(403, "Forbidden", rights) else {
            panic!("a matter of rights");
        };
        assert!(told.contains("cannot create") && told.contains("docs/sandboxes.md"));
        let level = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"";
        let refused = failure_of(403, "Forbidden", level).to_string();
        assert!(refused.contains("`baseline`"), "{refused}");
        assert!(matches!(
            failure_of(429, "TooManyRequests", ""),
            Failure::NoRoom(_)
        ));
        assert!(matches!(
            failure_of(409, "AlreadyExists", ""),
            Failure::Exists
        ));
        assert!(matches!(failure_of(409, "Conflict", ""), Failure::Conflict));
        assert!(matches!(failure_of(410, "Expired", ""), Failure::Expired));
        assert!(matches!(failure_of(500, "", ""), Failure::Lost(_)));
        assert!(matches!(failure_of(400, "", ""), Failure::Refused(_)));
    }

    #[test]
    fn messages_become_one_short_line() {
        let told = short(&format!("a\nb{}", "é".repeat(1_000)));
        assert!(told.starts_with("a b") && told.len() <= TOLD_BYTES_MAX);
    }
}
