//! A database that proves itself by a certificate (`sslmode=verify-full`).

use treadle_server::start::Daemon;
use treadle_tests::support::certificates::Certificates;
use treadle_tests::support::fixture::config;
use treadle_tests::support::services::{Psql, Servers, Service, are_skipped};

/// Writes a file into the server's data folder, as the server's user and readable only by it.
fn give(psql: &Psql, name: &str, text: &str) {
    let copied = psql.run(&format!(
        "COPY (SELECT '{}') TO PROGRAM 'umask 077; base64 -d > {name}'",
        base64(text)
    ));
    copied.expect("a file of the server");
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The error of a daemon that starts with the database at a URL; `None` if it starts.
async fn started(url: String) -> Option<String> {
    let mut config = config();
    config.store.url = url.into();
    match Daemon::start(&config).await {
        Ok(daemon) => {
            daemon.stop().await;
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_asks_its_database_for_a_certificate() {
    if are_skipped() {
        return;
    }
    let servers = Servers::start(&[Service::Postgres]).expect("a server");
    let url = servers.url(Service::Postgres).expect("its URL");
    let psql = servers.psql().expect("psql");
    let (own, other) = (Certificates::new(), Certificates::new());
    let at = |certificates: &Certificates, host: &str| {
        let ca = certificates.file("ca.pem");
        let url = url.replace("127.0.0.1", host);
        format!("{url}?sslmode=verify-full&sslrootcert={}", ca.display())
    };
    // There is no fallback to a server without TLS.
    let plain = started(at(&own, "127.0.0.1")).await;
    assert!(plain.is_some_and(|said| said.contains("sslmode")));
    let prove_with = |certificates: &Certificates| {
        for (name, file) in [("server.crt", "cert.pem"), ("server.key", "key.pem")] {
            let text = std::fs::read_to_string(certificates.file(file)).expect("a file");
            give(&psql, name, &text);
        }
    };
    prove_with(&own);
    psql.run("ALTER SYSTEM SET ssl = on").expect("a setting");
    servers.restart(Service::Postgres).expect("it starts again");
    assert_eq!(started(at(&own, "127.0.0.1")).await, None);
    assert_eq!(started(at(&own, "localhost")).await, None);
    // Another authority, and a certificate for another server.
    let refused = async |certificates: &Certificates| {
        let said = started(at(certificates, "127.0.0.1")).await;
        let said = said.expect("it is not trusted");
        assert!(said.contains("invalid peer certificate"), "{said}");
    };
    refused(&other).await;
    let elsewhere = Certificates::of(&["elsewhere.example"]);
    prove_with(&elsewhere);
    servers.restart(Service::Postgres).expect("it starts again");
    refused(&elsewhere).await;
}
