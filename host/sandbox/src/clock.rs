//! The agent's clock for the lifetimes of sandboxes. It runs while the machine runs, continues
//! across restarts of the agent, stops while the machine is off, and can't be set. The wall clock
//! is used only for display.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Name of the file in the agent's folder.
const FILE: &str = "clock.json";

/// The clocks of a machine.
pub trait MachineClock: Debug + Send + Sync {
    /// Id of the machine's current boot.
    fn boot(&self) -> String;

    /// Time since boot, in microseconds.
    fn running_us(&self) -> u64;

    /// The wall clock: microseconds since 1970.
    fn wall_us(&self) -> u64;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl MachineClock for ThisMachine {
    fn boot(&self) -> String {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    }

    fn running_us(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
    }

    fn wall_us(&self) -> u64 {
        now_us()
    }
}

/// This machine's wall clock in microseconds since 1970, for display.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}

/// A reading of both clocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    /// Id of the boot.
    boot: String,
    /// Time since boot.
    running_us: u64,
    /// The agent's clock at that time.
    agent_us: u64,
}

/// The agent's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    machine: Arc<dyn MachineClock>,
    base: Mark,
    folder: PathBuf,
}

impl Clock {
    /// Opens the clock of the agent with this folder, continuing the previous agent's. After a
    /// reboot, its time is known to about a minute.
    pub(crate) fn open(folder: &Path, machine: Arc<dyn MachineClock>) -> io::Result<Self> {
        let noted = match fs::read(folder.join(FILE)) {
            Ok(text) => serde_json::from_slice::<Mark>(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (boot, running_us) = (machine.boot(), machine.running_us());
        let since = |mark: &Mark| {
            let is_same_run = mark.boot == boot;
            is_same_run.then(|| running_us.saturating_sub(mark.running_us))
        };
        let agent_us = noted.map_or(0, |mark| mark.agent_us + since(&mark).unwrap_or(0));
        let base = Mark {
            boot,
            running_us,
            agent_us,
        };
        let folder = folder.to_owned();
        let clock = Self {
            machine,
            base,
            folder,
        };
        clock.note()?;
        Ok(clock)
    }

    /// The current time in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        let ran = self.machine.running_us();
        self.base.agent_us + ran.saturating_sub(self.base.running_us)
    }

    /// Microseconds since 1970.
    pub(crate) fn wall_us(&self) -> u64 {
        self.machine.wall_us()
    }

    /// The wall clock's time at a time of this clock, in microseconds since 1970.
    pub(crate) fn wall_at(&self, at_us: u64) -> u64 {
        let (now, wall) = (self.now_us(), self.wall_us());
        wall.saturating_add(at_us.saturating_sub(now))
            .saturating_sub(now.saturating_sub(at_us))
    }

    /// Records the current time, for the agent after a reboot.
    pub(crate) fn note(&self) -> io::Result<()> {
        let mark = Mark {
            running_us: self.machine.running_us(),
            agent_us: self.now_us(),
            ..self.base.clone()
        };
        let partial = self.folder.join(format!("{FILE}.partial"));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(&mark)?)?;
        file.sync_data()?;
        fs::rename(partial, self.folder.join(FILE))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Clocks that tests set: boot, time since boot, and wall clock.
    #[derive(Debug)]
    pub(crate) struct Hands(pub(crate) Mutex<(u32, u64, u64)>);

    impl Hands {
        pub(crate) fn new() -> Arc<Self> {
            Arc::new(Self(Mutex::new((1, 1_000, 1_700_000_000_000_000))))
        }

        pub(crate) fn turn(&self, change: impl FnOnce(&mut (u32, u64, u64))) {
            change(&mut self.0.lock().unwrap());
        }

        pub(crate) fn pass(&self, span: std::time::Duration) {
            let us = span.as_micros() as u64;
            self.turn(|(_, running, wall)| {
                *running += us;
                *wall += us;
            });
        }
    }

    impl MachineClock for Hands {
        fn boot(&self) -> String {
            self.0.lock().unwrap().0.to_string()
        }

        fn running_us(&self) -> u64 {
            self.0.lock().unwrap().1
        }

        fn wall_us(&self) -> u64 {
            self.0.lock().unwrap().2
        }
    }

    #[test]
    fn it_counts_while_the_machine_runs_whatever_the_wall_clock_says() {
        let (folder, hands) = (tempfile::tempdir().unwrap(), Hands::new());
        let open = || Clock::open(folder.path(), hands.clone()).unwrap();
        let clock = open();
        let began = clock.now_us();
        hands.turn(|hands| hands.1 += 500);
        assert_eq!(clock.now_us(), began + 500);
        for wall in [0, 5_000_000_000_000_000] {
            hands.turn(|hands| hands.2 = wall);
            assert_eq!(clock.now_us(), began + 500);
        }
        assert_eq!(clock.wall_at(began + 600), 5_000_000_000_000_100);
        assert_eq!(clock.wall_at(began), 5_000_000_000_000_000 - 500);
        drop(clock);

        // An agent that was away for a while, without a final record.
        hands.turn(|hands| hands.1 += 1_000);
        let clock = open();
        assert_eq!(clock.now_us(), began + 1_500);
        hands.turn(|hands| hands.1 += 100);
        clock.note().unwrap();
        // Time after the last record is lost in a reboot.
        hands.turn(|hands| hands.1 += 7);
        hands.turn(|hands| (hands.0, hands.1) = (2, 3));
        assert_eq!(open().now_us(), began + 1_600);
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(open().now_us(), 0, "it begins anew");
    }
}
