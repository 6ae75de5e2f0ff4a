//! `treadle plugin logs`: what a policy writes to its log.

use clap::Args;
use serde_json::Value;

use crate::cli::client::{Client, escaped};
use crate::cli::error::CliError;
use crate::cli::output::{plain, say};

/// Arguments of `treadle plugin logs`.
#[derive(Args, Clone, Debug)]
pub(super) struct LogsArgs {
    /// Name, name@version, or digest.
    policy: String,
    /// Go on as lines come, until interrupted.
    #[arg(short, long)]
    follow: bool,
}

impl LogsArgs {
    /// Shows lines. With JSON, each is one line.
    pub(super) async fn run(self, client: &Client, json: bool) -> Result<(), CliError> {
        let plugins = client.get("/v1/plugins").await?;
        let digest = digest_of(&plugins["plugins"], &self.policy).ok_or_else(|| {
            CliError::Failed(format!(
                "{} is not stored; `treadle plugin list` shows what is",
                self.policy
            ))
        })?;
        let path = format!("/v1/plugins/{}/logs", escaped(&digest));
        if self.follow {
            let mut show = |data: &str| {
                let line = serde_json::from_str(data).unwrap_or_else(|_| data.into());
                say(&shown(&line, json))
            };
            return client.follow(&path, &mut show).await;
        }
        let answer = client.get(&path).await?;
        for line in answer["lines"].as_array().into_iter().flatten() {
            say(&shown(line, json))?;
        }
        Ok(())
    }
}

/// The digest of a policy; with a name alone that of the newest version.
fn digest_of(plugins: &Value, policy: &str) -> Option<String> {
    let plugins = plugins.as_array()?.iter();
    let is_meant = |plugin: &&Value| {
        let (name, version) = (plugin["name"].as_str(), plugin["version"].as_str());
        let digest = plugin["digest"].as_str().unwrap_or_default();
        let (wanted, of_version) = policy
            .split_once('@')
            .map_or((policy, None), |(name, version)| (name, Some(version)));
        let is_named = name == Some(wanted) && (of_version.is_none() || of_version == version);
        is_named || digest == policy
    };
    let newest = plugins
        .filter(is_meant)
        .max_by_key(|plugin| plugin["uploaded_at_us"].as_u64())?;
    newest["digest"].as_str().map(str::to_owned)
}

/// A line for people: time, level, words.
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
    fn a_name_means_its_newest_version() {
        let plugins = json!([
            {"name": "a", "version": "1.0.0", "digest": "d1", "uploaded_at_us": 1},
            {"name": "a", "version": "1.1.0", "digest": "d2", "uploaded_at_us": 2},
            {"name": "b", "version": "1.0.0", "digest": "d3", "uploaded_at_us": 3},
        ]);
        let found = |policy| digest_of(&plugins, policy);
        assert_eq!(found("a").as_deref(), Some("d2"));
        assert_eq!(found("a@1.0.0").as_deref(), Some("d1"));
        assert_eq!(found("d3").as_deref(), Some("d3"));
        assert_eq!(found("c"), None);
    }

    #[test]
    fn a_line_tells_time_level_and_words() {
        let line = json!({"now_ms": 1500, "level": "info", "message": "hello\u{7}"});
        assert_eq!(shown(&line, false), "      1500 ms  info   hello\u{fffd}");
        assert!(shown(&line, true).starts_with('{'));
    }
}
