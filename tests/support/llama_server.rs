//! A real engine: llama.cpp's server with a tiny model, run by the recipes in `tests/engines/`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::client::{Client, TIMEOUT};
use super::policy::root;

/// Set it to skip these tests.
const SKIP_VARIABLE: &str = "TREADLE_SKIP_ENGINE_TESTS";
/// Another Python with the packages.
const PYTHON_VARIABLE: &str = "TREADLE_TEST_PYTHON";

/// The Python that has the engine; `None` if these tests are skipped.
pub fn python() -> Option<PathBuf> {
    if std::env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty()) {
        eprintln!("SKIPPED: {SKIP_VARIABLE} is set, so nothing was tested against a real engine");
        return None;
    }
    let python = std::env::var_os(PYTHON_VARIABLE)
        .map_or_else(|| root().join(".treadle/venv/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "{} is missing: run `scripts/setup.sh test`, name another Python in {PYTHON_VARIABLE}, \
         or set {SKIP_VARIABLE}=1 to leave the tests against a real engine out",
        python.display()
    );
    Some(python)
}

/// Writes the tiny model into a folder.
pub fn tiny_model(python: &Path, folder: &Path) -> PathBuf {
    let file = folder.join("tiny.gguf");
    let status = Command::new(python)
        .arg(root().join("tests/engines/tiny_model.py"))
        .arg(&file)
        .status();
    assert!(
        status.expect("Python runs").success(),
        "no model was written"
    );
    file
}

/// A server. Dropping it stops it.
pub struct LlamaServer {
    child: Child,
    url: String,
    /// A client of the server itself.
    pub client: Client,
}

impl LlamaServer {
    /// Starts a server with a number of slots and tokens of context in each.
    pub async fn start(python: &Path, model: &Path, slots: u32, slot_tokens: u32) -> Self {
        Self::run(python, model, (slots, slot_tokens), None).await
    }

    /// Starts a server whose slots can be saved to a folder and restored from there.
    pub async fn saving(
        python: &Path,
        model: &Path,
        (slots, slot_tokens): (u32, u32),
        folder: &Path,
    ) -> Self {
        Self::run(python, model, (slots, slot_tokens), Some(folder)).await
    }

    async fn run(
        python: &Path,
        model: &Path,
        (slots, slot_tokens): (u32, u32),
        folder: Option<&Path>,
    ) -> Self {
        let mut child = Command::new(python)
            .arg(root().join("tests/engines/llama_server.py"))
            .arg(model)
            .args([slots.to_string(), slot_tokens.to_string()])
            .args(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Python runs");
        let output = child.stdout.take().expect("its output");
        let url = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            // Other lines are the server's own.
            for read in BufReader::new(output).lines().map_while(Result::ok) {
                if read.starts_with("http://") {
                    line = read;
                    break;
                }
            }
            line
        });
        let url = tokio::time::timeout(TIMEOUT, url).await;
        let url = url.expect("the server starts in time").expect("no panic");
        assert!(!url.is_empty(), "llama.cpp's server did not start");
        Self {
            child,
            client: Client::new(url.clone()),
            url,
        }
    }

    /// Holds the process as it is (SIGSTOP).
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets a held process go on (SIGCONT).
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&self) {
        self.signal("-KILL");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// True if it takes connections.
    pub fn is_there(&self) -> bool {
        let address = self.url.trim_start_matches("http://");
        std::net::TcpStream::connect(address).is_ok()
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Slots in which a request runs.
    pub async fn busy_slots(&self) -> usize {
        let slots = self.client.get("/slots").await.ok();
        let slots = slots.as_array().expect("a list");
        slots
            .iter()
            .filter(|slot| slot["is_processing"] == true)
            .count()
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
