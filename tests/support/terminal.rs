//! A newcomer's terminal: it runs the commands of a page as they are printed, from top to bottom,
//! in an empty folder, without the environment of the tests.
//!
//! What differs from the page: daemons listen on a free port instead of 8300, the database is a fresh
//! one, pip and npm take what `scripts/guide-packages.sh` downloaded, and `curl` fails if an answer
//! is an error.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::client::TIMEOUT;
use super::pages::{Block, FOLLOWED, Mark, blocks};
use super::policy::root;
use super::process::binary;
use super::services::{Psql, are_skipped, fresh_name, postgres_url};

/// The address that pages name.
const PRINTED: &str = "127.0.0.1:8300";
/// The database that pages name.
const DATABASE: &str = "postgres://treadle@127.0.0.1:5432/treadle";
/// If it is set, blocks that need packages of others are not run.
const SKIP_CLIENTS: &str = "TREADLE_SKIP_CLIENT_TESTS";
/// Commands that start a daemon.
const SERVES: [&str; 3] = ["treadle up", "treadle serve", "target/release/treadle up"];
/// File with the state of the shell between two blocks.
const STATE: &str = ".terminal";
/// Time limit of a block; debug builds compile policies slowly.
const BLOCK_MAX: Duration = Duration::from_mins(4);
/// Before each block: names that it sets last, and an answer that is an error fails it.
const BEFORE: &str = r#"set -euo pipefail -a
curl() { command curl --fail-with-body --silent --show-error "$@"; }
if [ -e "$TERMINAL_STATE" ]; then source "$TERMINAL_STATE"; fi
"#;
const AFTER: &str = r#"
{ export -p | grep -v ' TREADLE_URL='; printf 'cd %q\n' "$PWD"; } > "$TERMINAL_STATE"
"#;

/// A page, and the folder in which it is followed.
pub struct Terminal {
    // Ends first: it uses the other two.
    served: Option<Served>,
    database: Option<Database>,
    folder: TempDir,
    page: &'static str,
}

/// A daemon that a block started.
struct Served {
    child: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A database, which is dropped with this.
struct Database {
    name: String,
    url: String,
}

impl Database {
    fn fresh() -> Self {
        let shared = postgres_url();
        let name = fresh_name("guide");
        let made = Psql::new(&shared).run(&format!("CREATE DATABASE {name}"));
        made.expect("a database");
        let (server, _) = shared.rsplit_once('/').expect("a database in the URL");
        let url = format!("{server}/{name}");
        Self { name, url }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        if let Err(error) = Psql::new(postgres_url()).run(&drop) {
            eprintln!("database {} stays: {error}", self.name);
        }
    }
}

/// Whether the tests have what a block needs; if not, they were told to do without.
fn has(what: &str) -> bool {
    let (is_skipped, installed) = match what {
        "services" => (are_skipped(), None),
        "agents" => (clients_are_skipped(), Some(".treadle/agents/installed")),
        _ => (clients_are_skipped(), Some(".treadle/guides/installed")),
    };
    if is_skipped {
        eprintln!("SKIPPED: commands of the documentation that need {what}");
        return false;
    }
    let is_there = installed.is_none_or(|file| root().join(file).exists());
    assert!(
        is_there,
        "{what} are missing: run `scripts/setup.sh test`, or set {SKIP_CLIENTS}=1"
    );
    true
}

/// Whether tests with packages of others are skipped.
fn clients_are_skipped() -> bool {
    std::env::var_os(SKIP_CLIENTS).is_some_and(|value| !value.is_empty())
}

impl Terminal {
    /// A terminal in an empty folder with what pages use of a checkout: the built program at
    /// `target/release/treadle`, which is `treadle` too, and `sdk`.
    ///
    /// # Panics
    /// The page is not among those that are followed.
    pub fn open(page: &'static str) -> Self {
        assert!(FOLLOWED.contains(&page), "{page} is not in FOLLOWED");
        let folder = tempfile::tempdir().expect("a folder");
        let release = folder.path().join("target/release");
        std::fs::create_dir_all(&release).expect("a folder");
        symlink(binary(), release.join("treadle")).expect("a link");
        symlink(root().join("sdk"), folder.path().join("sdk")).expect("a link");
        Self {
            served: None,
            database: None,
            folder,
            page,
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the daemon that was started last.
    pub fn url(&self) -> Option<&str> {
        self.served.as_ref().map(|served| &*served.url)
    }

    /// Follows the whole page, by the first of several ways.
    ///
    /// # Panics
    /// A block fails.
    pub async fn follow(&mut self) {
        self.follow_by(None).await;
    }

    /// Follows the page up to this way, which it takes instead of others, and ends there.
    ///
    /// # Panics
    /// A block fails, or the page has no such way.
    pub async fn follow_to(&mut self, way: &'static str) {
        if has("packages") {
            self.follow_by(Some(way)).await;
        }
    }

    async fn follow_by(&mut self, way: Option<&'static str>) {
        let page = std::fs::read_to_string(root().join(self.page)).expect("the page is there");
        let mut taken: Option<&str> = way;
        for block in blocks(&page) {
            match block.mark {
                Some(Mark::File(name)) => self.write(name, &block.text),
                Some(Mark::Needs(what)) if has(what) => self.run(&block).await,
                Some(Mark::Way(name)) if *taken.get_or_insert(name) == name => {
                    self.run(&block).await;
                    if way.is_some() {
                        return;
                    }
                }
                None if block.is_commands() => self.run(&block).await,
                Some(_) | None => {}
            }
        }
        assert!(way.is_none(), "{} has no such way: {way:?}", self.page);
    }

    fn write(&mut self, name: &str, text: &str) {
        let (path, text) = (self.folder().join(name), self.addressed(text));
        let parent = path.parent().expect("a folder");
        std::fs::create_dir_all(parent).expect("a folder");
        std::fs::write(path, text).expect("it can be written");
    }

    async fn run(&mut self, block: &Block<'_>) {
        let text = self.addressed(&block.text);
        let lines: Vec<&str> = text.lines().collect();
        let starts = |line: &&str| SERVES.iter().any(|serves| line.starts_with(serves));
        let Some(at) = lines.iter().position(starts) else {
            return self.script(block, &text).await;
        };
        // A page that starts another daemon has stopped the one before, in the same terminal.
        self.served = None;
        self.script(block, &lines[..at].join("\n")).await;
        self.served = Some(self.serve(block, &lines[at..].join("\n")).await);
    }

    /// A text with the address of the daemon, and the database, in place of the printed ones.
    fn addressed(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        if text.contains(DATABASE) {
            let database = self.database.get_or_insert_with(Database::fresh);
            text = text.replace(DATABASE, &database.url);
        }
        let address = self.url().and_then(|url| url.strip_prefix("http://"));
        text.replace(PRINTED, address.unwrap_or(PRINTED))
    }

    async fn script(&self, block: &Block<'_>, text: &str) {
        let mut command = self.shell(&format!("{BEFORE}{text}{AFTER}"));
        let ended = tokio::task::spawn_blocking(move || command.output());
        let ended = tokio::time::timeout(BLOCK_MAX, ended).await;
        let place = format!("{}:{}", self.page, block.line);
        let ended = ended.unwrap_or_else(|_| panic!("{place} does not end:\n{text}"));
        let output: Output = ended.expect("no panic").expect("bash runs");
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(
            output.status.success(),
            "{place} fails:\n{text}\n{out}{err}"
        );
    }

    /// Starts the daemon of a block, on any free port.
    async fn serve(&self, block: &Block<'_>, text: &str) -> Served {
        let command = SERVES.iter().find(|command| text.starts_with(**command));
        let command = command.expect("it starts one");
        let arguments = &text[command.len()..];
        let script = format!("{BEFORE}exec {command} --listen 127.0.0.1:0 --json{arguments}");
        let errors = self.folder().join("errors");
        let file = std::fs::File::create(&errors).expect("it can be written");
        let mut shell = self.shell(&script);
        let child = shell.stdout(Stdio::piped()).stderr(file).spawn();
        let mut served = Served {
            child: child.expect("bash runs"),
            url: String::new(),
        };
        let output = served.child.stdout.take().expect("its output");
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(TIMEOUT, line).await;
        let line = line.expect("it listens in time").expect("no panic");
        let line = line.expect("text");
        let said: Result<Value, _> = serde_json::from_str(&line);
        let said = said.unwrap_or_else(|error| {
            let errors = std::fs::read_to_string(&errors).unwrap_or_default();
            panic!("{}:{}: {error}\n{script}\n{errors}", self.page, block.line)
        });
        said["url"]
            .as_str()
            .expect("its URL")
            .clone_into(&mut served.url);
        served
    }

    /// A shell in the folder, which is its home too.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(self.folder());
        command.env_clear().envs(kept()).env("HOME", self.folder());
        command.env("TERMINAL_STATE", self.folder().join(STATE));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.envs(self.url().map(|url| ("TREADLE_URL", url)));
        command
    }
}

/// Variables that a newcomer's environment has too: the path, and the homes of Rust's tools; and
/// those that keep tools from the network, because what they install is already downloaded.
fn kept() -> BTreeMap<&'static str, PathBuf> {
    let programs = binary().parent().expect("a folder").display().to_string();
    let agents = root().join(".treadle/agents/node_modules/.bin");
    let guides = root().join(".treadle/guides");
    let path = std::env::var("PATH").unwrap_or_default();
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let tool = |name: &'static str, folder: &str| {
        let place = std::env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from);
        (name, place)
    };
    BTreeMap::from([
        (
            "PATH",
            PathBuf::from(format!("{programs}:{}:{path}", agents.display())),
        ),
        tool("CARGO_HOME", ".cargo"),
        tool("RUSTUP_HOME", ".rustup"),
        ("CARGO_NET_OFFLINE", PathBuf::from("true")),
        ("PIP_NO_INDEX", PathBuf::from("1")),
        ("PIP_FIND_LINKS", guides.join("wheels")),
        ("npm_config_offline", PathBuf::from("true")),
        ("npm_config_cache", guides.join("npm")),
        ("CARGO_TARGET_DIR", root().join("target/guest-build")),
    ])
}
