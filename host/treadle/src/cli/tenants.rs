//! `treadle access tenants`: the daemon's tenants and their limits.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::client::{Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_table, print_text};

const TENANTS: &[Column] = &[
    ("TENANT", "/tenant"),
    ("CREATED (UTC)", "/created_at_us"),
    ("PLUGINS", "/limits/plugins"),
    ("PLUGIN BYTES", "/limits/plugin_bytes"),
    ("BODY BYTES", "/limits/body_bytes"),
    ("REQUESTS/S", "/limits/requests_per_s"),
    ("LIVE PROGRAMS", "/limits/live_programs"),
    ("SANDBOXES", "/limits/sandboxes"),
    ("KEPT BYTES", "/limits/kept_bytes"),
    ("ACTIONS %", "/limits/action_percent"),
    ("UNSIGNED PLUGINS", "/limits/unsigned_plugins"),
];

/// Arguments of `treadle access tenants`.
#[derive(Args, Clone, Debug)]
pub(super) struct TenantsArgs {
    #[command(subcommand)]
    command: Option<TenantsCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum TenantsCommand {
    /// List the tenants.
    List,
    /// Create a tenant.
    Create(TenantArgs),
    /// Change a tenant's limits.
    Set(TenantArgs),
}

#[derive(Args, Clone, Debug)]
struct TenantArgs {
    /// The tenant's name.
    name: String,
    /// A limit, `none` for no limit: plugins, plugin_bytes, body_bytes, requests_per_s,
    /// live_programs, steps, bodies_bytes, sandboxes, sandbox_bytes, snapshot_bytes, kept_bytes,
    /// action_percent, unsigned_plugins; can be given several times.
    #[arg(long = "limit", value_parser = limit, value_name = "LIMIT=VALUE")]
    limits: Vec<(String, Value)>,
}

/// `limit=value` with the value as JSON.
fn limit(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as limit=value")?;
    let value = match value.trim() {
        "none" => Value::Null,
        text => serde_json::from_str(text)
            .map_err(|_| "the value is a number, true, false or none".to_owned())?,
    };
    Ok((name.trim().to_owned(), value))
}

impl TenantsArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self, remote: &Remote) -> Result<(), CliError> {
        let (client, json) = (remote.client(), remote.json);
        let (answer, told) = match self.command.unwrap_or(TenantsCommand::List) {
            TenantsCommand::List => (client.get("/api/v1/tenants").await?, None),
            TenantsCommand::Create(tenant) => {
                let told = format!(
                    "created {0}; create a token for it with: treadle access tokens create NAME --scope job --tenant {0}",
                    tenant.name
                );
                let body = json!({"tenant": tenant.name, "limits": tenant.limits()});
                let answer = client
                    .command(Method::POST, "/api/v1/tenants", &body)
                    .await?;
                (answer, Some(told))
            }
            TenantsCommand::Set(tenant) => {
                let path = format!("/api/v1/tenants/{}", escaped(&tenant.name));
                let body = json!({"limits": tenant.limits()});
                let answer = client.command(Method::PUT, &path, &body).await?;
                (answer, Some(format!("changed {}", tenant.name)))
            }
        };
        match told {
            _ if json => print_json(&answer),
            Some(told) => print_text(&told),
            None => {
                let rows = answer["tenants"].as_array().map_or(&[][..], Vec::as_slice);
                print_table(TENANTS, rows, "there are no tenants")
            }
        }
    }
}

impl TenantArgs {
    fn limits(&self) -> Map<String, Value> {
        self.limits.iter().cloned().collect()
    }
}
