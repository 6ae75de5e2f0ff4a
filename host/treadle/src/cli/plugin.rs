//! `treadle plugin`: creates, checks, uploads and binds policies.

mod bind;
mod build;
mod files;
mod language;
mod logs;
mod new;
mod project;
mod rust_workspace;
mod test;
mod toolchain;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use http::HeaderValue;
use serde_json::json;

use super::client::{Asking, Client, Server};
use super::error::CliError;
use super::output::{Column, plain, print_json, print_table, print_text};
use super::plugin_check::CheckArgs;
use super::progress;

pub(super) use project::component;

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
    ("JOB", "/job"),
    ("BOUND POLICY", "/policy"),
    ("BEFORE", "/previous"),
    ("CANARY", "/canary/policy"),
    ("SHARE", "/canary/share"),
    ("SHADOW", "/shadow/policy"),
];
const NONE: &str = "no plugin is stored; `treadle plugin push FILE` stores one";
/// Digits of a digest that are shown to people.
const DIGEST_DIGITS: usize = 12;

/// Arguments of `treadle plugin`.
#[derive(Args, Clone, Debug)]
pub(super) struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum PluginCommand {
    /// Create a project with a working policy.
    New(new::NewArgs),
    /// Build a project to a WebAssembly component.
    Build(build::BuildArgs),
    /// Run all checks on a policy without storing it.
    Check(Asking<CheckArgs>),
    /// Run a policy here on recorded inputs.
    Test(test::TestArgs),
    /// Check a policy and store it.
    Push(Asking<PushArgs>),
    /// List stored policies and bindings.
    List(Server),
    /// Bind a policy: for all jobs or one, for a share of programs, or as a shadow.
    Bind(Asking<bind::BindArgs>),
    /// Go back to the policy that was bound before.
    Rollback(Asking<bind::RollbackArgs>),
    /// End a binding.
    Unbind(Asking<bind::UnbindArgs>),
    /// Show what a policy writes to its log.
    Logs(Asking<logs::LogsArgs>),
}

#[derive(Args, Clone, Debug)]
struct PushArgs {
    /// The WebAssembly component, a core module with embedded WIT, or the folder of a built
    /// project.
    file: PathBuf,
    /// A file with the signature of the component, in hexadecimal or base64.
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
}

impl PluginArgs {
    /// Runs the command and prints the result.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let json = self.json;
        match self.command {
            PluginCommand::New(new) => new.run(json),
            PluginCommand::Build(build) => build.run(json),
            PluginCommand::Check(check) => check.args.run(&check.server.client(), json).await,
            PluginCommand::Test(test) => test.run(json),
            PluginCommand::Push(push) => push.args.run(&push.server.client(), json).await,
            PluginCommand::List(server) => list(&server.client(), json).await,
            PluginCommand::Bind(bind) => bind.args.run(&bind.server.client(), json).await,
            PluginCommand::Rollback(back) => back.args.run(&back.server.client(), json).await,
            PluginCommand::Unbind(unbind) => unbind.args.run(&unbind.server.client(), json).await,
            PluginCommand::Logs(logs) => logs.args.run(&logs.server.client(), json).await,
        }
    }
}

impl PushArgs {
    async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let file = component(&self.file)?;
        let bytes = read(&file)?;
        let signature = self.signature.as_deref().map(signature).transpose()?;
        let spinner = progress::spinner(format!("checking {}", file.display()));
        let pushed = client.upload("/api/v1/plugins", bytes, signature).await;
        spinner.finish_and_clear();
        let plugin = pushed?;
        if json {
            return print_json(&plugin);
        }
        let (name, version) = (plain(&plugin["name"]), plain(&plugin["version"]));
        let stored = if plugin["new"] == true {
            "stored"
        } else {
            "was stored already"
        };
        print_text(&format!(
            "{name}@{version} {stored}, digest {}\n`treadle plugin bind {name}@{version} --world {}` lets it decide",
            plain(&plugin["digest"]),
            plain(&plugin["world"])
        ))
    }
}

/// The content of a signature file, as a header's value.
fn signature(path: &Path) -> Result<HeaderValue, CliError> {
    HeaderValue::from_bytes(read(path)?.trim_ascii()).map_err(|_| {
        CliError::Usage(format!(
            "{} is not a signature; give one line of hexadecimal or base64",
            path.display()
        ))
    })
}

async fn list(client: &Client, json: bool) -> Result<(), CliError> {
    let mut plugins = client.get("/api/v1/plugins").await?;
    let bindings = client.get("/api/v1/bindings").await?;
    if json {
        plugins["bindings"] = bindings["bindings"].clone();
        return print_json(&plugins);
    }
    let mut rows = plugins["plugins"].as_array().cloned().unwrap_or_default();
    for row in &mut rows {
        let short = plain(&row["digest"]);
        row["short"] = json!(short.chars().take(DIGEST_DIGITS).collect::<String>());
    }
    print_table(PLUGINS, &rows, NONE)?;
    let bound = bindings["bindings"].as_array().cloned().unwrap_or_default();
    print_text("")?;
    print_table(BINDINGS, &bound, "no policy is bound")
}

/// A file as a whole.
pub(super) fn read(path: &Path) -> Result<Bytes, CliError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes.into()),
        Err(cause) => Err(CliError::File {
            path: path.to_owned(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.sig");
        std::fs::write(&path, "c2lnbmVk\n").unwrap();
        assert_eq!(signature(&path).unwrap(), "c2lnbmVk");
        std::fs::write(&path, "two\nlines").unwrap();
        let error = signature(&path).unwrap_err().to_string();
        assert!(error.contains("is not a signature"), "{error}");
    }
}
