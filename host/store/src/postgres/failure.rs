//! PostgreSQL's errors and their remedies.

use std::io::ErrorKind;

use crate::StoreError;

/// Remedies by SQLSTATE: full codes first, then classes.
const REMEDIES: [(&str, &str); 24] = [
    (
        "28",
        "correct the user and the password in `store.url`, or allow the user in pg_hba.conf",
    ),
    (
        "3D000",
        "create the database (createdb NAME), or correct its name in `store.url`",
    ),
    (
        "42501",
        "grant the missing right: GRANT CREATE ON DATABASE to create the schema, or make the user the schema's owner",
    ),
    (
        "53100",
        "free space on the disk of the database; no acknowledged write is lost, and writing resumes automatically",
    ),
    ("53200", "give the database server more memory"),
    (
        "53300",
        "raise max_connections of the server, or lower `store.connections_max` of the daemons",
    ),
    (
        "25006",
        "this server is read-only (a standby, or default_transaction_read_only): point `store.url` to the primary",
    ),
    (
        "25P03",
        "this process was stopped or starved in the middle of a transaction; the daemon retries",
    ),
    (
        "57014",
        "the statement took too long; check the load of the server and its locks (pg_stat_activity)",
    ),
    (
        "57P01",
        "the server is shutting down or an administrator ended the connection; the daemon retries",
    ),
    (
        "57P02",
        "the server is recovering from a crash; the daemon retries",
    ),
    ("57P03", "the server is starting up; the daemon retries"),
    (
        "55P03",
        "another transaction holds a lock for too long; find it in pg_stat_activity",
    ),
    ("40", "two transactions conflicted; try again"),
    (
        "42P01",
        "the schema lacks a table; run `treadle store migrate`, or restore the schema from a backup",
    ),
    (
        "42703",
        "the schema lacks a column; run `treadle store migrate`, or restore the schema from a backup",
    ),
    (
        "22021",
        "the database has another encoding than UTF8; recreate it with ENCODING 'UTF8'",
    ),
    (
        "22P05",
        "the database has another encoding than UTF8; recreate it with ENCODING 'UTF8'",
    ),
    (
        "22",
        "the row is not stored; send names and numbers that the database can hold",
    ),
    ("54", "the row is not stored; send shorter names"),
    (
        "58030",
        "the server's disk fails; check the server's log and its disk",
    ),
    (
        "XX",
        "the database is damaged; check the server's log and restore from a backup",
    ),
    ("08", "check the network; the daemon retries"),
    (
        "23",
        "the rows contradict those that are stored; check that no other daemon writes this schema",
    ),
];

/// The remedy for an error.
pub(super) fn remedy(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Database(inner) => {
            let code = inner.code().unwrap_or_default();
            let fits = |part: &str| code.starts_with(part);
            let found = REMEDIES.iter().find(|(part, _)| fits(part));
            found.map_or("check the server's log", |(_, remedy)| remedy)
        }
        sqlx::Error::Io(inner) => match inner.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                "start PostgreSQL, or correct host and port in `store.url`"
            }
            ErrorKind::TimedOut => {
                "the host does not answer; check host and port in `store.url` and the network"
            }
            _ => "the connection broke; check the server's log and the network",
        },
        sqlx::Error::Tls(_) => {
            "check `sslmode` and `sslrootcert` in `store.url` and the server's certificate"
        }
        sqlx::Error::PoolTimedOut => {
            "all connections of this daemon are in use; raise `store.connections_max`, or check the load of the server"
        }
        sqlx::Error::PoolClosed => "this store was closed",
        sqlx::Error::Configuration(_) => "correct `store.url`",
        _ => "check the server's log and that all daemons of this schema are of one build",
    }
}

/// Converts the error to the store's.
pub(super) fn failed(location: &str, source: sqlx::Error) -> StoreError {
    if let sqlx::Error::Database(inner) = &source
        && inner.is_foreign_key_violation()
    {
        // Steps have the only foreign key.
        return StoreError::Orphan;
    }
    StoreError::Postgres {
        location: location.to_owned(),
        remedy: remedy(&source),
        source,
    }
}

/// SQLSTATE classes of refused rows: an invalid value, a violated constraint, a program limit (an
/// index row that is too long).
const OF_ROWS: [&str; 3] = ["22", "23", "54"];

/// Whether the rows themselves are refused, so that retrying can't help.
pub(crate) fn refuses_rows(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(inner) => {
            let code = inner.code().unwrap_or_default();
            OF_ROWS.iter().any(|class| code.starts_with(class))
        }
        sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// Whether the connection is broken, and not only the statement failed.
pub(super) fn severed(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(inner) => {
            let code = inner.code().unwrap_or_default();
            code.starts_with("57P") || code.starts_with("08") || code.starts_with("25P03")
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let error = sqlx::Error::Io(ErrorKind::ConnectionRefused.into());
        assert!(remedy(&error).starts_with("start PostgreSQL"));
        assert!(severed(&error));
        let told = failed("host:1/db", error).to_string();
        assert!(told.contains("host:1/db") && told.contains("start PostgreSQL"));
    }
}
