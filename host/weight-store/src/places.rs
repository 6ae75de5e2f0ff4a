//! Where the versions of a job are: a folder in the store and one on each host, for each lineage.

use crate::error::StoreError;
use crate::files::{names_in, remove_folder};
use crate::local::Local;
use crate::stream::Stream;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Most lineages of a job on a host.
const LINEAGES_MAX: usize = 10_000;
/// Longest component of a path that names a job; it leaves room in the 255 bytes of file systems.
const COMPONENT_MAX: usize = 200;

/// The folders of a store, and of what hosts have of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Places {
    /// The store.
    pub store: PathBuf,
    /// On each host.
    pub folder: PathBuf,
}

impl Places {
    /// Those of one job. Nothing that a client says is a path: a job's name is one component.
    #[must_use]
    pub fn of_job(&self, job: &str) -> Self {
        let component = component(job);
        Self {
            store: self.store.join(&component),
            folder: self.folder.join(component),
        }
    }

    /// A job's versions of a lineage in the store.
    pub fn stream(&self, lineage: u32) -> Stream {
        Stream::new(self.store.join(lineage.to_string()))
    }

    /// A job's versions of a lineage on a host.
    pub fn local(&self, lineage: u32) -> Local {
        Local::new(self.folder.join(lineage.to_string()))
    }

    /// Removes what a host has of lineages that a job has left.
    pub fn forget_lineages_before(&self, lineage: u32) -> Result<(), StoreError> {
        for name in names_in(&self.folder, LINEAGES_MAX)? {
            if name.parse::<u32>().is_ok_and(|left| left < lineage) {
                remove_folder(&self.folder.join(name))?;
            }
        }
        Ok(())
    }
}

/// A name as one component of a path: no other name has the same.
fn component(name: &str) -> String {
    let mut component = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => component.push(byte.into()),
            _ => {
                let _ = write!(component, "%{byte:02x}");
            }
        }
    }
    if component.len() > COMPONENT_MAX {
        return format!("%%{}", blake3::hash(name.as_bytes()).to_hex());
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    #[test]
    fn a_name_is_one_component() {
        for (name, expected) in [
            ("math-1_A", "math-1_A"),
            ("..", "%2e%2e"),
            ("/etc/passwd", "%2fetc%2fpasswd"),
            ("a/../../b", "a%2f%2e%2e%2f%2e%2e%2fb"),
            ("%2e", "%252e"),
            ("\u{1f}acme\u{1f}math", "%1facme%1fmath"),
            ("zürich", "z%c3%bcrich"),
        ] {
            assert_eq!(component(name), expected);
            let all = Places {
                store: "/store".into(),
                folder: "/local".into(),
            };
            let places = all.of_job(name);
            let parts: Vec<_> = places.store.components().collect();
            let prefix = Path::new("/store").components();
            let last = Component::Normal(expected.as_ref());
            assert_eq!(parts, prefix.chain([last]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn long_names_stay_apart() {
        let [one, other] = ["a", "b"].map(|end| component(&format!("{}{end}", "x".repeat(500))));
        assert!(one.len() < COMPONENT_MAX && one != other);
    }
}
