//! Expiry of sandboxes, with simulated clocks.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::*;
use crate::clock::tests::Hands;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::platform::{Environment, Place, Platform};
use crate::record::{Record, SandboxSpec};

const HOUR: Duration = Duration::from_hours(1);

/// A platform on which nothing becomes ready.
#[derive(Debug)]
struct Nowhere;

#[async_trait]
impl Platform for Nowhere {
    async fn take_in(&self, _: &BTreeSet<String>) -> Result<(), SandboxError> {
        Ok(())
    }

    fn place(&self, _: &str, _: &str, _: &Path) -> Box<dyn Place> {
        Box::new(Self)
    }

    fn check_image(&self, _: &str) -> Result<(), SandboxError> {
        Ok(())
    }

    fn images(&self) -> Vec<String> {
        Vec::new()
    }

    async fn import(&self, _: &str, _: &Path, _: Option<&str>) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn remove_image(&self, _: &str) -> Result<(), SandboxError> {
        Ok(())
    }
}

#[async_trait]
impl Place for Nowhere {
    async fn make(&self, _: &Record) -> io::Result<Arc<dyn Environment>> {
        std::future::pending().await
    }

    async fn end(&self) -> bool {
        true
    }

    async fn remove(&self) -> bool {
        true
    }

    async fn freeze(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    async fn copy(&self, _: &str, _: bool) -> io::Result<()> {
        Ok(())
    }

    async fn disk_bytes(&self) -> Option<u64> {
        None
    }

    fn give(&self, _: &[&[u32]]) -> io::Result<()> {
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn out_of_memory(&self) -> u64 {
        0
    }
}

struct Stage {
    hands: Arc<Hands>,
    sandboxes: Sandboxes,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let (folder, hands) = (tempfile::tempdir().unwrap(), Hands::new());
        let work = folder.path().to_owned();
        let mut config = SandboxConfig::new("none".into(), Vec::new(), work, vec![0]);
        config.clock = hands.clone();
        let sandboxes = Sandboxes::start_on(Arc::new(Nowhere), config).await;
        Self {
            hands,
            sandboxes: sandboxes.unwrap(),
            _folder: folder,
        }
    }

    /// A sandbox in this state, without a change in progress.
    async fn sandbox(&self, on_expiry: OnExpiry, state: State) -> Arc<Sandbox> {
        let spec = SandboxSpec {
            ttl: Some(HOUR),
            on_expiry,
            ..SandboxSpec::default()
        };
        let sandbox = self.sandboxes.put(spec, Vec::new()).await.unwrap();
        if !matches!(state, State::Failed(_)) {
            sandbox.live_for(HOUR).unwrap();
        }
        sandbox.set(state);
        sandbox
    }

    fn due(&self, sandbox: &Arc<Sandbox>) -> Option<Due> {
        let due = self.sandboxes.due();
        let found = due.iter().find(|(one, _)| one.id == sandbox.id);
        found.map(|(_, due)| *due)
    }
}

#[tokio::test]
async fn lifetimes_do_not_depend_on_the_wall_clock() {
    let stage = Stage::new().await;
    let failed = State::Failed("no room".to_owned());
    let cases = [
        (OnExpiry::Remove, State::Ready, HOUR, Due::Removal),
        (OnExpiry::Remove, State::Stopped, HOUR, Due::Removal),
        (OnExpiry::Pause, State::Ready, HOUR, Due::Pause),
        (
            OnExpiry::Pause,
            State::Paused,
            HOUR + PAUSED_MAX,
            Due::Removal,
        ),
        (OnExpiry::Remove, failed, FAILED_MAX, Due::Removal),
    ];
    for (on_expiry, state, lives, due) in cases {
        let sandbox = stage.sandbox(on_expiry, state.clone()).await;
        let wall_us = stage.hands.0.lock().unwrap().2;
        for set in [wall_us + 1_200_000_000, wall_us * 2, 0] {
            stage.hands.turn(|hands| hands.2 = set);
            assert_eq!(stage.due(&sandbox), None, "{state:?} at {set}");
        }
        stage.hands.turn(|hands| hands.2 = wall_us);
        stage
            .hands
            .pass(lives.saturating_sub(Duration::from_secs(1)));
        assert_eq!(stage.due(&sandbox), None, "{state:?}");
        stage.hands.turn(|hands| hands.2 = 0);
        stage.hands.pass(Duration::from_secs(1));
        assert_eq!(stage.due(&sandbox), Some(due), "{state:?}");
    }
}

#[tokio::test]
async fn the_displayed_expiry_follows_the_wall_clock() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox(OnExpiry::Remove, State::Ready).await;
    let told = || sandbox.status().expires_at_us.unwrap();
    let (first, day) = (told(), 86_400_000_000);
    stage.hands.pass(HOUR / 2);
    assert_eq!(told(), first);
    stage.hands.turn(|hands| hands.2 += 1_000);
    assert_eq!(told(), first, "clocks differ a little");
    stage.hands.turn(|hands| hands.2 += day);
    assert_eq!(told(), first + 1_000 + day);
    assert_eq!(sandbox.status().age, HOUR / 2);
    assert_eq!(stage.sandboxes.counters().prepared, 0);
}

#[tokio::test]
async fn an_agent_continues_with_the_remaining_lifetime() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox(OnExpiry::Remove, State::Ready).await;
    stage.hands.pass(HOUR / 2);
    let clock = &stage.sandboxes.0.agent.clock;
    let noted = sandbox.lock().record.clone();
    let left = |record: &Record| {
        let left = record.life.unwrap().ends_us.checked_sub(clock.now_us());
        Duration::from_micros(left.unwrap())
    };
    let taken_in = |mut record: Record| {
        record.take_in(HOUR, clock);
        record
    };
    stage.hands.turn(|hands| hands.2 += 1_200_000_000);
    assert_eq!(left(&taken_in(noted.clone())), HOUR / 2);
    // The previous agent's clock was lost: its times are far ahead.
    let mut ahead = noted.clone();
    ahead.life.as_mut().unwrap().ends_us += 1 << 50;
    ahead.made_us += 1 << 50;
    let ahead = taken_in(ahead);
    assert_eq!(left(&ahead), HOUR);
    assert!(ahead.made_us <= clock.now_us());
    // Older agents recorded times of the wall clock.
    let older = Record {
        life: None,
        expires_at_us: Some(clock.wall_us() + 7_000_000),
        ..noted.clone()
    };
    assert_eq!(left(&taken_in(older)), Duration::from_secs(7));
    let never_ready = Record {
        life: None,
        expires_at_us: None,
        ..noted
    };
    assert_eq!(left(&taken_in(never_ready)), HOUR);
}
