//! Expected and unexpected ends: nothing is left of a removed sandbox, and only files outlive an
//! agent.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use treadle_sandbox::{End, Exec, Sandboxes, State};

use crate::stage::{Stage, cgroups_of, config, mounted_by, processes_of, sh, until};

/// Namespaces of a sandbox's process that are not the machine's.
fn spaces(process: i32) -> Vec<String> {
    let of = |process: &str| -> Vec<String> {
        let links = std::fs::read_dir(format!("/proc/{process}/ns"));
        let links = links.into_iter().flatten().flatten();
        let read = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        read.map(|link| link.display().to_string()).collect()
    };
    let own = of("self");
    let mut theirs = of(&process.to_string());
    theirs.retain(|space| !own.contains(space));
    theirs
}

/// Processes of the machine in one of these namespaces.
fn within(wanted: &[String]) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|process| spaces(*process).iter().any(|space| wanted.contains(space)))
        .collect()
}

const BUSY: &str = "sleep 600 > /dev/null 2>&1 & setsid sleep 600 > /dev/null 2>&1 & \
    (setsid sh -c 'kill -STOP $$' > /dev/null 2>&1 &); echo started; while :; do :; done";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_removed_sandbox() {
    let stage = Stage::new().await;
    for is_paused in [false, true] {
        let sandbox = stage.sandbox().await;
        let mut running = sandbox
            .run(Exec::new(["/bin/sh", "-c", BUSY]))
            .await
            .unwrap();
        running.next().await;
        let processes = processes_of(&sandbox);
        assert!(processes.len() >= 6, "{processes:?}");
        let mut spaces: Vec<_> = processes
            .iter()
            .flat_map(|process| spaces(*process))
            .collect();
        spaces.sort();
        spaces.dedup();
        // Mount, process, network, user, host name and IPC namespaces, and those of later children.
        assert!(spaces.len() >= 6, "{spaces:?}");
        if is_paused {
            sandbox.pause().await.unwrap();
        }
        stage.sandboxes.remove(sandbox.id()).await;
        let (end, _) = running.follow(Duration::from_secs(20), |_| ()).await;
        assert!(matches!(end, End::Gone | End::Killed(9)), "{end:?}");
        assert!(sandbox.run(Exec::new(["true"])).await.is_err());
        stage.gone(&sandbox).await;
        until("its namespaces are gone", || within(&spaces).is_empty()).await;
    }
    assert!(stage.sandboxes.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_removed_however_deep() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "perl -e 'chdir(\"/tmp\"); for (1..3000) { mkdir(\"d\") or die; chdir(\"d\") or die } open(F, \">f\")'; \
        mkdir /tmp/closed; touch /tmp/closed/f; chmod 0 /tmp/closed";
    let (output, end) = sh(&sandbox, line).await;
    assert_eq!(end, End::Exited(0), "{output}");
    // It is measured completely, and is no reason to stop it.
    until("it is measured", || sandbox.status().disk_bytes > 11 << 20).await;
    assert!(sandbox.status().disk_bytes < 64 << 20);
    assert_eq!(sandbox.status().state, State::Ready);
    stage.sandboxes.remove(sandbox.id()).await;
    stage.gone(&sandbox).await;
}

/// Whatever happens at the same time, it is removed, and nobody waits forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_may_be_removed_at_any_time() {
    let stage = Stage::new().await;
    for delay_ms in [0, 1, 5, 20, 60, 120] {
        let sandbox = stage.sandbox().await;
        let ran = tokio::spawn({
            let sandbox = sandbox.clone();
            async move { sandbox.run(Exec::new(["sleep", "600"])).await }
        });
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        stage.sandboxes.remove(sandbox.id()).await;
        if let Ok(mut running) = ran.await.unwrap() {
            running.follow(Duration::from_secs(20), |_| ()).await;
        }
        stage.gone(&sandbox).await;
        assert_eq!(sandbox.status().state, State::Removed);
    }
    for delay_ms in [0, 5, 20] {
        let sandbox = stage.sandbox().await;
        let line = "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/tmp/$i bs=1M count=5; done";
        assert_eq!(sh(&sandbox, line).await.1, End::Exited(0));
        let mut running = sandbox.run(Exec::new(["sleep", "600"])).await.unwrap();
        let forks = tokio::spawn({
            let (sandboxes, sandbox) = (stage.sandboxes.clone(), sandbox.clone());
            async move { sandboxes.fork(&sandbox, 2, |_| {}).await }
        });
        let pauses = tokio::spawn({
            let sandbox = sandbox.clone();
            async move {
                let _ = sandbox.pause().await;
                let _ = sandbox.resume().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        stage.sandboxes.remove(sandbox.id()).await;
        let (end, is_late) = running.follow(Duration::from_secs(20), |_| ()).await;
        assert!(!is_late, "{end:?}");
        pauses.await.unwrap();
        for child in forks.await.unwrap().unwrap_or_default() {
            let _ = child.run(Exec::new(["true"])).await;
            stage.sandboxes.remove(child.id()).await;
            stage.gone(&child).await;
        }
        stage.gone(&sandbox).await;
    }
}

/// An agent in a separate process; returns the process, and a running and a paused sandbox.
fn agent(folder: &Path) -> (std::process::Child, Vec<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treadle-sandbox-probe"));
    let command = command.arg("agent").arg(folder.join("agent"));
    let mut agent = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(agent.stdout.take().unwrap()).lines();
    let told = lines.map(Result::unwrap).take(2).collect();
    (agent, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outlive_an_agent_that_is_killed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (mut process, ids) = agent(folder.path());
    assert_eq!(ids.len(), 2);
    // Nobody else may use the folder meanwhile.
    let error = Sandboxes::start(config(folder.path())).await.err().unwrap();
    assert!(error.to_string().contains("another daemon"), "{error}");
    process.kill().unwrap();
    process.wait().unwrap();
    let sandboxes = Sandboxes::start(config(folder.path())).await.unwrap();
    let stage = Stage { sandboxes, folder };
    for id in &ids {
        let sandbox = stage.sandboxes.get(id).unwrap();
        assert_eq!(sandbox.status().state, State::Stopped);
        assert!(cgroups_of(&sandbox).is_empty());
        until("its mounts are gone", || mounted_by(id).is_empty()).await;
        assert_eq!(sh(&sandbox, "cat /kept; pgrep sleep").await.0, "kept\n");
        stage.sandboxes.remove(id).await;
        stage.gone(&sandbox).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_without_a_record_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut process, mut ids) = agent(folder.path());
    process.kill().unwrap();
    process.wait().unwrap();
    let sandboxes = folder.path().join("agent/sandboxes");
    let record = std::fs::read_to_string(sandboxes.join(&ids[0]).join("sandbox.json")).unwrap();
    // A record of another sandbox, a truncated one, and an invalid one.
    let records = [
        ("copy", record.as_str()),
        ("cut", &record[..20]),
        ("none", "\0"),
    ];
    for (name, text) in records {
        std::fs::create_dir(sandboxes.join(name)).unwrap();
        std::fs::write(sandboxes.join(name).join("sandbox.json"), text).unwrap();
    }
    std::fs::create_dir(sandboxes.join("empty")).unwrap();
    let started = Sandboxes::start(config(folder.path())).await.unwrap();
    let stage = Stage {
        sandboxes: started,
        folder,
    };
    let mut names: Vec<_> = std::fs::read_dir(sandboxes)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    ids.sort();
    assert_eq!(names, ids);
    assert_eq!(stage.sandboxes.list().len(), 2);
}
