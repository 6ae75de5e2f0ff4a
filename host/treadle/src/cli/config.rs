//! `treadle config`: prints the configuration, and the reference of its keys.

use clap::{Args, Subcommand};

use super::error::CliError;
use super::output::{print_json, print_text};
use super::settings::Settings;
use treadle_config::reference_markdown;

/// Arguments of `treadle config`.
#[derive(Args, Clone, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ConfigCommand {
    /// Print the effective configuration, as TOML.
    Show {
        #[command(flatten)]
        settings: Settings,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the reference of all keys, as Markdown.
    Docs,
}

impl ConfigArgs {
    /// Runs the command.
    pub(super) fn run(self) -> Result<(), CliError> {
        let (settings, json) = match self.command {
            ConfigCommand::Docs => return print_text(&reference_markdown()),
            ConfigCommand::Show { settings, json } => (settings, json),
        };
        let config = settings.load(Vec::new())?;
        let unwritable = |error: &dyn std::fmt::Display| {
            CliError::Failed(format!("the configuration can't be written: {error}"))
        };
        if json {
            print_json(&serde_json::to_value(&config).map_err(|error| unwritable(&error))?)
        } else {
            print_text(&toml::to_string(&config).map_err(|error| unwritable(&error))?)
        }
    }
}
