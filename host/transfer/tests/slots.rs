//! Slot files through a tier: what comes back is what went in, or nothing.

#[allow(dead_code, reason = "each test uses some of it")]
mod engines;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use engines::{Engine, Slots, export, ids, import, tags};
use tempfile::TempDir;
use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{
    Executors, KvCopy, KvExecutor, Limits, Means, Settings, Tags, Tier, TierSettings, WorkerRef,
};

const BYTES_MAX: u64 = 100_000;

/// A node: a tier, an engine beside it, and who moves KV between them.
struct Stand {
    folder: TempDir,
    tier: Tier,
    executors: Executors,
    slots: Slots,
    engine: Engine,
}

fn settings(folder: &Path, bytes_max: u64) -> TierSettings {
    TierSettings {
        folder: folder.join("tier"),
        slots_folder: folder.join("slots"),
        bytes_max,
        node: "here".into(),
    }
}

fn limits() -> Limits {
    Limits {
        export: Duration::from_secs(5),
        import: Duration::from_secs(5),
        ..Limits::default()
    }
}

async fn stand_with(bytes_max: u64) -> Stand {
    let folder = tempfile::tempdir().unwrap();
    let tier = Tier::open(&settings(folder.path(), bytes_max)).unwrap();
    let executors = Executors::new(Settings {
        tier: Some(tier.clone()),
        limits: limits(),
        ..Settings::default()
    });
    let slots = Slots::new(folder.path().join("slots"));
    let engine = slots.serve().await;
    Stand {
        folder,
        tier,
        executors,
        slots,
        engine,
    }
}

async fn stand() -> Stand {
    stand_with(BYTES_MAX).await
}

impl Stand {
    fn worker(&self) -> WorkerRef {
        self.engine.worker(EngineKind::Llamacpp)
    }

    /// Has a program's KV copied out of slot 0.
    async fn copy(&self, program: u32, tokens: u32) -> KvCopy {
        let held = ids(program, tokens);
        self.slots.put(0, &held);
        let asked = export(self.worker(), program.into(), &held);
        self.executors.export(asked).await.unwrap()
    }

    /// Names in the tier's folder and in the engines', without the lock.
    fn files(&self) -> Vec<String> {
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
    async fn until_files(&self, names: &[String]) {
        self.until(|files| files == names).await;
    }

    /// Waits until so many are there.
    async fn until_so_many(&self, files: usize) {
        self.until(|names| names.len() == files).await;
    }

    async fn until(&self, is_right: impl Fn(&[String]) -> bool) {
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

    async fn refused(&self, import: treadle_transfer::Import) -> &'static str {
        let error = self.executors.import(import).await.unwrap_err();
        error.code()
    }
}

#[tokio::test]
async fn a_copy_comes_back_as_it_went_out() {
    let stand = stand().await;
    let support = stand.executors.support(stand.worker()).await.unwrap();
    assert_eq!(support.means, Means::SlotFiles);
    assert!(support.offload && support.migrate);
    let held = ids(1, 50);
    stand.slots.put(0, &held);
    let asked = export(stand.worker(), 1, &held);
    let copy = stand.executors.export(asked).await.unwrap();
    assert_eq!(copy.prefix.tokens, 50);
    // Whoever has given the transfer up meanwhile finds it where it was.
    assert_eq!(stand.slots.get(0), held);
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["save"]);
    assert_eq!(stand.tier.usage().bytes, copy.bytes);
    let handle = copy.to_handle().unwrap();
    let copy = KvCopy::from_handle(&handle).unwrap();
    let longer = [&held[..], &[5, 6, 7]].concat();
    let taken = stand
        .executors
        .import(import(stand.worker(), &copy, &longer));
    assert_eq!(taken.await.unwrap().tokens, 50);
    assert_eq!(stand.slots.get(1), held);
    // One copy and its handle.
    stand.until_so_many(2).await;
    stand.executors.drop(copy.clone()).await.unwrap();
    stand.executors.drop(copy.clone()).await.unwrap();
    stand.until_files(&[]).await;
    assert_eq!(stand.tier.usage().bytes, 0);
    let late = import(stand.worker(), &copy, &held);
    assert_eq!(stand.refused(late).await, "gone");
}

#[tokio::test]
async fn what_is_not_the_programs_is_not_restored() {
    let stand = stand().await;
    let copy = stand.copy(1, 50).await;
    let held = ids(1, 50);
    let right = import(stand.worker(), &copy, &held);
    let tagged = |tags: Tags| treadle_transfer::Import {
        tags,
        ..right.clone()
    };
    let model = tagged(Tags {
        model: "other".into(),
        ..tags()
    });
    assert_eq!(stand.refused(model).await, "other-tags");
    let weights = tagged(Tags {
        weights: "2".into(),
        ..tags()
    });
    assert_eq!(stand.refused(weights).await, "other-tags");
    let program = treadle_transfer::Import {
        program: ProgramId(2),
        ..right.clone()
    };
    assert_eq!(stand.refused(program).await, "other-program");
    let prefix = import(stand.worker(), &copy, &ids(2, 60));
    assert_eq!(stand.refused(prefix).await, "other-prefix");
    let shorter = import(stand.worker(), &copy, &held[..49]);
    assert_eq!(stand.refused(shorter).await, "other-prefix");
    let mut forged = right.clone();
    forged.copy.tags.weights = "2".into();
    forged.tags.weights = "2".into();
    assert_eq!(stand.refused(forged).await, "wrong-handle");
    let mut unknown = right.clone();
    unknown.copy.id = treadle_transfer::CopyId::random().unwrap();
    assert_eq!(stand.refused(unknown).await, "gone");
    let mut slotless = right.clone();
    slotless.slot = None;
    assert_eq!(stand.refused(slotless).await, "incomplete");
    let mut beyond = right;
    beyond.slot = Some(4);
    assert_eq!(stand.refused(beyond).await, "unsupported");
    let asked = stand.slots.asked.lock().unwrap().clone();
    assert_eq!(asked, ["save"], "no restore was tried");
    stand.until_so_many(2).await;
}

#[tokio::test]
async fn a_server_that_has_another_model_by_now_is_found_out() {
    let stand = stand().await;
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    let back = import(stand.worker(), &copy, &held);
    // Who asks does not know of it yet: neither the name nor the file.
    for (name, file) in [("other", "tiny.gguf"), ("tiny", "other.gguf")] {
        stand.slots.become_another(name, file);
        assert_eq!(stand.refused(back.clone()).await, "other-tags");
    }
    stand.slots.become_another("other", "tiny.gguf");
    let out = export(stand.worker(), 1, &held);
    let error = stand.executors.export(out).await.unwrap_err();
    assert_eq!(
        error.code(),
        "other-tags",
        "who asks takes it for the first"
    );
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["save"], "nothing else");
    stand.slots.become_another("tiny", "tiny.gguf");
    stand.executors.import(back).await.unwrap();
}

#[tokio::test]
async fn a_server_that_becomes_another_in_mid_transfer_is_found_out() {
    let stand = stand().await;
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    let before = stand.tier.usage();
    for back in [true, false] {
        stand.slots.become_another("tiny", "tiny.gguf");
        stand.slots.asked.lock().unwrap().clear();
        stand.slots.free.forget_permits(usize::MAX);
        let swapped = async {
            stand.slots.until_asked(1).await;
            stand.slots.become_another("tiny", "other.gguf");
            stand.slots.free.add_permits(10);
        };
        let code = async {
            if back {
                stand.refused(import(stand.worker(), &copy, &held)).await
            } else {
                let asked = export(stand.worker(), 1, &held);
                stand.executors.export(asked).await.unwrap_err().code()
            }
        };
        let (code, ()) = tokio::join!(code, swapped);
        assert_eq!(code, "not-taken");
    }
    assert_eq!(stand.slots.get(1), Vec::<u32>::new(), "emptied again");
    assert_eq!(stand.tier.usage(), before, "nothing was kept");
    // One that changes while a transfer waits for its turn, too.
    stand.slots.become_another("tiny", "tiny.gguf");
    stand.slots.asked.lock().unwrap().clear();
    stand.slots.free.forget_permits(usize::MAX);
    let first = stand.refused(import(stand.worker(), &copy, &held));
    let second = stand.refused(import(stand.worker(), &copy, &held));
    let swapped = async {
        stand.slots.until_asked(1).await;
        stand.slots.become_another("other", "other.gguf");
        stand.slots.free.add_permits(10);
    };
    let (first, second, ()) = tokio::join!(first, second, swapped);
    assert_eq!([first, second], ["not-taken", "other-tags"]);
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["restore", "erase"]);
}

#[tokio::test]
async fn a_slot_of_another_program_is_no_copy() {
    let stand = stand().await;
    stand.slots.put(0, &ids(2, 50));
    let asked = export(stand.worker(), 1, &ids(1, 60));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "other-prefix");
    stand.slots.put(0, &[]);
    let asked = export(stand.worker(), 1, &ids(1, 60));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "not-taken");
    // Where its tokens are not known, their number is.
    for tokens in [29, 121] {
        stand.slots.put(0, &ids(2, tokens));
        let mut asked = export(stand.worker(), 1, &ids(1, 60));
        asked.prompt = None;
        let error = stand.executors.export(asked).await.unwrap_err();
        assert_eq!(error.code(), "other-prefix");
    }
    stand.until_files(&[]).await;
    assert_eq!(stand.tier.usage().bytes, 0);
}

#[tokio::test]
async fn damage_is_found_before_the_engine_sees_it() {
    let stand = stand().await;
    for damage in [
        (|bytes: &mut Vec<u8>| bytes[900] ^= 1) as fn(&mut Vec<u8>),
        |bytes| bytes.truncate(1_000),
        Vec::clear,
        |bytes| bytes.push(0),
    ] {
        let copy = stand.copy(1, 50).await;
        let path = stand.folder.path().join(format!("tier/{}.kv", copy.id));
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let asked = import(stand.worker(), &copy, &ids(1, 50));
        assert_eq!(stand.refused(asked.clone()).await, "damaged");
        assert_eq!(stand.refused(asked).await, "gone");
        stand.until_files(&[]).await;
    }
    assert_eq!(stand.slots.get(1), Vec::<u32>::new());
    assert!(
        !stand
            .slots
            .asked
            .lock()
            .unwrap()
            .contains(&"restore".into())
    );
}

#[tokio::test]
async fn a_busy_slot_is_waited_for_up_to_a_bound_and_nothing_is_left() {
    let stand = stand().await;
    let hasty = Executors::new(Settings {
        tier: Some(stand.tier.clone()),
        limits: Limits {
            export: Duration::from_millis(100),
            import: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    });
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    stand.slots.free.forget_permits(usize::MAX);
    let asked = export(stand.worker(), 1, &held);
    let error = hasty.export(asked.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let back = import(stand.worker(), &copy, &held);
    let error = hasty.import(back.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let (kv, handle) = (format!("{}.kv", copy.id), format!("{}.json", copy.id));
    // The copy stays, its stage goes.
    stand.until_files(&[handle, kv]).await;
    assert_eq!(stand.tier.usage().in_transfer, 0);
    stand.slots.free.add_permits(10);
    stand.executors.import(back).await.unwrap();
    stand.executors.export(asked).await.unwrap();
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_nothing() {
    let stand = stand().await;
    let held = ids(1, 50);
    stand.slots.put(0, &held);
    stand.executors.support(stand.worker()).await.unwrap();
    stand.slots.free.forget_permits(usize::MAX);
    {
        let mut export = std::pin::pin!(stand.executors.export(export(stand.worker(), 1, &held)));
        let asked = async {
            while stand.slots.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = asked => {}
            copy = &mut export => panic!("{copy:?}"),
        }
    }
    // The engine may come to it although nobody waits: its file is swept up by the next transfer.
    stand.slots.free.add_permits(10);
    let copy = stand.copy(2, 50).await;
    stand.until_so_many(2).await;
    stand.executors.drop(copy).await.unwrap();
    stand.until_files(&[]).await;
}

#[tokio::test]
async fn the_tier_keeps_its_bound_and_says_who_gave_way() {
    let stand = stand_with(12_000).await;
    // 50 tokens have some 5,200 bytes, so two copies fit.
    let (first, second) = (stand.copy(1, 50).await, stand.copy(2, 50).await);
    let back = import(stand.worker(), &first, &ids(1, 50));
    stand.executors.import(back).await.unwrap();
    let third = stand.copy(3, 50).await;
    let gone = stand.tier.evictions().next().await;
    assert_eq!((gone.id, gone.program), (second.id, ProgramId(2)));
    assert_eq!(stand.tier.evictions().take(9), []);
    assert_eq!(stand.tier.copies(), [first.clone(), third.clone()]);
    stand.until_so_many(4).await;
    // With one of them in transfer there is room for one more, not for two.
    stand.slots.free.forget_permits(usize::MAX);
    let worker = stand.worker();
    let beside = Slots::new(stand.folder.path().join("slots"));
    let other = beside.serve().await;
    let asked = stand.executors.import(import(worker, &first, &ids(1, 50)));
    let restoring = async {
        while stand.tier.usage().in_transfer == 0 {
            tokio::task::yield_now().await;
        }
        let large = ids(4, 70);
        beside.put(0, &large);
        let worker = other.worker(EngineKind::Llamacpp);
        let error = stand.executors.export(export(worker, 4, &large)).await;
        assert_eq!(error.unwrap_err().code(), "tier-full");
        let asked = beside.asked.lock().unwrap().clone();
        assert_eq!(asked, Vec::<String>::new(), "no file was written in vain");
        assert_eq!(stand.tier.copies().len(), 2, "nobody gave way in vain");
        stand.slots.free.add_permits(10);
    };
    let (taken, ()) = tokio::join!(asked, restoring);
    taken.unwrap();
    assert!(stand.tier.usage().bytes <= 12_000);
}

#[tokio::test]
async fn what_is_there_twice_has_room_for_two() {
    let (folder, shared) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm"),
    );
    let shared = shared.unwrap();
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let crosses = device(folder.path()) != device(shared.path());
    for (bytes_max, fits) in [(6_000, !crosses), (12_000, true)] {
        let settings = TierSettings {
            slots_folder: shared.path().into(),
            ..settings(folder.path(), bytes_max)
        };
        let tier = Tier::open(&settings).unwrap();
        let executors = Executors::new(Settings {
            tier: Some(tier.clone()),
            limits: limits(),
            ..Settings::default()
        });
        let slots = Slots::new(shared.path());
        let engine = slots.serve().await;
        let worker = engine.worker(EngineKind::Llamacpp);
        let held = ids(1, 50);
        slots.put(0, &held);
        let copied = executors.export(export(worker.clone(), 1, &held)).await;
        match copied {
            Ok(copy) => {
                let taken = executors.import(import(worker, &copy, &held)).await;
                assert_eq!(taken.unwrap().tokens, 50);
            }
            Err(error) => assert_eq!(error.code(), "tier-full"),
        }
        assert_eq!(tier.usage().copies, usize::from(fits));
    }
}

#[tokio::test]
async fn a_folder_that_is_not_the_engines_is_told() {
    let stand = stand().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let slots = Slots::new(elsewhere.path());
    slots.put(0, &ids(1, 50));
    let engine = slots.serve().await;
    let asked = export(engine.worker(EngineKind::Llamacpp), 1, &ids(1, 50));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "file");
    assert!(error.to_string().contains("--slot-save-path"), "{error}");
}

#[tokio::test]
async fn a_dead_engine_is_told() {
    let stand = stand().await;
    let copy = stand.copy(1, 50).await;
    let worker = stand.worker();
    drop(stand.engine);
    let asked = export(worker.clone(), 1, &ids(1, 50));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    let asked = import(worker, &copy, &ids(1, 50));
    let error = stand.executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    assert_eq!(stand.tier.usage().in_transfer, 0);
}

#[tokio::test]
async fn the_next_process_takes_over_what_is_whole() {
    let stand = stand().await;
    let (first, second) = (stand.copy(1, 50).await, stand.copy(2, 60).await);
    let third = stand.copy(3, 50).await;
    let settings = settings(stand.folder.path(), 12_000);
    assert!(Tier::open(&settings).is_err(), "one process at a time");
    let Stand {
        folder,
        tier,
        executors,
        slots: _slots,
        engine,
    } = stand;
    drop((tier, executors, engine));
    let in_tier = |name: String| folder.path().join("tier").join(name);
    // What a killed process may leave: a copy that came in, one without its handle, a handle without
    // its copy, and half of a copy.
    let id = treadle_transfer::CopyId::random().unwrap();
    std::fs::write(in_tier(format!("{id}.part")), "x").unwrap();
    let id = treadle_transfer::CopyId::random().unwrap();
    std::fs::write(in_tier(format!("{id}.kv")), "x").unwrap();
    std::fs::write(in_tier("notes.txt".into()), "mine").unwrap();
    std::fs::write(in_tier(format!("{}.kv", third.id)), "half").unwrap();
    let tier = Tier::open(&settings).unwrap();
    assert_eq!(tier.copies(), [first.clone(), second.clone()]);
    assert_eq!(tier.usage().bytes, first.bytes + second.bytes);
    let names = std::fs::read_dir(folder.path().join("tier")).unwrap();
    assert_eq!(
        names.count(),
        6,
        "two copies, the lock, and what is not ours"
    );
    drop(tier);
    let smaller = TierSettings {
        bytes_max: 8_000,
        ..settings
    };
    let tier = Tier::open(&smaller).unwrap();
    assert_eq!(tier.copies(), [second]);
    assert_eq!(tier.evictions().next().await.id, first.id);
}
