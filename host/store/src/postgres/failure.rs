//! PostgreSQL's errors, and what to do about them.

use std::io::ErrorKind;

use crate::StoreError;

/// What to do, by SQLSTATE. The whole code first, then its class.
const REMEDIES: [(&str, &str); 24] = [
    (
        "28",
        "correct the user and the password in `store.url`, or let them in by pg_hba.conf",
    ),
    (
        "3D000",
        "create the database (createdb NAME), or correct its name in `store.url`",
    ),
    (
        "42501",
        "grant the user what it lacks: GRANT CREATE ON DATABASE to create the schema, or make it the schema's owner",
    ),
    (
        "53100",
        "free space on the disk of the database; nothing that was acknowledged is lost, and writing resumes automatically",
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
        "this process was stopped or starved in the middle of a transaction; it is tried again",
    ),
    (
        "57014",
        "the statement took too long; check the load of the server and its locks (pg_stat_activity)",
    ),
    (
        "57P01",
        "the server is shutting down or an administrator ended the connection; it is tried again",
    ),
    (
        "57P02",
        "the server crashed and recovers; it is tried again",
    ),
    ("57P03", "the server is starting up; it is tried again"),
    (
        "55P03",
        "another transaction holds a lock for too long; look for it in pg_stat_activity",
    ),
    ("40", "two transactions were in each other's way; try again"),
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
        "the row is left out; send names and numbers that the database can hold",
    ),
    ("54", "the row is left out; send shorter names"),
    (
        "58030",
        "the server's disk fails; check the server's log and its disk",
    ),
    (
        "XX",
        "the database is damaged; check the server's log and restore from a backup",
    ),
    ("08", "check the network; it is tried again"),
    (
        "23",
        "the rows contradict those that are stored; check that no other daemon writes this schema",
    ),
];

/// What to do about an error.
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

/// The error as the store's.
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

/// Classes of SQLSTATE for refused rows: a value is wrong, a constraint does not hold, a limit of
/// the program is exceeded (a row of an index that is too long).
const OF_ROWS: [&str; 3] = ["22", "23", "54"];

/// Whether the rows are refused, and not the moment.
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

/// Whether the connection is gone for good, and not just the statement.
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
