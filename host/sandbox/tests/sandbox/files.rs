//! Access to files from outside: paths stay inside, whatever processes do to their folders.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use treadle_sandbox::{End, Exec, Guard, Sandbox, SandboxError, UserIds};

use crate::stage::{Stage, sh};

/// Timeout of calls that must not block.
const SOON: Duration = Duration::from_secs(10);

async fn soon<T>(
    what: &str,
    call: impl Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    let done = tokio::time::timeout(SOON, call).await;
    done.unwrap_or_else(|_| panic!("{what} waits"))
}

/// A folder of the machine that is writable for everybody.
fn outside() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    std::fs::write(folder.path().join("other"), "other").unwrap();
    folder
}

/// Reads, writes, renames and removes through links to a folder of the machine. Returns what was
/// reached.
/// was reached.
async fn reached(guards: &[Guard]) -> Vec<&'static str> {
    let (stage, outside) = (Stage::without(guards).await, outside());
    let sandbox = stage.sandbox().await;
    let at = outside.path().display().to_string();
    let up = format!("{}{at}", "../".repeat(20));
    let line =
        format!("cd /tmp; ln -s {at} l; ln -s {up} up; ln -s {at}/secret s; ln -s {at}/new n");
    assert_eq!(sh(&sandbox, &line).await.1, End::Exited(0));
    let mut reached = Vec::new();
    for path in [
        "/tmp/l/secret",
        "/tmp/s",
        "/tmp/up/secret",
        &format!("{up}/secret"),
        &format!("{at}/secret"),
    ] {
        if sandbox
            .read(path, 100)
            .await
            .is_ok_and(|bytes| bytes == b"secret")
        {
            reached.push("read");
        }
        if sandbox.stat(path).await.is_ok_and(|entry| entry.size == 6) {
            reached.push("told");
        }
    }
    if sandbox
        .list("/tmp/l", 3)
        .await
        .is_ok_and(|entries| entries.len() == 2)
    {
        reached.push("listed");
    }
    for path in [
        "/tmp/l/secret",
        "/tmp/l/new",
        "/tmp/n",
        "/tmp/up/new",
        "/tmp/l/deep/new",
    ] {
        let _ = sandbox.write(path, b"out".to_vec()).await;
    }
    let _ = sandbox.rename("/tmp/l/other", "/tmp/l/moved").await;
    let _ = sandbox.make_folder("/tmp/l/made").await;
    let is_there = |name: &str| outside.path().join(name).exists();
    let changes = [
        (
            std::fs::read(outside.path().join("secret")).unwrap() != b"secret",
            "written",
        ),
        (is_there("new"), "new"),
        (!is_there("other"), "moved"),
        (is_there("made"), "made"),
    ];
    reached.extend(changes.iter().filter(|(is, _)| *is).map(|(_, what)| *what));
    let _ = sandbox.remove_file("/tmp/l/secret").await;
    if !is_there("secret") {
        reached.push("removed");
    }
    reached
}

#[tokio::test(flavor = "multi_thread")]
async fn links_do_not_lead_outside() {
    assert_eq!(reached(&[]).await, Vec::<&str>::new());
    let mut without = reached(&[Guard::Lookup]).await;
    without.dedup();
    for way in [
        "read", "told", "listed", "written", "new", "moved", "made", "removed",
    ] {
        assert!(without.contains(&way), "{way}: {without:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_nothing_is_written_through() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let made = "cd /tmp; mkdir d; ln -s d/new near; ln -s /tmp/d/far far; ln -s near chain; \
                ln -s ../../../../../tmp/d/up up; ln -s none/x lost; ln -s loop loop; \
                ln -s /dev/shm/x kernel; ln -s /proc/sys/x proc";
    assert_eq!(sh(&sandbox, made).await.1, End::Exited(0));
    for (link, target) in [
        ("chain", "new"),
        ("near", "new"),
        ("far", "far"),
        ("up", "up"),
    ] {
        let (link, target) = (format!("/tmp/{link}"), format!("/tmp/d/{target}"));
        let mut file = sandbox
            .create_as(UserIds::new(1_000, 1_000), &link, 0o640)
            .await
            .unwrap();
        std::io::Write::write_all(&mut file, link.as_bytes()).unwrap();
        assert_eq!(sandbox.read(&target, 100).await.unwrap(), link.as_bytes());
        let (told, _) = sh(
            &sandbox,
            &format!("stat -c '%u %g %a' {target}; readlink {link}"),
        )
        .await;
        assert!(told.starts_with("1000 1000 640\n"), "{told}");
    }
    for link in ["lost", "loop", "kernel", "proc"] {
        let path = format!("/tmp/{link}");
        assert!(sandbox.write(&path, b"x".to_vec()).await.is_err(), "{link}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_removed_without_the_targets_of_its_links() {
    let (stage, outside) = (Stage::new().await, outside());
    let sandbox = stage.sandbox().await;
    let at = outside.path().display();
    let line = format!(
        "mkdir -p /tmp/d/e; cd /tmp/d; ln -s {at} l; ln -s / r; ln -s {at}/secret e/s; mkdir -p /tmp/kept/k; ln -s /tmp/kept k; touch \"$(printf 'not \\377 text')\""
    );
    assert_eq!(sh(&sandbox, &line).await.1, End::Exited(0));
    sandbox.remove_file("/tmp/d").await.unwrap();
    assert_eq!(sandbox.list("/tmp", 5).await.unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_levels_and_long_listings_are_refused() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let owner = UserIds::new(1_000, 1_000);
    let deep = |levels: usize| format!("/tmp{}", "/a".repeat(levels));
    for (levels, is_new) in [(200, true), (200, false), (255, true)] {
        let made = sandbox.make_folder_as(owner, &deep(levels)).await;
        assert_eq!(made.unwrap(), is_new, "{levels}");
    }
    for levels in [1, 200, 255] {
        assert_eq!(sandbox.stat(&deep(levels)).await.unwrap().owner, owner);
    }
    let error = sandbox.make_folder(&deep(256)).await.unwrap_err();
    assert!(error.to_string().contains("at most 256"), "{error}");
    let line = "mkdir /tmp/many && cd /tmp/many || exit; i=0; \
                while [ $i -lt 10000 ]; do : > $i; i=$((i+1)); done";
    assert_eq!(sh(&sandbox, line).await.1, End::Exited(0));
    assert_eq!(sandbox.list("/tmp/many", 1).await.unwrap().len(), 10_000);
    sandbox.write("/tmp/many/more", Vec::new()).await.unwrap();
    let error = sandbox.list("/tmp/many", 1).await.unwrap_err();
    assert!(
        error.to_string().contains("more than 10000 files"),
        "{error}"
    );
}

const NO_FILES: [&str; 24] = [
    "/tmp/fifo",
    "/tmp/read",
    "/tmp/socket",
    "/tmp/e",
    "/tmp/z",
    "/tmp/in",
    "/tmp/loop",
    "/tmp",
    "/",
    "",
    "/dev/null",
    "/dev/ptmx",
    "/dev/tty",
    "/dev/shm/x",
    "/proc/1/mem",
    "/proc/1/root/etc/passwd",
    "/proc/self/root/etc/passwd",
    "/tmp/root/etc/passwd",
    "/proc/self/environ",
    "/proc/sys/vm/swappiness",
    "/proc/1/cwd/etc/passwd",
    "/proc/thread-self/fd/3",
    "/tmp/..",
    "/tmp/.",
];

#[tokio::test(flavor = "multi_thread")]
async fn special_files_are_refused_at_once() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "cd /tmp; mkfifo fifo; ln -s /proc/1/environ e; ln -s /proc/self/root root; ln -s /dev/zero z; ln -s loop loop; ln -s /proc/self/fd/0 in
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; mkfifo read; (cat read > /dev/null &)";
    assert_eq!(sh(&sandbox, line).await.1, End::Exited(0));
    for path in NO_FILES {
        assert!(soon(path, sandbox.read(path, 100)).await.is_err(), "{path}");
        assert!(
            soon(path, sandbox.write(path, b"x".to_vec()))
                .await
                .is_err(),
            "{path}"
        );
        let _ = soon(path, sandbox.stat(path)).await;
    }
    for path in [
        "/proc",
        "/proc/1/root",
        "/tmp/root",
        "/dev",
        "/proc/self/fd",
    ] {
        assert!(soon(path, sandbox.list(path, 2)).await.is_err(), "{path}");
        assert!(
            soon(path, sandbox.make_folder(&format!("{path}/new")))
                .await
                .is_err(),
            "{path}"
        );
        assert!(
            soon(path, sandbox.remove_file(&format!("{path}/null")))
                .await
                .is_err(),
            "{path}"
        );
        assert!(
            soon(path, sandbox.rename("/tmp/e", &format!("{path}/e")))
                .await
                .is_err(),
            "{path}"
        );
    }
    // All of them can be listed and removed.
    let listed = soon("/tmp", sandbox.list("/", 3)).await.unwrap();
    assert!(listed.iter().any(|entry| entry.path == "/tmp/fifo"));
    soon("fifo", sandbox.remove_file("/tmp/fifo"))
        .await
        .unwrap();
}

/// A lease on a file delays those who open it, except with O_NONBLOCK.
#[tokio::test(flavor = "multi_thread")]
async fn processes_inside_can_not_block_readers() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "python3 -c 'import fcntl, os, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nf = os.open(\"/tmp/leased\", os.O_RDWR | os.O_CREAT)\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint(1, flush=True)\ntime.sleep(100)'";
    let mut running = sandbox
        .run(Exec::new(["/bin/sh", "-c", line]))
        .await
        .unwrap();
    let told = running.next().await;
    let read = soon("a read", sandbox.read("/tmp/leased", 100)).await;
    eprintln!("{told:?} {read:?}");
    let _ = soon("a write", sandbox.write("/tmp/leased", b"x".to_vec())).await;
    running.stopper().kill().await.unwrap();
}

/// Folders are replaced by links, and back, during writes.
#[tokio::test(flavor = "multi_thread")]
async fn races_are_lost() {
    assert!(!race(&[]).await, "a write got out");
    // On a busy machine a race may be lost many times before it is won.
    let mut got_out = false;
    for _ in 0..20 {
        got_out = got_out || race(&[Guard::Lookup]).await;
    }
    assert!(
        got_out,
        "no write got out without the lookup within the root"
    );
}

async fn race(guards: &[Guard]) -> bool {
    let (stage, outside) = (Stage::without(guards).await, outside());
    let sandbox = stage.sandbox().await;
    let swap = format!(
        "mkdir -p /tmp/a/x; cd /tmp/a; ln -s {} link; echo
         exec python3 -c 'import ctypes
c = ctypes.CDLL(None)
while True: c.renameat2(-100, b\"x\", -100, b\"link\", 2)'",
        outside.path().display()
    );
    let mut running = sandbox
        .run(Exec::new(["/bin/sh", "-c", &swap]))
        .await
        .unwrap();
    running.next().await;
    let writes = |sandbox: Arc<Sandbox>| async move {
        for number in 0..400 {
            let path = format!("/tmp/a/x/new{number}");
            let _ = soon("a write", sandbox.write(&path, b"out".to_vec())).await;
            let _ = soon("a removal", sandbox.remove_file("/tmp/a/x/secret")).await;
        }
    };
    tokio::join!(writes(sandbox.clone()), writes(sandbox.clone()));
    running.stopper().kill().await.unwrap();
    std::fs::read_dir(outside.path()).unwrap().count() != 2
}
