//! `treadle access tokens`: tokens for calling the daemon.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Remote, escaped};
use super::error::CliError;
use super::output::{Column, instant, plain, print_json, print_table, print_text};
use treadle_auth::Scope;

const TOKENS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("TENANT", "/tenant"),
    ("SCOPE", "/scope"),
    ("CREATED (UTC)", "/created_at_us"),
    ("EXPIRES (UTC)", "/expires_at_us"),
    ("REVOKED (UTC)", "/revoked_at_us"),
    ("LAST USED (UTC)", "/last_used_at_us"),
];
const NONE: &str =
    "there are no tokens; create one with `treadle access tokens create NAME --scope job`";

/// Arguments of `treadle access tokens`.
#[derive(Args, Clone, Debug)]
pub(super) struct TokensArgs {
    #[command(subcommand)]
    command: Option<TokensCommand>,
}

#[derive(Subcommand, Clone, Debug)]
enum TokensCommand {
    /// List the tokens.
    List,
    /// Create a token; its secret is shown once.
    Create(CreateArgs),
    /// Give a token a new secret; the previous one stays valid for a while.
    Rotate {
        /// The token's id.
        id: String,
    },
    /// Revoke a token at once.
    Revoke {
        /// The token's id.
        id: String,
    },
}

#[derive(Args, Clone, Debug)]
struct CreateArgs {
    /// The token's name.
    name: String,
    /// The token's scope; each scope includes the ones before it.
    #[arg(long, value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::as_str)))]
    scope: String,
    /// Lifetime of the token: 45s, 90m, 12h, 30d.
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    expires_in: Option<u64>,
    /// Valid for the whole daemon instead of one tenant; needs the scope operator, which adds and
    /// removes engines, or admin.
    #[arg(long)]
    whole_daemon: bool,
}

/// Parses a duration such as `12h` into seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "write it as 45s, 90m, 12h or 30d".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number = text[..text.len() - 1].parse::<u64>().map_err(|_| wrong())?;
    let seconds = number.checked_mul(factor).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(wrong)
}

impl TokensArgs {
    /// Sends the request and prints the response.
    pub(super) async fn run(self, remote: &Remote) -> Result<(), CliError> {
        let (client, json) = (remote.client(), remote.json);
        let answer = match self.command.unwrap_or(TokensCommand::List) {
            TokensCommand::List => {
                let answer = client.get("/api/v1/tokens").await?;
                if json {
                    return print_json(&answer);
                }
                let rows = answer["tokens"].as_array().map_or(&[][..], Vec::as_slice);
                return print_table(TOKENS, rows, NONE);
            }
            TokensCommand::Create(create) => {
                let mut body = json!({
                    "name": create.name, "scope": create.scope, "expires_in_s": create.expires_in,
                });
                if create.whole_daemon {
                    body["tenant"] = json!("*");
                }
                client
                    .command(Method::POST, "/api/v1/tokens", &body)
                    .await?
            }
            TokensCommand::Rotate { id } => {
                let path = format!("/api/v1/tokens/{}/rotate", escaped(&id));
                client.command(Method::POST, &path, &json!({})).await?
            }
            TokensCommand::Revoke { id } => {
                let path = format!("/api/v1/tokens/{}", escaped(&id));
                client.command(Method::DELETE, &path, &json!({})).await?
            }
        };
        if json {
            print_json(&answer)
        } else {
            print_text(&told(&answer))
        }
    }
}

fn told(token: &Value) -> String {
    let [id, name, tenant, scope] =
        ["id", "name", "tenant", "scope"].map(|field| plain(&token[field]));
    let Some(secret) = token["secret"].as_str() else {
        return format!("revoked {id} ({name})");
    };
    let mut text = format!("{id} ({name}) has the scope {scope} in tenant {tenant}\n");
    if let Some(until) = token["previous_until_us"].as_u64() {
        text = format!(
            "{text}the previous secret is valid until {} UTC\n",
            instant(until)
        );
    }
    format!("{text}its secret, shown once: {secret}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        let good = [
            ("45s", 45),
            ("90m", 5_400),
            ("12h", 43_200),
            ("30d", 2_592_000),
        ];
        for (text, expected) in good {
            assert_eq!(seconds(text), Ok(expected));
        }
        for bad in [
            "",
            "5",
            "s",
            "0d",
            "-1h",
            "5x",
            "1ü",
            "99999999999999999999d",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
