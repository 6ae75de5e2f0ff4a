//! `treadle plugin`: policies, from a file to the decisions of a daemon.

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote};
use super::error::CliError;
use super::output::{Column, plain, say, say_json, say_table};
use super::plugin_check::CheckArgs;
use super::progress;

const PLUGINS: &[Column] = &[
    ("NAME", "/name"),
    ("VERSION", "/version"),
    ("WORLD", "/world"),
    ("DIGEST", "/short"),
    ("BYTES", "/size_bytes"),
    ("UPLOADED (UTC)", "/uploaded_at_us"),
    ("SUMMARY", "/summary"),
];
const BINDINGS: &[Column] = &[
    ("WORLD", "/world"),
    ("BOUND POLICY", "/policy"),
    ("ANSWERED", "/statistics/answered"),
    ("FALLBACKS", "/statistics/fallbacks"),
    ("FAULTS", "/statistics/faults"),
    ("LATEST FAULT", "/statistics/latest_fault"),
];
const NONE: &str = "no plugin is stored; `treadle plugin push FILE` stores one";
/// Digits of a digest that tell plugins apart for people.
const DIGEST_DIGITS: usize = 12;

/// Arguments of `treadle plugin`.
#[derive(Args, Clone, Debug)]
pub(super) struct PluginArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum PluginCommand {
    /// Check a policy and store it.
    Push {
        /// The WebAssembly component, or a core module with embedded WIT.
        file: PathBuf,
    },
    /// List the stored policies and what is bound.
    List,
    /// Let a stored policy decide from now on.
    Bind(BindArgs),
    /// Take a policy through every check without storing it.
    Check(CheckArgs),
}

#[derive(Args, Clone, Debug)]
struct BindArgs {
    /// Name, name@version, digest, or `native` for the built-in default.
    policy: String,
    /// What it decides.
    #[arg(long, default_value = "eviction")]
    world: String,
    /// Its configuration, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    config_json: Option<Value>,
}

fn json_object(text: &str) -> Result<Value, String> {
    let remedy = "write a JSON object, such as '{\"lambda\": 0.5}'";
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(remedy.to_owned()),
        Err(error) => Err(format!("{error}; {remedy}")),
    }
}

impl PluginArgs {
    /// Does it and shows what came of it.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (client, json) = (self.remote.client(), self.remote.json);
        match self.command {
            PluginCommand::Push { file } => push(&client, &file, json).await,
            PluginCommand::List => list(&client, json).await,
            PluginCommand::Bind(bind) => bind.run(&client, json).await,
            PluginCommand::Check(check) => check.run(&client, json).await,
        }
    }
}

async fn push(client: &Client, file: &PathBuf, json: bool) -> Result<(), CliError> {
    let bytes = read(file)?;
    let spinner = progress::spinner(format!("checking {}", file.display()));
    let pushed = client.upload("/v1/plugins", bytes).await;
    spinner.finish_and_clear();
    let plugin = pushed?;
    if json {
        return say_json(&plugin);
    }
    let (name, version) = (plain(&plugin["name"]), plain(&plugin["version"]));
    let stored = if plugin["new"] == true {
        "stored"
    } else {
        "was stored already"
    };
    say(&format!(
        "{name}@{version} {stored}, digest {}\n`treadle plugin bind {name}@{version}` lets it decide",
        plain(&plugin["digest"])
    ))
}

async fn list(client: &Client, json: bool) -> Result<(), CliError> {
    let mut plugins = client.get("/v1/plugins").await?;
    let bindings = client.get("/v1/bindings").await?;
    if json {
        plugins["bindings"] = bindings["bindings"].clone();
        return say_json(&plugins);
    }
    let mut rows = plugins["plugins"].as_array().cloned().unwrap_or_default();
    for row in &mut rows {
        let short = plain(&row["digest"]);
        row["short"] = json!(short.chars().take(DIGEST_DIGITS).collect::<String>());
    }
    say_table(PLUGINS, &rows, NONE)?;
    let bound = bindings["bindings"].as_array().cloned().unwrap_or_default();
    say("")?;
    say_table(BINDINGS, &bound, "no policy is bound")
}

impl BindArgs {
    async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let body = json!({
            "world": self.world, "policy": self.policy, "config": self.config_json,
        });
        let spinner = progress::spinner(format!("binding {}", self.policy));
        let bound = client.command(Method::PUT, "/v1/bindings", &body).await;
        spinner.finish_and_clear();
        let bound = bound?;
        if json {
            return say_json(&bound);
        }
        let (world, policy) = (plain(&bound["world"]), plain(&bound["policy"]));
        say(&format!("{policy} decides on {world} from now on"))
    }
}

/// A file as a whole.
pub(super) fn read(path: &PathBuf) -> Result<Bytes, CliError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes.into()),
        Err(cause) => Err(CliError::File {
            path: path.clone(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_an_object() {
        assert_eq!(json_object("{\"a\":1}"), Ok(json!({"a": 1})));
        for bad in ["[]", "1", "{a:1}", ""] {
            assert!(json_object(bad).is_err(), "{bad}");
        }
    }
}
