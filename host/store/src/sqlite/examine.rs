//! Checks of a SQLite file.

use std::path::Path;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnectOptions;

use super::{connect, schema};
use crate::StoreError;
use crate::examine::{Finding, Grade};

/// Larger files are not checked completely.
const CHECKED_BYTES_MAX: u64 = 1 << 30;

/// Runs all checks. A missing file is not created.
pub(crate) async fn examine(path: &Path) -> Vec<Finding> {
    let shown = path.display().to_string();
    let Ok(file) = std::fs::metadata(path) else {
        return vec![folder(path)];
    };
    let mut findings = vec![if file.permissions().readonly() {
        let remedy = "make the file writable for the user of the daemon";
        Finding::of("file", Grade::Fail, format!("{shown} is read-only"), remedy)
    } else {
        Finding::ok("file", format!("{shown}, {} MiB", file.len() >> 20))
    }];
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = match connect(&options, &shown).await {
        Ok(connection) => connection,
        Err(error) => {
            findings.push(Finding::failed("connection", &error));
            return findings;
        }
    };
    findings.push(match schema::status(&mut connection).await {
        Ok(status) => Finding::of_schema(&status, &shown),
        Err(error) => Finding::failed("schema", &error),
    });
    if file.len() <= CHECKED_BYTES_MAX {
        let checked = sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)");
        findings.push(match checked.fetch_one(&mut connection).await {
            Ok(said) if said == "ok" => Finding::ok("integrity", "the file is sound"),
            Ok(said) => Finding::of("integrity", Grade::Fail, said, "restore from a backup"),
            Err(error) => Finding::failed("integrity", &StoreError::Database(error)),
        });
    }
    let _ = connection.close().await;
    findings
}

/// Checks the folder that the file would be created in.
fn folder(path: &Path) -> Finding {
    // The ancestors of a relative path are those of the current folder.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().skip(1).find(|folder| folder.is_dir());
    let finding = format!("{} is not there yet and will be created", path.display());
    let writable = there.and_then(|folder| std::fs::metadata(folder).ok());
    match writable {
        Some(folder) if !folder.permissions().readonly() => Finding::ok("file", finding),
        _ => Finding::of(
            "file",
            Grade::Fail,
            format!("{} can't be created", path.display()),
            "correct `store.path`, or make its folder writable for the user of the daemon",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_folder_will_be_created_is_fine() {
        for path in ["no-such-folder/x.db", "x.db", "/tmp/no/such/folder/x.db"] {
            let found = folder(Path::new(path));
            assert_eq!(found.grade, Grade::Ok, "{found:?}");
        }
    }
}
