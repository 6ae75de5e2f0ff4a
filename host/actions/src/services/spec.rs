//! The declaration of a service by a job.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use treadle_core::actions::NODE_DEVICES;

use crate::body::{BodyError, check_command, check_env, check_name, read, split_url};

/// Maximum time that a service may take to start or stop, in seconds.
const READY_S_MAX: u64 = 3_600;

/// The JSON declaration of a service. The scheduler decides when and where it is used.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Its name: letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// How it is started and stopped.
    pub lifecycle: Lifecycle,
    /// Its address: scheme, host and port, which the tenant must be allowed to reach. Without it,
    /// the service runs on this machine at the port in `TREADLE_PORT`, which changes with each
    /// start.
    #[serde(default)]
    pub url: Option<String>,
    /// The path that returns 2xx when it is ready.
    pub ready_path: String,
    /// How long it may take to start or to stop, in seconds.
    pub ready_s_max: u64,
    /// Variables of its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The numbers of devices that it can run on, ascending; any number if empty.
    #[serde(default)]
    pub gpus: Vec<u64>,
    /// Memory that each device must have.
    #[serde(default)]
    pub gpu_memory_bytes: u64,
    /// Whether its owner may run commands on this machine although jobs may not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
}

/// How a service is started and stopped.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lifecycle {
    /// The service is a process, and ends with it.
    Process {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// Commands that start and stop the service, and end by themselves. Processes that they leave
    /// on this machine end with the service.
    Commands {
        /// Starts it the first time.
        start: Vec<String>,
        /// Stops it.
        stop: Vec<String>,
        /// Starts it again after a stop; `start` if empty.
        #[serde(default)]
        restore: Option<Vec<String>>,
    },
    /// A server that accepts `POST` to `/start`, `/stop` and `/restore` with the service, its
    /// devices and its port.
    Control {
        /// Scheme, host and port, which the tenant must be allowed to reach.
        url: String,
    },
}

impl ServiceSpec {
    /// Parses and checks a declaration.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn parse(json: &[u8]) -> Result<Self, BodyError> {
        let spec: Self = read(json, "send one JSON object")?;
        spec.check()?;
        Ok(spec)
    }

    /// Whether it runs commands on this machine.
    pub fn has_commands(&self) -> bool {
        !matches!(self.lifecycle, Lifecycle::Control { .. })
    }

    fn check(&self) -> Result<(), BodyError> {
        check_name("name", &self.name)?;
        match &self.lifecycle {
            Lifecycle::Process { command } => check_command("lifecycle.process.command", command)?,
            Lifecycle::Commands {
                start,
                stop,
                restore,
            } => {
                check_command("lifecycle.commands.start", start)?;
                check_command("lifecycle.commands.stop", stop)?;
                if let Some(restore) = restore {
                    check_command("lifecycle.commands.restore", restore)?;
                }
            }
            Lifecycle::Control { url } => check_base("lifecycle.control.url", url)?,
        }
        if let Some(url) = &self.url {
            check_base("url", url)?;
        }
        let problem = "is not a valid path; send one such as /health";
        let path = split_url("ready_path", &format!("http://h{}", self.ready_path));
        if !self.ready_path.starts_with('/') || path.is_err() {
            return Err(BodyError::new("ready_path", problem));
        }
        if !(1..=READY_S_MAX).contains(&self.ready_s_max) {
            let problem = format!("is {}; send 1 to {READY_S_MAX}", self.ready_s_max);
            return Err(BodyError::new("ready_s_max", problem));
        }
        let is_chunk =
            |number: &u64| number.is_power_of_two() && *number <= u64::from(NODE_DEVICES);
        let ascends = self.gpus.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || !self.gpus.iter().all(is_chunk) {
            let problem = "must be some of 1, 2, 4 and 8, ascending";
            return Err(BodyError::new("gpus", problem));
        }
        check_env("env", &self.env)
    }

    pub(super) fn ready_max(&self) -> Duration {
        Duration::from_secs(self.ready_s_max)
    }
}

fn check_base(field: &str, url: &str) -> Result<(), BodyError> {
    let (base, _) = split_url(field, url)?;
    if base != url {
        let problem = format!("is more than a server; send {base}");
        return Err(BodyError::new(field, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_and_refusals_name_the_field() {
        let with = |field: &str, value: &str| {
            let mut json = serde_json::json!({
                "name": "judge", "lifecycle": { "process": { "command": ["serve"] } },
                "ready_path": "/health", "ready_s_max": 60,
            });
            json[field] = serde_json::from_str(value).unwrap();
            ServiceSpec::parse(json.to_string().as_bytes())
        };
        let spec = with("url", "\"http://10.0.0.1:80\"").unwrap();
        let again = serde_json::to_vec(&spec).unwrap();
        assert_eq!(ServiceSpec::parse(&again), Ok(spec));
        let control = with("lifecycle", r#"{"control":{"url":"https://h"}}"#);
        assert!(control.is_ok(), "{control:?}");
        for (field, value, told) in [
            ("name", "\"\"", "`name` is not a valid name"),
            ("colour", "1", "`colour` is not known"),
            (
                "lifecycle",
                r#"{"process":{"command":[]}}"#,
                "`lifecycle.process.command` is empty",
            ),
            (
                "lifecycle",
                r#"{"commands":{"start":["a"]}}"#,
                "`lifecycle.commands.stop` is missing",
            ),
            (
                "lifecycle",
                r#"{"magic":{}}"#,
                "`lifecycle.magic` is not known",
            ),
            (
                "lifecycle",
                r#"{"control":{"url":"http://h/x"}}"#,
                "`lifecycle.control.url` is more",
            ),
            ("url", "\"h\"", "`url` can't be used"),
            (
                "ready_path",
                "\"health\"",
                "`ready_path` is not a valid path",
            ),
            ("ready_s_max", "0", "`ready_s_max` is 0"),
            ("gpus", "[1,3]", "`gpus` must be some of"),
            ("gpus", "[2,1]", "`gpus` must be some of"),
            ("gpus", "[16]", "`gpus` must be some of"),
            ("gpu_memory_bytes", "-1", "`gpu_memory_bytes`"),
            (
                "env",
                r#"{"TREADLE_PORT":"1"}"#,
                "`env.TREADLE_PORT` is set by treadle",
            ),
        ] {
            let refused = with(field, value).unwrap_err().to_string();
            assert!(refused.starts_with(told), "{field}: {value}: {refused}");
        }
    }
}
