//! A daemon in a separate process that a test can kill: the binary, or the test program itself,
//! turned into a daemon by its environment, so that no other binary must have been built.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use treadle_auth::first_token;
use treadle_config::{Config, Role};
use treadle_server::cluster::Member;
use treadle_server::start::Daemon;

use super::client::{Client, TIMEOUT};

/// Variable with the process's configuration, as JSON.
const CONFIG_VARIABLE: &str = "TREADLE_TEST_DAEMON_CONFIG";
/// Variable with the file for its URL once it listens.
const URL_VARIABLE: &str = "TREADLE_TEST_DAEMON_URL_FILE";

/// The configuration as JSON with its secrets, which serialization redacts.
fn written(config: &Config) -> String {
    let mut value = serde_json::to_value(config).expect("JSON");
    value["cluster"]["secret"] = config.cluster.secret.reveal().into();
    value["store"]["url"] = config.store.url.reveal().into();
    value["broker"]["url"] = config.broker.url.reveal().into();
    value.to_string()
}

/// The daemon. Dropping it kills it.
pub struct DaemonProcess {
    child: Child,
    /// A client of it.
    pub client: Client,
}

impl DaemonProcess {
    /// Starts the daemon as the test of this full name, which calls [`run_if_asked`].
    pub async fn start(test: &str, config: &Config, folder: &Path) -> Self {
        let url_file = folder.join("url");
        let _ = std::fs::remove_file(&url_file);
        let child = Command::new(std::env::current_exe().expect("a path of this program"))
            .args([test, "--exact", "--nocapture"])
            .env(CONFIG_VARIABLE, written(config))
            .env(URL_VARIABLE, &url_file)
            .stdout(Stdio::null())
            .spawn()
            .expect("the daemon's process starts");
        let mut process = Self {
            child,
            client: Client::new("http://127.0.0.1:1"),
        };
        let url = process.url(&url_file).await;
        let client = Client::trusting(url, config.tls.trust());
        process.client = match first_token::file_of(&config.store).map(std::fs::read_to_string) {
            Some(Ok(token)) => client.with_token(token.trim()),
            _ => client,
        };
        process
    }

    /// Starts `treadle serve` with these arguments on any free port.
    pub async fn serve(arguments: &[&str]) -> Self {
        Self::run("serve", "127.0.0.1:0", arguments).await
    }

    /// Starts a command of `treadle` that serves, at an address.
    pub async fn run(command: &str, listen: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .args([command, "--json", "--listen", listen])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let output = child.stdout.take().expect("its output");
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(TIMEOUT, line).await;
        let line = line.expect("it listens in time").expect("no panic");
        let said: serde_json::Value =
            serde_json::from_str(&line.expect("a line")).expect("one line of JSON");
        let url = said["url"].as_str().expect("its URL");
        Self {
            child,
            client: Client::new(url),
        }
    }

    /// Stops it (SIGTERM); returns whether it exited successfully.
    pub fn terminate(mut self) -> bool {
        let asked = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(asked.expect("kill runs").success());
        self.child.wait().expect("it is gone").success()
    }

    async fn url(&mut self, file: &Path) -> String {
        let started = Instant::now();
        loop {
            match std::fs::read_to_string(file) {
                Ok(url) if url.ends_with('\n') => return url.trim_end().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
            let ended = self.child.try_wait().expect("its state");
            assert!(ended.is_none(), "the daemon ended early: {ended:?}");
            assert!(started.elapsed() < TIMEOUT, "the daemon does not listen");
        }
    }

    /// Suspends the process (SIGSTOP).
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes a suspended process (SIGCONT).
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Kills it at once (SIGKILL) and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is gone");
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The built binary, which lies beside the folder of this program.
pub fn binary() -> PathBuf {
    let program = std::env::current_exe().expect("a path of this program");
    let folder = program.parent().and_then(Path::parent);
    let binary = folder.expect("a build folder").join("treadle");
    assert!(
        binary.exists(),
        "{} is missing; run `cargo build --package treadle`",
        binary.display()
    );
    binary
}

/// Serves for ever if this process was started to be a daemon; returns at once otherwise.
pub fn run_if_asked() {
    let (Ok(config), Ok(url_file)) = (std::env::var(CONFIG_VARIABLE), std::env::var(URL_VARIABLE))
    else {
        return;
    };
    let config: Config = serde_json::from_str(&config).expect("a configuration");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let url = if config.cluster.role == Role::Single {
            let daemon = Daemon::start(&config).await.expect("the daemon starts");
            let url = daemon.url();
            std::mem::forget(daemon);
            url
        } else {
            let member = Member::start(&config).await.expect("the daemon starts");
            let url = member.url();
            std::mem::forget(member);
            url
        };
        std::fs::write(url_file, format!("{url}\n")).expect("the URL is written");
        std::future::pending::<()>().await;
    });
}
