//! Local copies of pods' files in transfer, and the limit on their size.
//!
//! Callers get a plain file, write to it, and drop it at some time. So it is locked, and a second
//! handle shows by the lock whether the first one is still open, and how much was written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Maximum size of one copy.
pub(crate) const COPY_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of all copies.
const COPIES_BYTES_MAX: u64 = 1 << 30;
/// Minimum size that a copy counts for, which limits the number of descriptors.
const COPY_BYTES_MIN: u64 = 1 << 20;
/// Interval of measuring the copies.
const PERIOD: Duration = Duration::from_millis(10);
/// The remedy for a file that is too large.
const REMEDY: &str = "move it in parts, with a command such as `split -b 128M`";

/// All copies.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<OpenCopies>);

#[derive(Debug, Default)]
struct OpenCopies {
    /// The second handles.
    copies: Vec<File>,
    /// Their size, and when it was measured.
    measured: Option<(u64, Instant)>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, OpenCopies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new empty copy in a folder.
    ///
    /// # Errors
    /// If the limit is reached.
    pub(crate) fn make(&self, folder: &Path) -> io::Result<File> {
        let mut held = self.lock();
        held.measured = None;
        check(held.left())?;
        let copy = tempfile::tempfile_in(folder)?;
        flock(&copy, FlockOperation::NonBlockingLockShared)?;
        // Opened again, so that it has its own lock.
        let second = File::open(format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
        held.copies.push(second);
        held.measured = None;
        Ok(copy)
    }

    /// Bytes that one copy may still use.
    pub(crate) fn left(&self) -> u64 {
        self.lock().left().min(COPY_BYTES_MAX)
    }

    /// Checks that copies may grow.
    ///
    /// # Errors
    /// If the limit is reached.
    pub(crate) fn check(&self) -> io::Result<()> {
        check(self.left())
    }
}

impl OpenCopies {
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
        "file transfers to and from pods use {} MiB of the daemon's disk, which is the limit; \
         try again later",
        COPIES_BYTES_MAX >> 20
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, problem))
}

/// The error for a file that is too large.
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
    fn copies_count_until_they_are_dropped() {
        let (copies, folder) = (Copies::default(), tempfile::tempdir().expect("a folder"));
        let make = || copies.make(folder.path());
        let many: Vec<File> = (0..3).map(|_| make().expect("there is room")).collect();
        for copy in &many {
            copy.set_len(COPY_BYTES_MAX).expect("it is sparse");
        }
        // A clone is the same copy.
        let another = make().expect("there is room").try_clone().expect("it");
        another.set_len(COPY_BYTES_MAX - 1).expect("it is sparse");
        copies.lock().measured = None;
        assert_eq!(copies.left(), 1);
        let last = make().expect("there is room");
        let full = make().expect_err("no room");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(full.to_string().contains("1024 MiB"), "{full}");
        assert_eq!(copies.check().expect_err("none").kind(), full.kind());
        drop((many, last));
        make().expect("there is room again");
    }
}
