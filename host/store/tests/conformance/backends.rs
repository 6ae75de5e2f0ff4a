//! The stores that the suite runs on: in memory, in a file, in PostgreSQL, and one that is reopened
//! for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use treadle_store::{Location, PostgresLocation, Store, open};

/// Environment variable with the URL of the tests' server.
const URL: &str = "TREADLE_TEST_POSTGRES_URL";

/// A location for one test, removed afterwards.
pub(crate) struct Scratch {
    pub(crate) at: Location,
    _folder: Option<tempfile::TempDir>,
}

/// A file in a folder that does not exist yet.
pub(crate) fn file() -> Scratch {
    let folder = tempfile::tempdir().unwrap();
    Scratch {
        at: Location::File(folder.path().join("new/folder/treadle.db")),
        _folder: Some(folder),
    }
}

/// The URL of the tests' server; `None` if tests with servers are skipped.
pub(crate) fn server() -> Option<String> {
    match std::env::var(URL) {
        Ok(url) => Some(url),
        Err(_) if std::env::var("TREADLE_SKIP_SERVICE_TESTS").is_ok_and(|skip| skip == "1") => None,
        Err(error) => panic!(
            "{URL}: {error}; start the servers of the tests with `scripts/services.sh start`, or set TREADLE_SKIP_SERVICE_TESTS=1"
        ),
    }
}

/// The server of a URL as `host:port`.
pub(crate) fn address(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    let rest = rest.split(['/', '?']).next().unwrap();
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:5432")
    }
}

/// A separate schema.
pub(crate) fn schema() -> Option<Scratch> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("conformance_{}_{count}", std::process::id());
    Some(Scratch {
        at: Location::Postgres(PostgresLocation {
            schema,
            connections_max: 6,
            ..PostgresLocation::new(server()?)
        }),
        _folder: None,
    })
}

/// Runs statements outside of the stores, on a separate runtime.
pub(crate) fn behind(url: &str, sql: String) {
    let url = url.to_owned();
    let run = async move {
        use sqlx::Connection;
        let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
        let sql = sqlx::AssertSqlSafe(sql);
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    std::thread::spawn(move || runtime().block_on(run))
        .join()
        .unwrap();
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Location::Postgres(at) = &self.at {
            let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", at.schema);
            behind(&at.url, drop);
        }
    }
}

impl Scratch {
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        open(&self.at).await.unwrap()
    }

    pub(crate) fn postgres(&self) -> &PostgresLocation {
        match &self.at {
            Location::Postgres(at) => at,
            other => panic!("{other:?}"),
        }
    }
}
