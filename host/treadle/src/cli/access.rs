//! `treadle access`: tokens, tenants and the audit log.

use clap::{Args, Subcommand};

use super::audit::AuditArgs;
use super::client::Remote;
use super::error::CliError;
use super::tenants::TenantsArgs;
use super::tokens::TokensArgs;

/// Arguments of `treadle access`.
#[derive(Args, Clone, Debug)]
pub(super) struct AccessArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: AccessCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum AccessCommand {
    /// Create, list, rotate and revoke tokens.
    Tokens(TokensArgs),
    /// List and create tenants, and change their limits.
    Tenants(TenantsArgs),
    /// Show who changed what.
    Audit(AuditArgs),
}

impl AccessArgs {
    /// Runs the command.
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self.command {
            AccessCommand::Tokens(args) => args.run(&self.remote).await,
            AccessCommand::Tenants(args) => args.run(&self.remote).await,
            AccessCommand::Audit(args) => args.run(&self.remote).await,
        }
    }
}
