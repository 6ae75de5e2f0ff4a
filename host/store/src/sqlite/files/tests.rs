//! Tests that changes to a database's files by other programs are detected.

use std::path::{Path, PathBuf};

use super::*;
use crate::sql::{Engine, Statement, Work};
use crate::sqlite::{How, SqliteEngine};

const HOW: How = How {
    migrate: true,
    create: true,
};

/// A store in a temporary folder, with some megabytes in it.
struct Scratch {
    folder: tempfile::TempDir,
    engine: SqliteEngine,
}

impl Scratch {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = SqliteEngine::open_file(&folder.path().join("in/a.db"), HOW)
            .await
            .unwrap();
        let scratch = Self { folder, engine };
        for n in 1..=30 {
            scratch.write(n).await.unwrap();
        }
        scratch
    }

    async fn write(&self, n: u64) -> Result<(), StoreError> {
        let mut work = self.engine.begin().await?;
        let body = "x".repeat(100_000);
        let add = "INSERT INTO events (seq, at_us, kind, job, body) VALUES ($1, 1, 'k', 'j', $2)";
        work.execute(Statement::new(add).number(n).text(&body))
            .await?;
        let moved = Statement::new("UPDATE journal_head SET last_seq = $1").number(n);
        work.execute(moved).await?;
        work.commit().await
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("in/a.db{ending}"))
    }

    fn files(&self) -> &Arc<Files> {
        self.engine.files.as_ref().unwrap()
    }

    /// Changes the database from another process.
    async fn outside(&self, sql: &'static str) {
        let options = SqliteConnectOptions::new().filename(self.path(""));
        let mut other = options.connect().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
        other.close().await.unwrap();
    }

    async fn other(&self) -> PathBuf {
        let path = self.folder.path().join("other.db");
        let other = SqliteEngine::open_file(&path, HOW).await.unwrap();
        other.close().await;
        path
    }
}

fn cut(path: &Path, bytes: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
    // Closing it would end SQLite's locks, as this is the same process.
    std::mem::forget(file);
}

/// Overwrites a file, without closing it in this process.
fn write_over(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    std::mem::forget(file);
}

#[tokio::test]
async fn a_deleted_or_replaced_file_is_detected_before_anything_is_acknowledged() {
    for what in ["", "-wal", "-shm"] {
        for is_replaced in [false, true] {
            let scratch = Scratch::new().await;
            let path = scratch.path(what);
            if is_replaced {
                let other = scratch.other().await;
                std::fs::rename(other, &path).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
            let error = scratch.write(31).await.unwrap_err();
            assert!(matches!(error, StoreError::Lost { .. }), "{what}: {error}");
            assert!(
                error.to_string().contains(&format!("a.db{what}")),
                "{error}"
            );
            let read = scratch.engine.read(Statement::new(LAST)).await;
            assert!(matches!(read, Err(StoreError::Lost { .. })), "{what}");
            assert_eq!(path.exists(), is_replaced, "it is not made again");
        }
    }
}

#[tokio::test]
async fn a_moved_folder_is_detected() {
    let scratch = Scratch::new().await;
    let moved = scratch.folder.path().join("elsewhere");
    std::fs::rename(scratch.folder.path().join("in"), moved).unwrap();
    let error = scratch.write(31).await.unwrap_err();
    assert!(
        error.to_string().contains("was deleted or moved"),
        "{error}"
    );
    assert!(!scratch.folder.path().join("in").exists());
}

#[tokio::test]
async fn a_change_during_a_transaction_is_detected_at_its_end() {
    let scratch = Scratch::new().await;
    let mut work = scratch.engine.begin().await.unwrap();
    let moved = Statement::new("UPDATE journal_head SET last_seq = 31");
    work.execute(moved).await.unwrap();
    std::fs::remove_file(scratch.path("")).unwrap();
    let error = work.commit().await.unwrap_err();
    assert!(matches!(error, StoreError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn a_truncated_or_overwritten_file_is_detected() {
    let whole = "PRAGMA wal_checkpoint(TRUNCATE)";
    for (case, expected) in [("cut", "truncated|damaged"), ("empty", "cut to 0 bytes")] {
        let scratch = Scratch::new().await;
        scratch.outside(whole).await;
        scratch.files().look_closely().await.unwrap();
        cut(&scratch.path(""), if case == "cut" { 8 * 4_096 } else { 0 });
        let found = scratch.files().look_closely().await.unwrap_err();
        let (Difference::Lost(why) | Difference::Damaged(why)) = found else {
            panic!("{case}: {found:?}");
        };
        assert!(expected.split('|').any(|part| why.contains(part)), "{why}");
    }
    let scratch = Scratch::new().await;
    scratch.outside(whole).await;
    let other = std::fs::read(scratch.other().await).unwrap();
    write_over(&scratch.path(""), &other);
    let found = scratch.files().look_closely().await.unwrap_err();
    let is_noticed = matches!(found, Difference::Lost(_) | Difference::Damaged(_));
    assert!(is_noticed, "{found:?}");
}

#[tokio::test]
async fn an_older_copy_of_the_same_store_is_noticed() {
    let scratch = Scratch::new().await;
    scratch.outside("PRAGMA wal_checkpoint(TRUNCATE)").await;
    let copy = std::fs::read(scratch.path("")).unwrap();
    scratch.write(31).await.unwrap();
    scratch.outside("PRAGMA wal_checkpoint(TRUNCATE)").await;
    scratch.files().look_closely().await.unwrap();
    write_over(&scratch.path(""), &copy);
    let found = scratch.files().look_closely().await.unwrap_err();
    let Difference::Lost(why) = found else {
        panic!("{found:?}");
    };
    assert!(why.contains("ends at event 30"), "{why}");
}

#[tokio::test]
async fn a_write_ahead_log_that_was_cut_is_noticed() {
    let scratch = Scratch::new().await;
    cut(&scratch.path("-wal"), 0);
    let found = scratch.files().look_closely().await.unwrap_err();
    let is_noticed = matches!(found, Difference::Lost(_) | Difference::Damaged(_));
    assert!(is_noticed, "{found:?}");
}

#[tokio::test]
async fn maintenance_by_operators_is_not_a_loss() {
    let scratch = Scratch::new().await;
    for sql in [
        "DELETE FROM events WHERE seq > 3; VACUUM",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "CREATE TABLE mine (x); DROP TABLE mine",
    ] {
        scratch.outside(sql).await;
        scratch.files().look_closely().await.unwrap();
        scratch.write(31).await.unwrap();
        scratch.outside("DELETE FROM events WHERE seq = 31").await;
        scratch.files().look_closely().await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_closed_is_not_lost() {
    let scratch = Scratch::new().await;
    let lost = scratch.engine.conditions.lost();
    scratch.engine.close().await;
    assert!(!scratch.path("-wal").exists(), "SQLite removes it");
    assert!(lost.borrow().is_none());
}
