//! A separate RabbitMQ server that a test may kill.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for the start of a server on a busy machine.
const START_WAIT: Duration = Duration::from_mins(2);
/// The lowest port of a server, and the number of ports.
const PORT_FIRST: u16 = 10_000;
const PORTS: u64 = 20_000;
/// The scripts themselves; those on the path want to be root or rabbitmq.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// A RabbitMQ server with separate files and ports; removed when dropped.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    port: u16,
    tls_port: u16,
    distribution_port: u16,
    mapper_port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts a server; `configuration` is added to its file, `folder` receives the certificates.
    pub(crate) fn start(configuration: impl FnOnce(&Path, u16) -> String) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("treadle-mq-")
            .tempdir_in("/tmp")
            .unwrap();
        let [port, tls_port, distribution_port, mapper_port] = free_ports();
        let extra = configuration(folder.path(), tls_port);
        let file = format!("listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\n{extra}");
        std::fs::write(folder.path().join("rabbitmq.conf"), file).unwrap();
        std::fs::write(folder.path().join("plugins"), "[].\n").unwrap();
        let mut server = Self {
            folder,
            port,
            tls_port,
            distribution_port,
            mapper_port,
            child: None,
        };
        server.hand_over();
        server.restart();
        server
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2F", self.port)
    }

    /// The port for TLS, if the configuration has it.
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Kills the server, like a power failure.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The server's script has the server itself as a child, in a group of their own.
            let group = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
            child.wait().unwrap();
            let deadline = Instant::now() + START_WAIT;
            while answers_at_all(self.port) {
                assert!(Instant::now() < deadline, "RabbitMQ outlives its death");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Restarts the server, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("out")).unwrap();
        let child = self
            .command(SERVER)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{SERVER}: {error}; install it: apt-get install rabbitmq-server")
            });
        self.child = Some(child);
        let deadline = Instant::now() + START_WAIT;
        while !answers(self.port) {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "RabbitMQ ended: {}", self.output());
            assert!(Instant::now() < deadline, "RabbitMQ: {}", self.output());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Makes the server store its list of queues. RabbitMQ 3.10 does so only seconds later, and
    /// loses a quorum queue with its messages if it is killed before.
    pub(crate) fn settle(&self) {
        self.control(&["eval", "[ok = dets:sync(T) || T <- dets:all()]."]);
    }

    /// Runs `rabbitmqctl` with some arguments.
    pub(crate) fn control(&self, arguments: &[&str]) {
        let output = self.command(CONTROL).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn output(&self) -> String {
        let mut text = std::fs::read_to_string(self.folder.path().join("out")).unwrap();
        text.truncate(2_000);
        text
    }

    /// Erlang runs as the user rabbitmq where this process may become others.
    fn command(&self, program: &str) -> Command {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        let folder = self.folder.path();
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq"))
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("absent"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_NODENAME", format!("t{}@localhost", self.port))
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", self.distribution_port.to_string())
            .env("ERL_EPMD_PORT", self.mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command
    }

    /// Gives the files to the server's user.
    fn hand_over(&self) {
        let folder = self.folder.path();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            let status = Command::new("chown")
                .args(["-R", "rabbitmq:rabbitmq"])
                .arg(folder)
                .status()
                .unwrap();
            assert!(status.success());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // Erlang leaves its port mapper running, which ends when it has no nodes.
        for _ in 0..20 {
            let status = self
                .command("epmd")
                .arg("-kill")
                .stdout(Stdio::null())
                .status();
            if status.is_ok_and(|status| status.success()) && !answers_at_all(self.mapper_port) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether a broker answers the greeting.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let wait = Some(Duration::from_secs(5));
    stream.set_read_timeout(wait).unwrap();
    let asked = std::io::Write::write_all(&mut stream, b"AMQP\x00\x00\x09\x01");
    asked.is_ok() && stream.read_exact(&mut [0; 7]).is_ok()
}

fn answers_at_all(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Unused ports, below those that the system assigns to connections, so that no connection takes
/// one before the server starts or while it is dead.
fn free_ports<const N: usize>() -> [u16; N] {
    let any = RandomState::new();
    let mut tries = 0..u16::MAX;
    let listeners = [(); N].map(|()| {
        tries
            .find_map(|salt| {
                let port = PORT_FIRST + (any.hash_one(salt) % PORTS) as u16;
                TcpListener::bind(("127.0.0.1", port)).ok()
            })
            .expect("a free port")
    });
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
