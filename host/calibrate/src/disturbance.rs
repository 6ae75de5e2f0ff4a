//! Whether something else took the processors from the engine while it was measured.
//!
//! On Linux the kernel counts for how long each thread was ready to run and did not; of an engine
//! on this machine that can be read. Of one elsewhere, and on other systems, nothing is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use http::Uri;

/// The state of a listening socket in the kernel's tables.
const LISTENING: &str = "0A";
/// Processes of one engine at most: what is beyond is not counted.
const PROCESSES_MAX: usize = 256;

/// The processes of an engine on this machine.
pub(super) struct Watch {
    root: u32,
}

impl Watch {
    /// The processes that serve this address; `None` if they are not here or cannot be determined.
    pub(super) fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_here = matches!(uri.host()?, "127.0.0.1" | "localhost" | "[::1]");
        let port = uri.port_u16().filter(|_| is_here)?;
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let text: String = tables.iter().flat_map(fs::read_to_string).collect();
        let socket = format!("socket:[{}]", listener(&text, port)?);
        let root = numbered("/proc").find(|pid| {
            let files = fs::read_dir(format!("/proc/{pid}/fd"));
            files.into_iter().flatten().flatten().any(|file| {
                let target = fs::read_link(file.path());
                target.is_ok_and(|target| target.to_str() == Some(&socket))
            })
        })?;
        Some(Self { root })
    }

    /// What each of their threads has had so far.
    pub(super) fn look(&self) -> Look {
        let mut open = vec![self.root];
        let mut seen = BTreeSet::new();
        let mut threads = BTreeMap::new();
        while let Some(pid) = open.pop() {
            if seen.len() >= PROCESSES_MAX || !seen.insert(pid) {
                continue;
            }
            for thread in numbered(&format!("/proc/{pid}/task")) {
                let read = |file: &str| {
                    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/{file}"));
                    text.unwrap_or_default()
                };
                threads.extend(had(&read("schedstat")).map(|had| (thread, had)));
                let children = read("children");
                open.extend(children.split_whitespace().flat_map(str::parse::<u32>));
            }
        }
        Look(threads)
    }
}

/// What one thread had of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Had {
    ran: Duration,
    /// Ready to run, without a processor.
    waited: Duration,
}

/// What each thread of an engine had up to a moment.
pub(super) struct Look(BTreeMap<u32, Had>);

impl Look {
    /// For how long the thread that has run most since an earlier look, which is the one that
    /// computes, was ready to run and did not.
    pub(super) fn waited_since(&self, earlier: &Self) -> Duration {
        let since = |(thread, now): (&u32, &Had)| {
            let then = earlier.0.get(thread).copied().unwrap_or_default();
            (
                now.ran.saturating_sub(then.ran),
                now.waited.saturating_sub(then.waited),
            )
        };
        let busiest = self.0.iter().map(since).max();
        busiest.map_or(Duration::ZERO, |(_, waited)| waited)
    }
}

/// Entries of a folder that are numbers.
fn numbered(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The socket that listens on a port, in the kernel's table.
fn listener(table: &str, port: u16) -> Option<&str> {
    let wanted = format!(":{port:04X}");
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let address = fields.nth(1)?;
        let state = fields.nth(1)?;
        let is_it = address.ends_with(&wanted) && state == LISTENING;
        fields.nth(5).filter(|_| is_it)
    })
}

/// The kernel's line about a thread: time that it ran, that it waited, and how often it ran.
fn had(line: &str) -> Option<Had> {
    let mut fields = line.split_whitespace();
    let mut next = || fields.next()?.parse().ok().map(Duration::from_nanos);
    Some(Had {
        ran: next()?,
        waited: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found_in_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt \
                     uid timeout inode\n\
                     0: 0100007F:1F90 0100007F:A0B2 01 00000000:00000000 00:00000000 00000000 0 0 71 1\n\
                     1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 563 1\n";
        assert_eq!(listener(table, 8_080), Some("563"));
        assert_eq!(listener(table, 8_081), None);
        assert_eq!(listener("", 1), None);
    }

    #[test]
    fn the_busiest_thread_gives_the_wait() {
        let look = |lines: &[(u32, &str)]| {
            let threads = lines
                .iter()
                .filter_map(|(id, line)| Some((*id, had(line)?)));
            Look(threads.collect())
        };
        let before = look(&[(1, "90000 7000 3"), (2, "1000 0 1"), (4, "")]);
        let after = look(&[(1, "91000 9000 4"), (2, "51000 400 8"), (3, "20 99000 2")]);
        assert_eq!(after.waited_since(&before), Duration::from_nanos(400));
        assert_eq!(before.waited_since(&before), Duration::ZERO);
        assert_eq!(look(&[]).waited_since(&before), Duration::ZERO);
    }

    #[test]
    fn engines_elsewhere_are_not_watched() {
        assert!(Watch::of("http://10.1.2.3:80").is_none());
        assert!(Watch::of("no address").is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_listener_of_this_process_is_found_and_its_threads_are_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Watch::of(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        assert_eq!(watch.root, std::process::id());
        let before = watch.look();
        assert!(!before.0.is_empty() && watch.look().waited_since(&before) < Duration::MAX);
    }
}
