//! The admin token beside a store is only sent to the daemon of that store.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::response::{IntoResponse, Json};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use treadle_config::{Config, Role};
use treadle_server::cluster::Member;
use treadle_server::start::Daemon;

use crate::cluster::{TIMEOUT, binary, until};

/// A folder with the store of a daemon.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        let path = folder.path().join(".treadle/treadle.db");
        config.store.path = path.display().to_string();
        config.server.listen.set_port(0);
        Self { folder, config }
    }

    /// Runs a command in the folder, without a token.
    pub(crate) async fn run(&self, url: &str, line: &str) -> Ended {
        self.run_within("", url, line).await
    }

    /// Runs a command in a subfolder.
    pub(crate) async fn run_within(&self, folder: &str, url: &str, line: &str) -> Ended {
        let mut command = binary(url, line);
        let command = command
            .env_remove("TREADLE_TOKEN")
            .current_dir(self.folder.path().join(folder));
        let ended = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = ended.expect("it ends").expect("it starts");
        Ended {
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    fn secret(&self) -> String {
        let file = self.folder.path().join(".treadle/admin-token");
        let secret = std::fs::read_to_string(file).expect("the daemon has left it");
        secret.trim().to_owned()
    }
}

/// Everything that a server on a port has received.
type Received = Arc<Mutex<String>>;

/// Listens on a daemon's port, returns the given proof, and requires a token for everything else.
async fn impostor(proof: Value) -> (String, Received) {
    let seen = Received::default();
    let heard = seen.clone();
    let answer = move |request: Request| {
        let (path, headers) = (request.uri().to_string(), request.headers());
        let line = format!("{path} {headers:?}\n");
        heard.lock().expect("no thread panicked").push_str(&line);
        let is_challenge = path.starts_with("/api/v1/identity");
        let answer = if is_challenge {
            (StatusCode::OK, Json(json!({"proof": proof})))
        } else {
            let error = json!({"error": {"code": "token_missing", "message": "a token, please"}});
            (StatusCode::UNAUTHORIZED, Json(error))
        };
        async move { answer.into_response() }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async { axum::serve(listener, app).await });
    (url, seen)
}

/// Forwards all bytes to an address.
async fn relay(to: std::net::SocketAddr) -> (String, Received) {
    let seen = Received::default();
    let heard = seen.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let daemon = TcpStream::connect(to).await.expect("the daemon listens");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_daemon, mut to_daemon) = daemon.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_daemon, &mut to_client).await });
            let heard = heard.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 4_096];
                while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                    let text = String::from_utf8_lossy(&bytes[..count]);
                    heard.lock().expect("no thread panicked").push_str(&text);
                    to_daemon.write_all(&bytes[..count]).await.expect("sent");
                }
            });
        }
    });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_goes_to_its_own_daemon() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let by_name = format!("http://localhost:{}", daemon.addr.port());
    for url in [daemon.url(), by_name] {
        let ended = home.run(&url, "access tokens").await;
        assert!(ended.success, "{}", ended.stderr);
        assert!(ended.stdout.contains("first admin"), "{}", ended.stdout);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_impostor_gets_the_token() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let secret = home.secret();
    for proof in [json!("0".repeat(64)), json!(true), Value::Null] {
        let (url, seen) = impostor(proof.clone()).await;
        for line in ["access tokens", "events tail --follow"] {
            let ended = home.run(&url, line).await;
            assert!(!ended.success, "{}", ended.stdout);
            assert!(ended.stderr.contains("admin-token"), "{}", ended.stderr);
            assert!(ended.stderr.contains("--token"), "{}", ended.stderr);
        }
        let seen = seen.lock().expect("no thread panicked").clone();
        assert!(seen.contains("/api/v1/identity"), "{seen}");
        assert!(!seen.contains(&secret), "{seen}");
        assert!(!seen.contains("authorization"), "{seen}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_intermediary_gets_the_token() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let (url, seen) = relay(daemon.addr).await;
    let ended = home.run(&url, "access tokens").await;
    assert!(!ended.success, "{}", ended.stdout);
    assert!(ended.stderr.contains("does not prove"), "{}", ended.stderr);
    let seen = seen.lock().expect("no thread panicked").clone();
    assert!(seen.contains("/api/v1/identity"), "{seen}");
    assert!(!seen.contains("tr_"), "{seen}");
    // The token is sent if the user requests it.
    let line = format!("access tokens --token {}", home.secret());
    assert!(home.run(&url, &line).await.success);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_daemon_is_asked_without_the_token() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    daemon.stop().await;
    let other = Home::new();
    let daemon = Daemon::start(&other.config).await.expect("it starts");
    let url = daemon.url();
    let ended = home.run(&url, "workers").await;
    assert!(ended.success, "{}", ended.stderr);
    let ended = home.run(&url, "access tokens").await;
    assert!(!ended.success, "{}", ended.stdout);
    for part in ["was not sent", "--token", "[token_missing]"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_daemon_of_a_cluster_proves_its_own_address() {
    let mut home = Home::new();
    home.config.cluster.role = Role::All;
    home.config.cluster.secret = "a secret of these tests".into();
    let scheduler = Member::start(&home.config).await.expect("it starts");
    home.config.cluster.role = Role::Gateway;
    home.config.cluster.name = "gateway".to_owned();
    let gateway = Member::start(&home.config).await.expect("it starts");
    for member in [&scheduler, &gateway] {
        let url = member.url();
        // Waits until a leader exists and the gateway has read the token that the leader created.
        until(|| async { home.run(&url, "access tokens").await.success.then_some(()) }).await;
    }
    gateway.stop().await;
    scheduler.stop().await;
}

#[tokio::test]
async fn a_daemon_with_tls_is_asked_by_those_who_trust_it() {
    let mut home = Home::new();
    let file = |name: &str| home.folder.path().join(name).display().to_string();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a pair");
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    (home.config.tls.cert, home.config.tls.key) = (cert.clone(), key);
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let url = daemon.url();
    // The token beside the store is sent: the proof is bound to this connection.
    let trusting = home.run(&url, &format!("access tokens --ca {cert}")).await;
    assert!(trusting.success, "{}", trusting.stderr);
    assert!(
        trusting.stdout.contains("first admin"),
        "{}",
        trusting.stdout
    );
    let other = home.run(&url, "access tokens").await;
    assert!(
        !other.success && other.stderr.contains("tls.ca"),
        "{}",
        other.stderr
    );
    let plain = url.replace("https://", "http://");
    assert!(!home.run(&plain, "access tokens").await.success);
    daemon.stop().await;
}
