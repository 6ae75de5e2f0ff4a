//! SQL by PostgreSQL's own client.

use super::super::BenchError;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Debian's folder of PostgreSQL's programs, by version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Runs SQL and gives what it printed.
pub(in crate::bench) async fn psql(url: &str, sql: &str) -> Result<String, BenchError> {
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
