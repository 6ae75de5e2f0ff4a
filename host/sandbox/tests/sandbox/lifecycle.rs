//! The main features of sandboxes: commands, files, pauses, forks, removal.

use std::time::{Duration, Instant};

use treadle_sandbox::{End, OnExpiry, SandboxSpec, State};

use crate::stage::{Stage, sh};

/// Resolves `localhost` and the sandbox's own name, and prints the files involved.
const FIND: &str = "getent ahosts localhost >/dev/null && \
    getent ahosts $(cat /proc/sys/kernel/hostname) && cat /etc/hosts";
/// Renames folders of the image, and those that a sandbox had before it was copied.
const RENAME: &str = "cd /root && python3 -c 'import os; os.rename(\"a\", \"z\")' \
        && cat z/b/f && mv z/b /root/moved && mkdir z/b && mv /root/moved z/c && cat z/c/f \
        && python3 -c 'import os; os.rename(\"/var/log\", \"/var/kept\")' && test ! -e /var/log";

/// Runs a line that must succeed; returns its output.
async fn fine(sandbox: &std::sync::Arc<treadle_sandbox::Sandbox>, line: &str) -> String {
    let (output, end) = sh(sandbox, line).await;
    assert_eq!(end, End::Exited(0), "{line}: {output}");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_apart_from_the_machine() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let (output, end) = sh(
        &sandbox,
        "id -u; hostname; pwd; set -- /proc/[0-9]*; echo $#",
    )
    .await;
    // The first process and the shell.
    let told = format!("0\n{}\n/root\n2\n", sandbox.id());
    assert_eq!((output, end), (told, End::Exited(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_have_the_files_and_processes_go_on_after_a_pause() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "echo one > /root/a; rm /etc/hostname; (while :; do date +%N > /root/tick; sleep 0.01; done) &";
    sh(&sandbox, line).await;
    let children = stage.sandboxes.fork(&sandbox, 2, |_| {}).await.unwrap();
    for child in &children {
        let (output, _) = sh(
            child,
            "cat /root/a; test ! -e /etc/hostname && echo gone; echo two > /root/a",
        )
        .await;
        assert_eq!(output, "one\ngone\n");
    }
    let grandchild = stage.sandboxes.fork(&children[0], 1, |_| {}).await.unwrap();
    assert_eq!(sh(&grandchild[0], "cat /root/a").await.0, "two\n");
    assert_eq!(sh(&sandbox, "cat /root/a").await.0, "one\n");

    sandbox.pause().await.unwrap();
    assert_eq!(sandbox.status().state, State::Paused);
    let first = sandbox.read("/root/tick", 100).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        sandbox.read("/root/tick", 100).await.unwrap(),
        first,
        "nothing runs"
    );
    sandbox.resume().await.unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while sandbox.read("/root/tick", 100).await.unwrap() == first {
        assert!(Instant::now() < until, "its processes go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_may_be_relative() {
    let stage = Stage::with(|config| {
        std::env::set_current_dir(config.folder.parent().unwrap()).unwrap();
        config.folder = "agent".into();
    });
    let stage = stage.await;
    let sandbox = stage.sandbox().await;
    assert_eq!(fine(&sandbox, "echo up").await, "up\n");
    let child = &stage.sandboxes.fork(&sandbox, 1, |_| {}).await.unwrap()[0];
    assert_eq!(fine(child, "echo up").await, "up\n");
}

/// Folders in lower layers: those of copies, and those of the image.
#[tokio::test(flavor = "multi_thread")]
async fn folders_of_copies_are_renamed_as_those_of_the_original() {
    let stage = Stage::new().await;
    let original = stage.sandbox().await;
    fine(&original, "mkdir -p /root/a/b && echo x > /root/a/b/f").await;
    let child = &stage.sandboxes.fork(&original, 1, |_| {}).await.unwrap()[0];
    assert_eq!(fine(child, RENAME).await, "x\nx\n");
    // Renamed folders keep their new place, in a copy of a copy and in sandboxes of a snapshot.
    let grandchild = &stage.sandboxes.fork(child, 1, |_| {}).await.unwrap()[0];
    let snapshot = stage.sandboxes.snapshot(child, None).await.unwrap();
    let spec = SandboxSpec {
        image: snapshot.id,
        ..SandboxSpec::default()
    };
    let made = stage.sandboxes.create(spec).await.unwrap();
    for copy in [grandchild, &made] {
        let line = "cd /root && ls && ls z && cat z/c/f && test -d /var/kept && test ! -e /var/log \
                    && mv z a && mv a/c a/d && cat a/d/f && test ! -e a/b/f && rm -r a && ls";
        assert_eq!(fine(copy, line).await, "z\nb\nc\nx\nx\n");
    }
    assert_eq!(fine(&original, "cat /root/a/b/f").await, "x\n");
}

/// Attributes by which a sandbox could show another folder of a lower layer in place of its own.
#[tokio::test(flavor = "multi_thread")]
async fn processes_inside_can_not_set_overlay_attributes() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    fine(&sandbox, "mkdir /root/a").await;
    for name in [
        "trusted.overlay.redirect",
        "trusted.overlay.opaque",
        "trusted.overlay.overlay.redirect",
    ] {
        let line =
            format!("python3 -c 'import os; os.setxattr(\"/root/a\", \"{name}\", b\"/etc\")'");
        assert_ne!(sh(&sandbox, &line).await.1, End::Exited(0), "{name}");
    }
}

/// A folder as an image: the programs that resolve names, without `/etc/hosts`.
fn bare(folder: &std::path::Path) -> std::path::PathBuf {
    let image = folder.join("bare");
    let programs = ["/bin/sh", "/bin/cat", "/usr/bin/getent"];
    let mut files: Vec<String> = programs.map(str::to_owned).into();
    for program in programs {
        let told = std::process::Command::new("ldd")
            .arg(program)
            .output()
            .unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let words = told.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(words.map(str::to_owned));
    }
    for file in files {
        let to = image.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&file, to).unwrap();
    }
    for name in ["etc", "root", "tmp"] {
        std::fs::create_dir_all(image.join(name)).unwrap();
    }
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn localhost_and_the_own_name_are_found_in_every_sandbox() {
    let stage = Stage::new().await;
    let from = bare(stage.folder.path());
    stage.sandboxes.import("bare", &from).await.unwrap();
    // One whose file is a dangling link, and one that has its own names.
    std::os::unix::fs::symlink("/etc/other/hosts", from.join("etc/hosts")).unwrap();
    stage.sandboxes.import("link", &from).await.unwrap();
    std::fs::remove_file(from.join("etc/hosts")).unwrap();
    std::fs::write(from.join("etc/hosts"), "10.0.0.1 db").unwrap();
    stage.sandboxes.import("own", &from).await.unwrap();
    for image in ["", "bare", "link", "own"] {
        let spec = SandboxSpec {
            image: image.to_owned(),
            ..SandboxSpec::default()
        };
        let sandbox = stage.sandboxes.create(spec).await.unwrap();
        let told = fine(&sandbox, FIND).await;
        assert!(told.starts_with("127.0.0.1"), "{image}: {told}");
        assert_eq!(told.contains("10.0.0.1 db"), image == "own", "{told}");
        // A copy has its own name, and later additions.
        fine(&sandbox, "echo 10.0.0.2 cache >> /etc/hosts").await;
        let child = &stage.sandboxes.fork(&sandbox, 1, |_| {}).await.unwrap()[0];
        let told = fine(child, FIND).await;
        assert!(
            told.contains(child.id()) && !told.contains(sandbox.id()),
            "{told}"
        );
        assert!(told.contains("10.0.0.2 cache"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_adds_programs_to_the_system_and_nobody_else_sees_them() {
    let stage = Stage::new().await;
    let (one, other) = (stage.sandbox().await, stage.sandbox().await);
    let line = "echo 'echo here' > /usr/local/bin/tool && chmod +x /usr/local/bin/tool \
                && mkdir /usr/share/of-mine && ln -s /usr/local/bin/tool /usr/bin/tool2 && tool2";
    let (output, end) = sh(&one, line).await;
    assert_eq!((output.as_str(), end), ("here\n", End::Exited(0)));
    let (output, _) = sh(
        &other,
        "for f in /usr/local/bin/tool /usr/bin/tool2 /usr/share/of-mine; do test -e $f && echo $f; done; echo none",
    )
    .await;
    assert_eq!(
        output,
        "none
"
    );
    assert!(!std::path::Path::new("/usr/local/bin/tool").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_sandbox_is_paused_and_a_command_renews_its_lifetime() {
    let stage = Stage::new().await;
    let spec = SandboxSpec {
        ttl: Some(Duration::from_secs(2)),
        on_expiry: OnExpiry::Pause,
        ..SandboxSpec::default()
    };
    let sandbox = stage.sandboxes.create(spec).await.unwrap();
    sh(&sandbox, "true").await;
    let until = Instant::now() + Duration::from_secs(10);
    while sandbox.status().state != State::Paused {
        assert!(Instant::now() < until, "{:?}", sandbox.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (output, end) = sh(&sandbox, "sleep 0.6; echo on").await;
    assert_eq!((output.as_str(), end), ("on\n", End::Exited(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_with_the_last_sandbox_over_them() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let children = stage
        .sandboxes
        .fork(&sandbox, 2, |spec| spec.labels.clear())
        .await
        .unwrap();
    sh(&children[0], "true").await;
    let layers = stage.folder.path().join("agent/layers");
    let count = || std::fs::read_dir(&layers).unwrap().count();
    assert_eq!(count(), 1, "one copy for both");
    for child in children {
        stage.sandboxes.remove(child.id()).await;
    }
    stage.sandboxes.collect_copies().await;
    assert_eq!(count(), 0);
}
