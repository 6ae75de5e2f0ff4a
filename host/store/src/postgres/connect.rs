//! Connections to PostgreSQL: how they are opened, how many there are, and their timeouts.

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use super::failure::failed;
use crate::{CONNECTIONS_MIN, PostgresLocation, StoreError};

/// Timeout for opening a connection, or for waiting for a free one.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a statement in the server.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a statement that waits for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which the server ends an idle transaction, such as that of a stopped process. Sending
/// a large snapshot may take this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same timeout while a candidate takes the lead, which takes only moments: shorter than a
/// lease.
const IDLE_TO_LEAD_TIMEOUT: &str = "2000";
/// Timeout for locks while a candidate takes the lead.
const LOCK_TO_LEAD_TIMEOUT: &str = "1000";
/// Client-side timeout of a call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(40);
/// A connection that was idle for longer is tested before it is used.
const TRUSTED_FOR: Duration = Duration::from_millis(250);
/// Timeout of that test.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that write: one transaction at a time holds the journal's head, while the next one
/// is prepared.
const WRITERS: u32 = 2;

/// The target of connections.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The location without the password, for messages.
    pub location: Arc<str>,
    /// The schema; a plain name that needs no quotes.
    pub schema: Arc<str>,
    options: PgConnectOptions,
    readers: u32,
    /// Whether the server recently did not answer in time.
    doubtful: Arc<AtomicBool>,
}

impl Target {
    /// Parses a location.
    pub(super) fn new(location: &PostgresLocation) -> Result<Self, StoreError> {
        check_schema(&location.schema)?;
        if location.connections_max < CONNECTIONS_MIN {
            return Err(StoreError::Setting {
                setting: "connections_max",
                reason: format!(
                    "{} is below the minimum of {CONNECTIONS_MIN}",
                    location.connections_max
                ),
            });
        }
        let options =
            PgConnectOptions::from_str(&location.url).map_err(|error| StoreError::Setting {
                setting: "url",
                reason: error.to_string(),
            })?;
        let shown = format!(
            "{}@{}:{}/{} (schema {})",
            options.get_username(),
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or(options.get_username()),
            location.schema
        );
        let named = options.get_application_name().map(str::to_owned);
        let options = options
            .application_name(&named.unwrap_or_else(|| format!("treadle {}", location.schema)))
            .options([
                ("search_path", location.schema.as_str()),
                ("lock_timeout", &millis(LOCK_TIMEOUT)),
                ("idle_in_transaction_session_timeout", &millis(IDLE_TIMEOUT)),
            ])
            .disable_statement_logging();
        Ok(Self {
            location: shown.into(),
            schema: location.schema.as_str().into(),
            options,
            readers: location.connections_max - WRITERS - 1,
            doubtful: Arc::default(),
        })
    }

    /// A separate connection, for work without a time limit.
    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        self.connect_as(self.options.clone()).await
    }

    /// A separate connection that the server drops soon after this process has died.
    pub(super) async fn connect_to_lead(&self) -> Result<PgConnection, StoreError> {
        let options = self.options.clone().options([
            ("tcp_keepalives_idle", "1"),
            ("tcp_keepalives_interval", "1"),
            ("tcp_keepalives_count", "2"),
            ("tcp_user_timeout", "3000"),
            ("statement_timeout", "5000"),
            ("lock_timeout", LOCK_TO_LEAD_TIMEOUT),
            ("idle_in_transaction_session_timeout", IDLE_TO_LEAD_TIMEOUT),
        ]);
        self.connect_as(options).await
    }

    async fn connect_as(&self, options: PgConnectOptions) -> Result<PgConnection, StoreError> {
        let connected = PgConnection::connect_with(&options);
        match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(failed(&self.location, error)),
            Err(_) => Err(self.late("connecting", CONNECT_TIMEOUT)),
        }
    }

    /// The pool of connections that write.
    pub(super) fn writers(&self) -> PgPool {
        let timeout = millis(STATEMENT_TIMEOUT);
        let options = self.options.clone();
        let options = options.options([("statement_timeout", timeout.as_str())]);
        self.pool(WRITERS).connect_lazy_with(options)
    }

    /// The pool of connections that read.
    pub(super) fn readers(&self) -> PgPool {
        let timeout = millis(STATEMENT_TIMEOUT);
        let options = self.options.clone().options([
            ("statement_timeout", timeout.as_str()),
            ("default_transaction_read_only", "on"),
        ]);
        self.pool(self.readers).connect_lazy_with(options)
    }

    fn pool(&self, connections_max: u32) -> PgPoolOptions {
        let doubtful = Arc::clone(&self.doubtful);
        PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(CONNECT_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > TRUSTED_FOR {
                        ping(connection).await?;
                    }
                    Ok(true)
                })
            })
            .after_release(move |connection, _| {
                let doubtful = Arc::clone(&doubtful);
                Box::pin(async move {
                    // The pool's own test has no timeout, and keeps the connection's permit
                    // meanwhile.
                    if doubtful.load(Ordering::Relaxed) {
                        ping(connection).await?;
                        doubtful.store(false, Ordering::Relaxed);
                    }
                    Ok(true)
                })
            })
    }

    /// Waits for a call, up to [`CALL_TIMEOUT`].
    pub(super) async fn call<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(sqlx::Error::PoolTimedOut)) => Err(self.why_no_connection().await),
            Ok(Err(error)) => Err(failed(&self.location, error)),
            Err(_) => Err(self.late(what, CALL_TIMEOUT)),
        }
    }

    /// A pool that can't connect only reports a timeout; another attempt shows the cause.
    async fn why_no_connection(&self) -> StoreError {
        match self.connect().await {
            Err(error) => error,
            Ok(_) => failed(&self.location, sqlx::Error::PoolTimedOut),
        }
    }

    fn late(&self, what: &'static str, after: Duration) -> StoreError {
        self.doubtful.store(true, Ordering::Relaxed);
        StoreError::TimedOut {
            location: self.location.to_string(),
            what,
            after_s: after.as_secs(),
        }
    }
}

async fn ping(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(PING_TIMEOUT, connection.ping())
        .await
        .map_err(late)?
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// The schema's name is inserted into statements, so only names that need no quotes are accepted.
fn check_schema(schema: &str) -> Result<(), StoreError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let sound = schema.chars().all(plain)
        && schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && schema.len() <= SCHEMA_BYTES_MAX
        && !schema.starts_with("pg_");
    if sound {
        return Ok(());
    }
    Err(StoreError::Setting {
        setting: "schema",
        reason: format!(
            "{schema:?} may contain only a-z, 0-9 and _, must not begin with a digit or pg_, and has at most {SCHEMA_BYTES_MAX} characters"
        ),
    })
}

/// PostgreSQL truncates longer names.
const SCHEMA_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, schema: &str, connections_max: u32) -> Result<Target, StoreError> {
        Target::new(&PostgresLocation {
            url: url.into(),
            schema: schema.into(),
            connections_max,
        })
    }

    #[test]
    fn no_password_is_shown() {
        let target = target("postgres://u:secret@h:1/d", "s", 9).unwrap();
        assert_eq!(&*target.location, "u@h:1/d (schema s)");
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (url, schema, connections, named) in [
            ("postgres://h/d", "Caps", 9, "`store.schema`"),
            ("postgres://h/d", "x; DROP", 9, "`store.schema`"),
            ("postgres://h/d", "", 9, "`store.schema`"),
            ("postgres://h/d", "s", 3, "`store.connections_max`"),
            ("nonsense", "s", 9, "`store.url`"),
        ] {
            let error = target(url, schema, connections).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
