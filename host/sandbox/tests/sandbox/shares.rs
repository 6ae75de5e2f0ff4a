//! Tenants that share an agent: one uses as much as it can, and the other still has its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use treadle_sandbox::{
    End, Event, Exec, Running, Sandbox, SandboxConfig, SandboxError, SandboxSpec, Shared, Shares,
    State,
};

use crate::stage::{Stage, sh};

/// Two tenants, each with a share of one half.
#[derive(Debug)]
struct Halves;

impl Shares for Halves {
    fn most(&self, _: &str, _: Shared, all: u64) -> u64 {
        all / 2
    }
}

async fn stage(change: impl FnOnce(&mut SandboxConfig)) -> Stage {
    let halves = |config: &mut SandboxConfig| {
        config.shares = Arc::new(Halves);
        change(config);
    };
    Stage::with(halves).await
}

async fn made(stage: &Stage, tenant: &str) -> Result<Arc<Sandbox>, SandboxError> {
    let tenant = tenant.to_owned();
    let spec = SandboxSpec {
        tenant,
        ..SandboxSpec::default()
    };
    stage.sandboxes.create(spec).await
}

fn is_beyond<T>(made: &Result<T, SandboxError>, shared: Shared) -> bool {
    matches!(made, Err(SandboxError::BeyondShare { of, .. }) if *of == shared)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_its_share_of_sandboxes_by_whatever_way_they_are_made() {
    let stage = stage(|config| config.sandboxes_max = 4).await;
    let first = made(&stage, "red").await.unwrap();
    let forked = stage.sandboxes.fork(&first, 5, |_| {}).await.unwrap();
    assert_eq!(forked.len(), 1, "as many as there is room for");
    assert!(is_beyond(&made(&stage, "red").await, Shared::Sandboxes));
    let refused = stage.sandboxes.fork(&first, 1, |_| {}).await;
    assert!(is_beyond(&refused, Shared::Sandboxes));
    first.pause().await.unwrap();
    assert!(
        is_beyond(&made(&stage, "red").await, Shared::Sandboxes),
        "paused ones count"
    );
    for _ in 0..2 {
        made(&stage, "blue").await.unwrap();
    }
    stage.sandboxes.remove(first.id()).await;
    made(&stage, "red").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_its_share_of_bytes_for_snapshots_and_copies() {
    let stage = stage(|config| config.copies_bytes_max = 6_000_000).await;
    let sandboxes = &stage.sandboxes;
    let [red, blue] = [
        made(&stage, "red").await.unwrap(),
        made(&stage, "blue").await.unwrap(),
    ];
    for sandbox in [&red, &blue] {
        sh(sandbox, "head -c 1200000 /dev/urandom > /root/data").await;
    }
    let named = || Some("state".to_owned());
    let first = sandboxes.snapshot(&red, None).await.unwrap();
    let fork = sandboxes.fork(&red, 1, |_| {}).await.unwrap().remove(0);
    assert!(is_beyond(
        &sandboxes.snapshot(&red, named()).await,
        Shared::CopiesBytes
    ));
    assert!(is_beyond(
        &sandboxes.fork(&red, 1, |_| {}).await,
        Shared::CopiesBytes
    ));
    for _ in 0..2 {
        sandboxes.snapshot(&blue, None).await.unwrap();
    }
    // Removal frees room at once, before its files are collected.
    sandboxes.remove_snapshot("red", &first.id).await.unwrap();
    sandboxes.snapshot(&red, named()).await.unwrap();
    sandboxes.remove(fork.id()).await;
    for _ in 0..3 {
        sandboxes.snapshot(&red, named()).await.unwrap();
    }
    let layers = stage.folder.path().join("agent/layers");
    assert!(
        std::fs::read_dir(layers).unwrap().count() <= 4,
        "nothing is left over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_its_share_of_bytes_for_files() {
    let stage = stage(|config| config.files_bytes_max = 40_000_000).await;
    let mut red = Vec::new();
    for _ in 0..2 {
        let sandbox = made(&stage, "red").await.unwrap();
        sh(&sandbox, "head -c 15000000 /dev/urandom > /root/data").await;
        red.push(sandbox);
    }
    let began = Instant::now();
    let stopped = || red.iter().any(|one| one.status().state == State::Stopped);
    while !stopped() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "one of them is stopped"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_beyond(&made(&stage, "red").await, Shared::FilesBytes));
    let blue = made(&stage, "blue").await.unwrap();
    let (_, end) = sh(
        &blue,
        "head -c 15000000 /dev/urandom > /root/data; echo done",
    )
    .await;
    assert_eq!(end, End::Exited(0));
    stage.sandboxes.remove(red[0].id()).await;
    while made(&stage, "red").await.is_err() {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "it goes on with less"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Tenants with equal parts, whose number changes.
#[derive(Debug)]
struct Parts(Arc<AtomicU64>);

impl Shares for Parts {
    fn most(&self, _: &str, _: Shared, all: u64) -> u64 {
        all / self.0.load(Ordering::Relaxed)
    }
}

/// A command that takes 80 MiB, and ends this many seconds after it has them.
fn takes_memory(seconds: u32) -> Exec {
    let line = format!(
        "exec python3 -c 'import time; x = bytearray(b\"x\") * (80 << 20); \
         print(\"has it\", flush=True); time.sleep({seconds})'"
    );
    Exec::new(["/bin/sh", "-c", &line])
}

/// Starts a command that keeps 80 MiB.
async fn keeps_memory(sandbox: &Arc<Sandbox>) -> Running {
    let mut running = sandbox.run(takes_memory(600)).await.unwrap();
    let told = running.next().await;
    assert!(matches!(told, Event::Output(_)), "{told:?}");
    running
}

async fn ends(mut running: Running) -> End {
    let (end, is_late) = running.follow(Duration::from_secs(30), |_| ()).await;
    assert!(!is_late, "it did not end");
    end
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_its_share_of_memory_in_all_its_sandboxes() {
    let stage = stage(|config| config.memory_bytes_all = 256 << 20).await;
    let [first, second, blue] = [
        made(&stage, "red").await.unwrap(),
        made(&stage, "red").await.unwrap(),
        made(&stage, "blue").await.unwrap(),
    ];
    let holds = keeps_memory(&first).await;
    let takes = second.run(takes_memory(600)).await.unwrap();
    // The kernel ends either, although each has less than a sandbox may have.
    let end = tokio::select! {
        end = ends(holds) => end,
        end = ends(takes) => end,
    };
    assert_eq!(end, End::OutOfMemory);
    let takes = blue.run(takes_memory(0)).await.unwrap();
    assert_eq!(ends(takes).await, End::Exited(0), "its share is left");

    let spec = SandboxSpec {
        tenant: "red".to_owned(),
        memory_bytes: Some(200 << 20),
        ..SandboxSpec::default()
    };
    let refused = stage.sandboxes.create(spec).await;
    assert!(is_beyond(&refused, Shared::MemoryBytes), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_taken_from_a_tenant_whose_share_became_smaller() {
    let parts = Arc::new(AtomicU64::new(1));
    let shares = Arc::new(Parts(parts.clone()));
    let stage = Stage::with(|config| {
        config.memory_bytes_all = 256 << 20;
        config.shares = shares;
    })
    .await;
    let red = made(&stage, "red").await.unwrap();
    let holds = keeps_memory(&red).await;
    parts.store(4, Ordering::Relaxed);
    assert_ne!(ends(holds).await, End::Exited(0));
}
