//! `treadle access audit`: the log of administrative changes.

use clap::Args;

use super::client::{Remote, escaped};
use super::error::CliError;
use super::output::{Column, print_json, print_table, print_text};

const CHANGES: &[Column] = &[
    ("ID", "/id"),
    ("TIME (UTC)", "/at_us"),
    ("TENANT", "/tenant"),
    ("WHO", "/who"),
    ("ACTION", "/action"),
    ("TARGET", "/target"),
    ("BEFORE", "/before"),
    ("AFTER", "/after"),
    ("ADDRESS", "/address"),
];

/// Arguments of `treadle access audit`.
#[derive(Args, Clone, Debug)]
pub(super) struct AuditArgs {
    /// Only changes of this kind, such as token.created.
    #[arg(long)]
    action: Option<String>,
    /// Only changes to this target.
    #[arg(long)]
    target: Option<String>,
    /// Only changes by this user, written as in the log.
    #[arg(long)]
    who: Option<String>,
    /// Only changes older than the one with this ID.
    #[arg(long, value_name = "ID")]
    before: Option<u64>,
    /// Maximum number of changes.
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

impl AuditArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self, remote: &Remote) -> Result<(), CliError> {
        let texts = [
            ("action", self.action),
            ("target", self.target),
            ("who", self.who),
            ("before", self.before.map(|id| id.to_string())),
        ];
        let given = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        let filters: String = given
            .flat_map(|(name, text)| ["&", name, "=", &escaped(&text)].map(str::to_owned))
            .collect();
        let path = format!("/api/v1/audit?limit={}{filters}", self.limit);
        let answer = remote.client().get(&path).await?;
        if remote.json {
            return print_json(&answer);
        }
        let rows = answer["changes"].as_array().map_or(&[][..], Vec::as_slice);
        print_table(CHANGES, rows, "no changes are recorded")?;
        if let Some(next) = answer["next"].as_u64() {
            print_text(&format!("older ones: --before {next}"))?;
        }
        Ok(())
    }
}
