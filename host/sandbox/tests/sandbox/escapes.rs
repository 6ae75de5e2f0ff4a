//! Ways out, tried by root inside. Each is refused; and each works where the protections that it is
//! listed with are left out, so that these are what refuses it.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use treadle_sandbox::{End, Exec, Guard, Sandbox};

use crate::stage::{Stage, run};

/// Left out, and a line of a shell that ends with 0 if it got out.
type Attack = (&'static [Guard], &'static str);

const FILES: [Attack; 7] = [
    (&[Guard::Root], "cat {host}/secret"),
    (&[Guard::Root, Guard::UserNamespace], "cat {other}/mine"),
    (&[Guard::Root], "ls /sys/kernel"),
    (
        &[Guard::Root, Guard::UserNamespace],
        "echo out > {host}/written",
    ),
    (
        &[Guard::Root, Guard::UserNamespace],
        "echo out > {other}/written",
    ),
    (
        &[Guard::UserNamespace],
        "mknod /dev/disk b {disk} || mknod /tmp/disk b {disk}",
    ),
    (
        &[Guard::UserNamespace],
        "mknod /dev/log-of-kernel c 1 11 && dd if=/dev/log-of-kernel of=/dev/null count=1 bs=8k iflag=nonblock",
    ),
];

const KERNEL: [Attack; 7] = [
    (&[Guard::MaskedProc], "head -c 9 /proc/kallsyms | grep -q ."),
    (
        &[Guard::MaskedProc, Guard::UserNamespace],
        "v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness",
    ),
    (
        &[Guard::MaskedProc, Guard::UserNamespace],
        "head -c 9 /proc/slabinfo | grep -q . || head -c 9 /proc/timer_list | grep -q .",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "mkdir /tmp/m && mount -t proc none /tmp/m && v=$(cat /tmp/m/sys/vm/swappiness) && echo $v > /tmp/m/sys/vm/swappiness",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "mkdir /tmp/m && mount -t sysfs none /tmp/m && ls /tmp/m/kernel",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "mkdir /tmp/m && { mount -t cgroup -o cpu none /tmp/m || mount -t cgroup2 none /tmp/m; }",
    ),
    (&[Guard::UserNamespace], "test \"$(nice -n -5 nice)\" = -5"),
];

const PROCESSES: [Attack; 8] = [
    (&[Guard::PidNamespace], "grep -q sleep /proc/{pid}/cmdline"),
    (
        &[Guard::PidNamespace, Guard::UserNamespace],
        "kill -9 {pid}",
    ),
    (&[Guard::UserNamespace], "ls /proc/1/root/"),
    (&[Guard::UserNamespace], "ls /proc/1/fd/"),
    (&[Guard::UserNamespace], "readlink /proc/1/exe"),
    (&[Guard::UserNamespace], "exec 3< /proc/1/mem"),
    (&[Guard::UserNamespace], "cat /proc/1/environ"),
    // `PTRACE_SEIZE`, which stops nothing.
    (
        &[Guard::UserNamespace],
        "perl -e 'exit(syscall(101, 0x4206, 1, 0, 0) == 0 ? 0 : 1)'",
    ),
];

const NETWORK: [Attack; 3] = [
    (
        &[Guard::NetNamespace],
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'",
    ),
    (
        &[Guard::NetNamespace],
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{abstract}\")'",
    ),
    (
        &[Guard::NetNamespace],
        "bash -c 'exec 3<>/dev/tcp/{address}/{port}'",
    ),
];

/// Numbers of system calls are those of x86-64.
const CALLS: [Attack; 14] = [
    (&[Guard::Seccomp], "unshare --user --map-root-user true"),
    (
        &[Guard::Seccomp],
        "unshare --user --map-root-user --mount mount -t tmpfs none /tmp",
    ),
    (
        &[Guard::Seccomp],
        "perl -e 'exit(syscall(56, 0x10000011, 0, 0, 0, 0) >= 0 ? 0 : 1)'",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "mkdir /tmp/m && mount -t tmpfs none /tmp/m",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "nsenter --target 1 --net true",
    ),
    // `clone3` is refused in a way that makes libraries use `clone`.
    (
        &[Guard::Seccomp],
        "perl -e 'syscall(435, 0, 0); exit($! == 38 ? 1 : 0)'",
    ),
    // A ring of requests.
    (
        &[Guard::Seccomp],
        "perl -e '$b = \"\\0\" x 200; exit(syscall(425, 1, $b) >= 0 ? 0 : 1)'",
    ),
    // The keyring of the session that the agent runs in.
    (
        &[Guard::Seccomp],
        "perl -e 'exit(syscall(250, 0, -3, 1) >= 0 ? 0 : 1)'",
    ),
    (
        &[Guard::Seccomp],
        "perl -e '$n = \"k\\0\"; $t = \"user\\0\"; exit(syscall(248, $t, $n, $n, 1, -2) >= 0 ? 0 : 1)'",
    ),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "perl -e '$b = pack(\"LLLL\", 2, 4, 4, 1) . \"\\0\" x 100; exit(syscall(321, 0, $b, 72) >= 0 ? 0 : 1)'",
    ),
    (
        &[Guard::Seccomp],
        "perl -e 'exit(syscall(323, 1) >= 0 ? 0 : 1)'",
    ),
    (
        &[Guard::Seccomp],
        "python3 -c 'import socket; socket.socket(socket.AF_VSOCK)' || python3 -c 'import socket; socket.socket(38, 5)'",
    ),
    (&[Guard::Seccomp, Guard::UserNamespace], "hostname another"),
    (
        &[Guard::Seccomp, Guard::UserNamespace],
        "python3 -c 'import ctypes; l = ctypes.CDLL(None); b = ctypes.create_string_buffer(b\"\\x80\\0\\0\\0\" + bytes(256)); m = ctypes.c_int(); exit(l.name_to_handle_at(-100, b\"/dev/shm\", b, ctypes.byref(m), 0))'",
    ),
];

/// What of the machine is attacked.
struct Target {
    /// A folder that everybody may look into.
    folder: tempfile::TempDir,
    process: Child,
    _tcp: TcpListener,
    _unix: UnixListener,
    words: Vec<(&'static str, String)>,
}

impl Target {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let mut command = Command::new("sleep");
        let process = command.arg("600").stdout(Stdio::null()).spawn().unwrap();
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let abstracted = format!("treadle-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstracted).unwrap();
        let unix = UnixListener::bind_addr(&address).unwrap();
        let disks = std::fs::read_to_string("/proc/partitions").unwrap();
        let disk = disks.lines().nth(2).unwrap().split_ascii_whitespace();
        let disk: Vec<_> = disk.take(2).collect();
        let words = vec![
            ("host", folder.path().display().to_string()),
            ("pid", process.id().to_string()),
            ("port", tcp.local_addr().unwrap().port().to_string()),
            ("abstract", abstracted),
            ("address", own_address()),
            ("disk", disk.join(" ")),
        ];
        Self {
            folder,
            process,
            _tcp: tcp,
            _unix: unix,
            words,
        }
    }

    /// Whether the line got out of a sandbox of this agent.
    async fn gives_way(&mut self, stage: &Stage, line: &str) -> (bool, String) {
        let (own, other) = (stage.sandbox().await, stage.sandbox().await);
        other.write("/mine", b"mine".to_vec()).await.unwrap();
        let files = stage.files_of(&other);
        let mut line = line.replace("{other}", &files.display().to_string());
        for (name, value) in &self.words {
            line = line.replace(&format!("{{{name}}}"), value);
        }
        let (output, end) = from_root(&own, &line).await;
        let got_out = end == End::Exited(0);
        if !got_out {
            // What is told is not all that counts.
            assert!(!self.folder.path().join("written").exists(), "{line}");
            assert!(!files.join("written").exists(), "{line}");
            assert!(self.process.try_wait().unwrap().is_none(), "{line}");
        }
        (got_out, format!("{line}: {end:?}: {output}"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The machine's address on a network, or its own one where it has none.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let known = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    known.map_or_else(|_| "127.0.0.2".to_owned(), |known| known.ip().to_string())
}

async fn from_root(sandbox: &Arc<Sandbox>, line: &str) -> (String, End) {
    let mut exec = Exec::new(["/bin/sh", "-c", line]);
    // Home is another one where the root is the machine's.
    "/".clone_into(&mut exec.cwd);
    run(sandbox, exec).await
}

async fn try_all(attacks: &[Attack]) {
    let mut wrong = Vec::new();
    let guarded = Stage::new().await;
    let mut stages: Vec<(&[Guard], Stage)> = Vec::new();
    for (guards, line) in attacks {
        // A target of its own for each: some attacks leave nothing of it.
        let (got_out, told) = Target::new().gives_way(&guarded, line).await;
        if got_out {
            wrong.push(format!("it got out: {told}"));
        }
        if stages.iter().all(|(without, _)| without != guards) {
            stages.push((guards, Stage::without(guards).await));
        }
        let stage = stages.iter().find(|(without, _)| without == guards);
        let stage = &stage.unwrap().1;
        let (got_out, told) = Target::new().gives_way(stage, line).await;
        if !got_out {
            wrong.push(format!("it is not {guards:?} that refuses it: {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_machine_or_of_others_is_reached() {
    try_all(&FILES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_is_neither_read_nor_set() {
    try_all(&KERNEL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outside_is_seen_or_ended() {
    try_all(&PROCESSES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_network_is_reached() {
    try_all(&NETWORK).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_sandboxes_have_no_use_for_are_refused() {
    try_all(&CALLS).await;
}
