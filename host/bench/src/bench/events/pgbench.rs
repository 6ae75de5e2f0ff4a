//! pgbench on the same rows: what PostgreSQL does here at best.

use super::super::BenchError;
use super::super::folder::TemporaryFolder;
use super::rows::row;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// pgbench with its script and its table.
pub(super) struct Reference {
    url: String,
    script: PathBuf,
    table: String,
    group: usize,
    /// Holds the script.
    _folder: TemporaryFolder,
}

impl Reference {
    /// Makes a table like the store's, and a script that fills it.
    pub(super) async fn prepare(url: &str, schema: &str, group: usize) -> Result<Self, BenchError> {
        let table = format!("{schema}_reference.events");
        let make = format!(
            "CREATE SCHEMA {schema}_reference; \
             CREATE TABLE {table} (LIKE {schema}.events INCLUDING ALL)"
        );
        psql(url, &make).await?;
        let folder = TemporaryFolder::new()?;
        let script = folder.path().join("insert.sql");
        std::fs::write(&script, insert(&table, group))?;
        Ok(Self {
            url: url.to_owned(),
            script,
            table,
            group,
            _folder: folder,
        })
    }

    /// Events a second.
    pub(super) async fn run(&self, time: Duration) -> Result<f64, BenchError> {
        let ask = format!("SELECT coalesce(max(seq), 0) FROM {}", self.table);
        let last = psql(&self.url, &ask).await?;
        let seconds = time.as_secs().max(1).to_string();
        let first = format!("seq={}", last.trim());
        let mut command = Command::new(program("pgbench"));
        command
            .args([
                "--no-vacuum",
                "--protocol=prepared",
                "--client=1",
                "--jobs=1",
            ])
            .args(["--time", &seconds, "--define", &first, "--file"])
            .arg(&self.script)
            .arg(&self.url);
        let said = output_of("pgbench", command).await?;
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = rate.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        let rate = rate.ok_or_else(|| BenchError::Ended(format!("pgbench said: {said}")))?;
        Ok(rate * self.group as f64)
    }
}

/// One prepared statement with all rows in it; only the number of the first is sent.
fn insert(table: &str, group: usize) -> String {
    let mut sql = format!(
        "INSERT INTO {table} (seq, at_us, kind, job, program, body) \
         SELECT :seq::bigint + n, at_us, kind, job, program, body FROM (VALUES "
    );
    for number in 1..=group as u64 {
        let row = row(number);
        let comma = if number == 1 { "" } else { ", " };
        // Writing to a string can't fail. No text of a row has a quote or a colon before a letter.
        let _ = write!(
            sql,
            "{comma}({number}, {}::bigint, '{}', '{}', '{}', E'{}')",
            row.at_us,
            row.kind,
            row.job,
            row.program.as_deref().unwrap_or_default(),
            // pgbench takes :name for a variable, in texts too.
            row.body.replace(':', "\\x3a"),
        );
    }
    let _ = write!(
        sql,
        ") AS rows (n, at_us, kind, job, program, body);\n\\set seq :seq + {group}\n"
    );
    sql
}

/// Runs SQL and gives what it printed.
pub(super) async fn psql(url: &str, sql: &str) -> Result<String, BenchError> {
    let mut command = Command::new(program("psql"));
    command.args([
        "--no-psqlrc",
        "-v",
        "ON_ERROR_STOP=1",
        "-qAt",
        "-d",
        url,
        "-c",
        sql,
    ]);
    output_of("psql", command).await
}

async fn output_of(what: &'static str, mut command: Command) -> Result<String, BenchError> {
    let failed = |cause: String| BenchError::Process {
        what: what.to_owned(),
        cause,
        command: what.to_owned(),
    };
    let output = command.output().await;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(said));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program of PostgreSQL: the newest version of Debian's, else that of the search path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|version| version.path())
        .filter(|path| path.join("bin").join(name).exists())
        .max_by_key(|path| number(path));
    newest.map_or_else(|| name.into(), |path| path.join("bin").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_one_variable_and_all_rows() {
        let script = insert("t", 3);
        assert_eq!(script.matches(":seq").count(), 2, "{script}");
        assert_eq!(script.matches("E'{").count(), 3);
        assert!(!script.contains("\":"), "a colon in a body");
        assert!(script.ends_with("\\set seq :seq + 3\n"));
    }
}
