//! Copies of pods' files on this machine, on their way in or out, and what they may take together.
//!
//! Callers get a plain file, write to it, and drop it at some time. So it is locked, and a second handle
//! shows by the lock whether the first one is still open, and how much was written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Bytes of one copy.
pub(crate) const COPY_BYTES_MAX: u64 = 256 << 20;
/// Bytes of all of them.
const COPIES_BYTES_MAX: u64 = 1 << 30;
/// What a copy counts for at least, so that there are no more than that many descriptors.
const COPY_BYTES_MIN: u64 = 1 << 20;
/// How often what they take is measured.
const PERIOD: Duration = Duration::from_millis(10);
/// What helps where a file is too long to be copied.
const REMEDY: &str = "move it in parts, with a command such as `split -b 128M`";

/// All copies.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The second handles.
    copies: Vec<File>,
    /// What they take, and when that was measured.
    measured: Option<(u64, Instant)>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new copy in a folder, with nothing in it.
    ///
    /// # Errors
    /// There are as many as may be.
    pub(crate) fn make(&self, folder: &Path) -> io::Result<File> {
        let mut held = self.lock();
        held.measured = None;
        check(held.left())?;
        let copy = tempfile::tempfile_in(folder)?;
        flock(&copy, FlockOperation::NonBlockingLockShared)?;
        // Opened anew, it has a lock of its own.
        let second = File::open(format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
        held.copies.push(second);
        held.measured = None;
        Ok(copy)
    }

    /// Bytes that one copy may still have.
    pub(crate) fn left(&self) -> u64 {
        self.lock().left().min(COPY_BYTES_MAX)
    }

    /// Whether copies may grow.
    ///
    /// # Errors
    /// They have all that they may.
    pub(crate) fn check(&self) -> io::Result<()> {
        check(self.left())
    }
}

impl Held {
    fn left(&mut self) -> u64 {
        let fresh = self.measured.filter(|(_, at)| at.elapsed() < PERIOD);
        let taken = fresh.map_or_else(|| self.measure(), |(taken, _)| taken);
        COPIES_BYTES_MAX.saturating_sub(taken)
    }

    fn measure(&mut self) -> u64 {
        let is_over = |copy: &File| flock(copy, FlockOperation::NonBlockingLockExclusive).is_ok();
        self.copies.retain(|copy| !is_over(copy));
        let bytes = |copy: &File| copy.metadata().map_or(0, |found| found.len());
        let bytes = self.copies.iter().map(bytes);
        let taken = bytes.map(|bytes| bytes.max(COPY_BYTES_MIN)).sum();
        self.measured = Some((taken, Instant::now()));
        taken
    }
}

fn check(left: u64) -> io::Result<()> {
    if left > 0 {
        return Ok(());
    }
    let problem = format!(
        "files on their way to and from pods have {} MiB of the daemon's disk, as much as they may; \
         try again later",
        COPIES_BYTES_MAX >> 20
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, problem))
}

/// A file has more bytes than may be copied.
pub(crate) fn too_long(kind: io::ErrorKind, bytes_max: u64) -> io::Error {
    let remedy = if bytes_max == COPY_BYTES_MAX {
        format!(", the most that is copied from or to a pod; {REMEDY}")
    } else {
        String::new()
    };
    io::Error::new(kind, format!("it has more than {bytes_max} bytes{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_what_they_have_until_they_are_dropped() {
        let (copies, folder) = (Copies::default(), tempfile::tempdir().expect("a folder"));
        let make = || copies.make(folder.path());
        let many: Vec<File> = (0..3).map(|_| make().expect("there is room")).collect();
        for copy in &many {
            copy.set_len(COPY_BYTES_MAX).expect("it is sparse");
        }
        // One that is handed on is the same one.
        let another = make().expect("there is room").try_clone().expect("it");
        another.set_len(COPY_BYTES_MAX - 1).expect("it is sparse");
        copies.lock().measured = None;
        assert_eq!(copies.left(), 1);
        let last = make().expect("there is room");
        let full = make().expect_err("there is none");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(full.to_string().contains("1024 MiB"), "{full}");
        assert_eq!(copies.check().expect_err("none").kind(), full.kind());
        drop((many, last));
        make().expect("there is room again");
    }
}
