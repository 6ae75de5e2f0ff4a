//! `treadle plugin logs`: shows a policy's log.

use clap::Args;
use serde_json::Value;

use crate::cli::client::{Client, escaped};
use crate::cli::error::CliError;
use crate::cli::output::{plain, print_text};

/// Arguments of `treadle plugin logs`.
#[derive(Args, Clone, Debug)]
pub(super) struct LogsArgs {
    /// Name, name@version, or digest.
    policy: String,
    /// Keep printing new lines, until interrupted.
    #[arg(short, long)]
    follow: bool,
}

impl LogsArgs {
    /// Shows lines. With JSON, each is one line.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let path = format!("/api/v1/plugins/{}/logs", escaped(&self.policy));
        if self.follow {
            let mut show = |data: &str| {
                let line = serde_json::from_str(data).unwrap_or_else(|_| data.into());
                print_text(&shown(&line, json))
            };
            return client.follow(&path, &mut show).await;
        }
        let answer = client.get(&path).await?;
        for line in answer["lines"].as_array().into_iter().flatten() {
            print_text(&shown(line, json))?;
        }
        Ok(())
    }
}

/// A line for people: time, level, message.
fn shown(line: &Value, json: bool) -> String {
    if json || !line.is_object() {
        return line.to_string();
    }
    let (ms, level) = (plain(&line["now_ms"]), plain(&line["level"]));
    format!("{ms:>10} ms  {level:<5}  {}", plain(&line["message"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_time_level_and_message() {
        let line = json!({"now_ms": 1500, "level": "info", "message": "hello\u{7}"});
        assert_eq!(shown(&line, false), "      1500 ms  info   hello\u{fffd}");
        assert!(shown(&line, true).starts_with('{'));
    }
}
