//! PostgreSQL and RabbitMQ for tests: those that all tests share, found by their variables, and
//! private ones, which one test may kill. `scripts/services.sh` starts both kinds.

mod programs;
mod schema;
mod servers;

pub use programs::{Psql, postgres_program};
pub use schema::Schema;
pub use servers::Servers;

/// Has the URL of a PostgreSQL server in which tests may make schemas and databases.
pub const POSTGRES_VARIABLE: &str = "TREADLE_TEST_POSTGRES_URL";
/// Has the URL of a RabbitMQ server in which tests may make exchanges and queues.
pub const AMQP_VARIABLE: &str = "TREADLE_TEST_AMQP_URL";
/// If it is set, tests which need a server pass without doing anything.
pub const SKIP_VARIABLE: &str = "TREADLE_SKIP_SERVICE_TESTS";

/// A server that tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// PostgreSQL.
    Postgres,
    /// RabbitMQ.
    Rabbitmq,
}

impl Service {
    /// Its name for `scripts/services.sh`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Rabbitmq => "rabbitmq",
        }
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => POSTGRES_VARIABLE,
            Self::Rabbitmq => AMQP_VARIABLE,
        }
    }
}

/// Why a server is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// A program did not run or failed.
    #[error("{program} failed: {cause}; scripts/setup.sh test installs what it needs")]
    Program {
        /// The program and its arguments.
        program: String,
        /// Its output, or why it does not run.
        cause: String,
    },
}

/// Whether tests that need a server pass without doing anything.
pub fn are_skipped() -> bool {
    std::env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// The URL of the server that all tests share.
///
/// # Panics
/// If no server was started: a test must not pass without running.
pub fn url(service: Service) -> String {
    let variable = service.variable();
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!(
            "{variable} is not set; run eval \"$(scripts/services.sh start)\" before the tests, \
             or set {SKIP_VARIABLE}=1 to leave the tests of servers out"
        ),
    }
}

/// The URL of the database that all tests share; see [`url`].
pub fn postgres_url() -> String {
    url(Service::Postgres)
}

/// The URL of the broker that all tests share; see [`url`].
pub fn amqp_url() -> String {
    url(Service::Rabbitmq)
}

/// A unique name for a schema, a database or an exchange.
pub fn fresh_name(start: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let since = since.map_or(0, |since| since.as_micros());
    format!("{start}_{}_{since}_{number}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let (one, other) = (fresh_name("t"), fresh_name("t"));
        assert_ne!(one, other);
        assert!(one.starts_with("t_"));
    }
}
