//! Snapshots, and the limit on the disk space of snapshots and images.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use treadle_sandbox::{SandboxError, SandboxSpec, Sandboxes};

use crate::stage::{Stage, config, sh};

fn of(image: &str, tenant: &str) -> SandboxSpec {
    SandboxSpec {
        image: image.to_owned(),
        tenant: tenant.to_owned(),
        ..SandboxSpec::default()
    }
}

/// A folder of this size, to become an image.
fn files(folder: &Path, name: &str, bytes: usize) -> PathBuf {
    let from = folder.join(name);
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("data"), vec![7_u8; bytes]).unwrap();
    from
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_outlives_its_sandbox_and_agent_and_is_private_to_its_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let sandboxes = Sandboxes::start(config.clone()).await.unwrap();
    let sandbox = sandboxes.create(of("", "ann")).await.unwrap();
    sh(&sandbox, "echo one > /root/a; rm /etc/hostname").await;
    let name = Some("prepared".to_owned());
    let snapshot = sandboxes.snapshot(&sandbox, name).await.unwrap();
    assert!(snapshot.disk_bytes > 0 && snapshot.sandbox == sandbox.id());
    sh(&sandbox, "echo two > /root/a").await;
    sandboxes.remove(sandbox.id()).await;
    sandboxes.collect_copies().await;
    sandboxes.stop().await;
    drop((sandbox, sandboxes));
    // The earlier agent's tasks release the folder a moment later.
    let began = Instant::now();
    let started = loop {
        match Sandboxes::start(config.clone()).await {
            Err(error) if began.elapsed() < Duration::from_secs(20) => {
                assert!(error.to_string().contains("another daemon"), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            started => break started,
        }
    };
    let stage = Stage {
        sandboxes: started.unwrap(),
        folder,
    };
    assert_eq!(stage.sandboxes.snapshots().len(), 1);
    for called in ["prepared", &*snapshot.id] {
        let again = stage.sandboxes.create(of(called, "ann")).await.unwrap();
        let (output, _) = sh(&again, "cat /root/a; test ! -e /etc/hostname && echo gone").await;
        assert_eq!(output, "one\ngone\n", "{called}");
        let refused = stage.sandboxes.create(of(called, "bob")).await;
        assert!(
            matches!(refused, Err(SandboxError::ImageUnknown(_))),
            "{called}"
        );
        let refused = stage.sandboxes.remove_snapshot("bob", called).await;
        assert!(
            matches!(refused, Err(SandboxError::SnapshotUnknown(_))),
            "{called}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_the_newest_and_files_are_kept_while_used() {
    let stage = Stage::with(|config| config.snapshots_max = 8).await;
    let (sandboxes, sandbox) = (&stage.sandboxes, stage.sandbox().await);
    sh(&sandbox, "echo one > /root/a").await;
    let name = || Some("a".to_owned());
    let first = sandboxes.snapshot(&sandbox, name()).await.unwrap();
    let of_first = sandboxes.create(of("a", "")).await.unwrap();
    sh(&sandbox, "echo two > /root/a").await;
    let second = sandboxes.snapshot(&sandbox, name()).await.unwrap();
    let all = sandboxes.snapshots();
    assert_eq!(
        all.iter().map(|one| &one.id).collect::<Vec<_>>(),
        [&second.id]
    );
    let gone = sandboxes.create(of(&first.id, "")).await;
    assert!(matches!(gone, Err(SandboxError::ImageUnknown(_))));
    assert!(sandboxes.collect_copies().await);
    assert_eq!(sh(&of_first, "cat /root/a").await.0, "one\n");
    let of_second = sandboxes.create(of("a", "")).await.unwrap();
    assert_eq!(sh(&of_second, "cat /root/a").await.0, "two\n");
    sandboxes.snapshot(&of_second, None).await.unwrap();
    let full = sandboxes.snapshot(&sandbox, None).await;
    let is_full = |error: &SandboxError| matches!(error, SandboxError::BeyondShare { most: 2, .. });
    assert!(
        full.as_ref().is_err_and(is_full),
        "a quarter is what a tenant has: {full:?}"
    );
    for bad in ["a/b", ".a", "", "system"] {
        let refused = sandboxes.snapshot(&sandbox, Some(bad.to_owned())).await;
        let told = refused.err().map(|error| error.to_string());
        assert!(told.is_some_and(|told| told.contains("`name`")), "{bad}");
    }
    sandboxes.remove_snapshot("", "a").await.unwrap();
    for made in [of_first, of_second] {
        sandboxes.remove(made.id()).await;
        stage.gone(&made).await;
    }
    assert!(sandboxes.collect_copies().await);
    let left = std::fs::read_dir(stage.folder.path().join("agent/layers")).unwrap();
    // The copy of the unnamed snapshot, and the one below it.
    assert_eq!(left.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_is_removed() {
    let stage = Stage::with(|config| config.images_bytes_max = 2_500_000).await;
    let sandboxes = &stage.sandboxes;
    for name in ["first", "second"] {
        let from = files(stage.folder.path(), name, 1_000_000);
        sandboxes.import(name, &from).await.unwrap();
    }
    assert_eq!(sandboxes.keep_within_budget().await, Vec::<String>::new());
    let used = sandboxes.create(of("first", "")).await.unwrap();
    sandboxes
        .import("third", &files(stage.folder.path(), "third", 1_000_000))
        .await
        .unwrap();
    assert_eq!(sandboxes.keep_within_budget().await, ["second"]);
    assert_eq!(sandboxes.images(), ["first", "system", "third"]);
    let sandbox = stage.sandbox().await;
    sh(&sandbox, "head -c 1000000 /dev/urandom > /root/data").await;
    let snapshot = sandboxes.snapshot(&sandbox, None).await.unwrap();
    let of_third = sandboxes.create(of("third", "")).await.unwrap();
    // Sandboxes use both images, and an unused snapshot is removed first.
    assert_eq!(sandboxes.keep_within_budget().await, [snapshot.id]);
    assert_eq!(sandboxes.images(), ["first", "system", "third"]);
    drop((used, of_third));
}
