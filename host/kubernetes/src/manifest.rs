//! Manifests of pods.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io;
use std::time::Duration;
use treadle_sandbox::Record;

use crate::config::KubernetesConfig;

/// Maximum length of a label's value.
const LABEL_CHARS_MAX: usize = 63;
/// Length of the digest that replaces an invalid label value.
const DIGEST_BYTES: usize = 16;
/// Name of the container of a pod.
pub(crate) const CONTAINER: &str = "sandbox";
/// Label with the agent that owns a pod.
pub(crate) const OWNER: &str = "treadle.dev/owner";
/// Label with the sandbox of a pod.
pub(crate) const SANDBOX: &str = "treadle.dev/sandbox";
/// Capabilities of root inside: the same as in a sandbox of this machine's kernel.
const CAPABILITIES: [&str; 9] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
];
/// The first process of a pod: it idles, and reaps orphans.
const WAITS: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

/// The name of a sandbox's pod.
pub(crate) fn name_of(id: &str) -> String {
    format!("treadle-{id}")
}

/// A text as a label's value: unchanged if it is valid, else a digest of it.
pub(crate) fn label(text: &str) -> String {
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_plain = text.len() <= LABEL_CHARS_MAX
        && is_outer(bytes.first())
        && is_outer(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if is_plain || text.is_empty() {
        return text.to_owned();
    }
    let digest = Sha256::digest(text);
    let hex = digest[..DIGEST_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"));
    format!("sha256-{}", hex.collect::<String>())
}

/// The manifest of a sandbox's pod.
///
/// # Errors
/// If it is invalid, which is a bug in treadle.
pub(crate) fn pod(
    config: &KubernetesConfig,
    record: &Record,
    image: &str,
    owner: &str,
) -> io::Result<Pod> {
    let spec = &record.spec;
    let mut labels = json!({
        "app.kubernetes.io/managed-by": "treadle",
        OWNER: owner,
        SANDBOX: record.id,
        "treadle.dev/tenant": label(&spec.tenant),
        "treadle.dev/job": label(&spec.job),
    });
    if let Some(program) = &spec.program {
        labels["treadle.dev/program"] = label(program).into();
    }
    let lives = spec.ttl.unwrap_or(config.ttl).max(config.lifetime_max);
    let memory = spec.memory_bytes.unwrap_or(config.memory_bytes).to_string();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name_of(&record.id), "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": whole_seconds(lives),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "command": ["sh", "-c", WAITS],
                "resources": resources(config, &memory),
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "privileged": false,
                    "capabilities": {"drop": ["ALL"], "add": CAPABILITIES},
                },
            }],
        },
    });
    if let Some(class) = &config.runtime_class {
        pod["spec"]["runtimeClassName"] = class.as_str().into();
    }
    if config.user_namespaces {
        pod["spec"]["hostUsers"] = false.into();
    }
    Ok(serde_json::from_value(pod)?)
}

fn resources(config: &KubernetesConfig, memory: &str) -> Value {
    json!({
        "requests": {
            "cpu": format!("{}m", config.cpu_request_millis.min(config.cpu_limit_millis)),
            "memory": memory,
            // Few pods write as much as they may.
            "ephemeral-storage": "0",
        },
        "limits": {
            "cpu": format!("{}m", config.cpu_limit_millis),
            "memory": memory,
            "ephemeral-storage": config.disk_bytes_max.to_string(),
        },
    })
}

/// A pod's deadline in whole seconds, as a 32-bit number.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().clamp(1, i32::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_text_itself_or_a_digest_that_differs() {
        for plain in ["", "rollout-17", "a.B_c-9", &"x".repeat(63)] {
            assert_eq!(label(plain), plain);
        }
        let texts = ["a/b", "-a", "a-", "ä", "a b", &"x".repeat(64)];
        let mut labels: Vec<String> = texts.iter().map(|text| label(text)).collect();
        for value in &labels {
            assert!(value.len() <= 63 && value == &label(value), "{value}");
        }
        labels.dedup();
        assert_eq!(labels.len(), texts.len());
    }
}
