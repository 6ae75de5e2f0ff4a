//! `treadle plugin bind`, `rollback` and `unbind`: which policy makes which decisions.

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use treadle_model::World;

use super::new::world;
use crate::cli::client::{Client, escaped};
use crate::cli::error::CliError;
use crate::cli::output::{plain, print_json, print_text};
use crate::cli::progress;

/// The world and the job of a binding.
#[derive(Args, Clone, Debug)]
struct BindingTarget {
    /// The kind of decision.
    #[arg(long, default_value = "eviction", value_parser = world)]
    world: World,
    /// Only for this job; by default for all jobs without a binding of their own.
    #[arg(long)]
    job: Option<String>,
}

fn job_text(job: Option<&String>) -> String {
    job.map_or_else(String::new, |job| format!(" for the job {job}"))
}

/// Arguments of `treadle plugin bind`.
#[derive(Args, Clone, Debug)]
pub(super) struct BindArgs {
    /// Name, name@version, digest, or `native` for the built-in default.
    policy: String,
    /// The kind of decision; by default the policy's own world, or eviction for `native`.
    #[arg(long, value_parser = world)]
    world: Option<World>,
    /// Only for this job; by default for all jobs without a binding of their own.
    #[arg(long)]
    job: Option<String>,
    /// The policy's configuration, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    config_json: Option<Value>,
    /// Only call it and compare: its answers are not used.
    #[arg(long, conflicts_with = "canary")]
    shadow: bool,
    /// Let it decide for this share of the programs, above 0 and below 1.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    canary: Option<f64>,
}

/// Arguments of `treadle plugin rollback`.
#[derive(Args, Clone, Debug)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    place: BindingTarget,
}

/// Arguments of `treadle plugin unbind`.
#[derive(Args, Clone, Debug)]
pub(super) struct UnbindArgs {
    #[command(flatten)]
    place: BindingTarget,
    /// End the shadow binding.
    #[arg(long, conflicts_with = "canary")]
    shadow: bool,
    /// End the canary binding.
    #[arg(long)]
    canary: bool,
}

fn json_object(text: &str) -> Result<Value, String> {
    let remedy = "write a JSON object, such as '{\"lambda\": 0.5}'";
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(remedy.to_owned()),
        Err(error) => Err(format!("{error}; {remedy}")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("give a share above 0 and below 1, such as 0.1".to_owned()),
    }
}

impl BindArgs {
    /// Binds the policy and prints the result.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let body = self.body();
        let spinner = progress::spinner(format!("binding {}", self.policy));
        let bound = client.command(Method::PUT, "/api/v1/bindings", &body).await;
        spinner.finish_and_clear();
        let bound = bound?;
        if json {
            return print_json(&bound);
        }
        let (policy, world) = (plain(&bound["policy"]), plain(&bound["world"]));
        let job = job_text(self.job.as_ref());
        print_text(&match (self.shadow, self.canary) {
            (true, _) => format!("{policy} shadows {world}{job}; its answers are not used"),
            (_, Some(share)) => {
                let percent = share * 100.0;
                format!("{policy} decides on {world}{job} for {percent}% of the programs")
            }
            _ => format!("{policy} decides on {world}{job} from now on"),
        })
    }

    fn body(&self) -> Value {
        let role = match (self.shadow, self.canary) {
            (true, _) => "shadow",
            (_, Some(_)) => "canary",
            _ => "active",
        };
        let mut body = json!({"policy": self.policy, "role": role});
        let given = [
            ("world", self.world.map(|world| world.as_str().into())),
            ("config", self.config_json.clone()),
            ("job", self.job.clone().map(Value::from)),
            ("share", self.canary.map(Value::from)),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                body[key] = value;
            }
        }
        body
    }
}

impl RollbackArgs {
    /// Rolls back and prints the result.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let mut body = json!({"world": self.place.world.as_str()});
        if let Some(job) = &self.place.job {
            body["job"] = job.as_str().into();
        }
        let bound = client
            .command(Method::POST, "/api/v1/bindings/rollback", &body)
            .await?;
        if json {
            return print_json(&bound);
        }
        let (world, job) = (self.place.world, job_text(self.place.job.as_ref()));
        print_text(&format!(
            "{} decides on {world}{job} again",
            plain(&bound["policy"])
        ))
    }
}

impl UnbindArgs {
    /// Ends a binding and prints the result.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let role = match (self.shadow, self.canary) {
            (true, _) => "shadow",
            (_, true) => "canary",
            _ => "active",
        };
        let world = self.place.world;
        let mut path = format!("/api/v1/bindings?world={world}&role={role}");
        if let Some(job) = &self.place.job {
            path.push_str("&job=");
            path.push_str(&escaped(job));
        }
        let ended = client.command(Method::DELETE, &path, &Value::Null).await?;
        if json {
            return print_json(&ended);
        }
        let (job, active) = (job_text(self.place.job.as_ref()), plain(&ended["active"]));
        print_text(&format!(
            "the {role} binding of {world}{job} has ended; {active} decides"
        ))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        bind: BindArgs,
    }

    fn body(arguments: &str) -> Value {
        let line = std::iter::once("bind").chain(arguments.split(' '));
        CommandLine::try_parse_from(line).unwrap().bind.body()
    }

    #[test]
    fn a_configuration_is_an_object() {
        assert_eq!(json_object("{\"a\":1}"), Ok(json!({"a": 1})));
        for bad in ["[]", "1", "{a:1}", ""] {
            assert!(json_object(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_above_zero_and_below_one() {
        assert_eq!(share("0.1"), Ok(0.1));
        for bad in ["0", "-1", "1", "NaN", "10%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_has_only_the_given_fields() {
        assert_eq!(
            body("a --world reward"),
            json!({"world": "reward", "policy": "a", "role": "active"})
        );
        assert_eq!(
            body("a@1.0.0 --world priority --job j --canary 0.25"),
            json!({
                "world": "priority", "policy": "a@1.0.0", "role": "canary", "job": "j", "share": 0.25,
            })
        );
        assert_eq!(body("a --shadow")["role"], "shadow");
    }
}
