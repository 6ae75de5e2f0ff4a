//! PostgreSQL's own programs, to check data independently of treadle.

use std::path::PathBuf;
use std::process::Command;

use super::ServicesError;

/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Path of a program of PostgreSQL (`psql`, `pg_dump`, `pgbench`): the newest version of Debian's,
/// else whatever the search path has.
pub fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            let path = version.path().join("bin").join(name);
            path.exists().then_some((number, path))
        })
        .collect();
    found.sort();
    found.pop().map_or_else(|| name.into(), |(_, path)| path)
}

/// `psql` on one database.
#[derive(Clone, Debug)]
pub struct Psql {
    url: String,
}

impl Psql {
    /// On the database at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into() }
    }

    /// Runs SQL and gives what it printed: a line per row, columns apart by tabs.
    ///
    /// # Errors
    /// If psql does not run or the SQL fails; the text is psql's.
    pub fn run(&self, sql: &str) -> Result<String, ServicesError> {
        let mut command = Command::new(postgres_program("psql"));
        command
            .args(["--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-qAt", "-F", "\t"])
            .args(["-d", &self.url, "-c", sql]);
        output_of(command)
    }

    /// The rows of a query, column by column.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn rows(&self, sql: &str) -> Result<Vec<Vec<String>>, ServicesError> {
        let text = self.run(sql)?;
        let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
        Ok(text.lines().map(cells).collect())
    }
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn output_of(mut command: Command) -> Result<String, ServicesError> {
    let program = || format!("{command:?}");
    let failed = |program: String, cause: String| ServicesError::Program { program, cause };
    let name = program();
    let output = command
        .output()
        .map_err(|error| failed(name.clone(), error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(name, said));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
