//! A node with one engine beside it, as most tests of slot files want it.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use treadle_model::EngineKind;
use treadle_transfer::{
    Executors, Import, KvCopy, KvExecutor, Limits, Settings, Tier, TierSettings, WorkerRef,
};

use super::{Engine, Slots, export, ids};

const BYTES_MAX: u64 = 100_000;

/// A node: a tier, an engine beside it, and who moves KV between them.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) tier: Tier,
    pub(crate) executors: Executors,
    pub(crate) slots: Slots,
    pub(crate) engine: Engine,
}

pub(crate) fn settings(folder: &Path, bytes_max: u64) -> TierSettings {
    TierSettings {
        folder: folder.join("tier"),
        slots_folder: folder.join("slots"),
        bytes_max,
        node: "here".into(),
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        export: Duration::from_secs(5),
        import: Duration::from_secs(5),
        ..Limits::default()
    }
}

/// A tier whose files may still be in use by its previous owner.
pub(crate) async fn reopened(settings: &TierSettings) -> Tier {
    let began = std::time::Instant::now();
    loop {
        match Tier::open(settings) {
            Ok(tier) => return tier,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(5), "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn fixture_with(bytes_max: u64) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let tier = Tier::open(&settings(folder.path(), bytes_max)).unwrap();
    let executors = Executors::new(Settings {
        tier: Some(tier.clone()),
        limits: limits(),
        ..Settings::default()
    });
    let slots = Slots::new(folder.path().join("slots"));
    let engine = slots.serve().await;
    Fixture {
        folder,
        tier,
        executors,
        slots,
        engine,
    }
}

pub(crate) async fn fixture() -> Fixture {
    fixture_with(BYTES_MAX).await
}

impl Fixture {
    pub(crate) fn worker(&self) -> WorkerRef {
        self.engine.worker(EngineKind::Llamacpp)
    }

    /// Has a program's KV copied out of slot 0.
    pub(crate) async fn copy(&self, program: u32, tokens: u32) -> KvCopy {
        let held = ids(program, tokens);
        self.slots.put(0, &held);
        let asked = export(self.worker(), program.into(), &held);
        self.executors.export(asked).await.unwrap()
    }

    /// Names in the tier's folder and in the engines', without the lock.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = ["tier", "slots"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(self.folder.path().join(folder)).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "lock")
            .collect();
        names.sort();
        names
    }

    /// Waits until these are there and nothing else: files go a moment after their transfers.
    pub(crate) async fn until_files(&self, names: &[String]) {
        self.until(|files| files == names).await;
    }

    /// Waits until this number of bytes is taken: room is free again after its file is gone.
    pub(crate) async fn until_bytes(&self, bytes: u64) {
        let began = std::time::Instant::now();
        while self.tier.usage().bytes != bytes {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{:?}",
                self.tier.usage()
            );
            tokio::task::yield_now().await;
        }
    }

    /// Waits until this number of files is there.
    pub(crate) async fn until_so_many(&self, files: usize) {
        self.until(|names| names.len() == files).await;
    }

    pub(crate) async fn until(&self, is_right: impl Fn(&[String]) -> bool) {
        let began = std::time::Instant::now();
        while !is_right(&self.files()) {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{:?}",
                self.files()
            );
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn refused(&self, import: Import) -> &'static str {
        let error = self.executors.import(import).await.unwrap_err();
        error.code()
    }
}
