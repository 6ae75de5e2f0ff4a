//! Where the versions of a job are: a folder in the store and one on each host, for each lineage.

use crate::local::Local;
use crate::stream::Stream;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The folders of a job. Nothing that a client says is a path: its name is one component.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Places {
    /// The job's folder in the store.
    pub store: PathBuf,
    /// The job's folder on each host.
    pub folder: PathBuf,
}

impl Places {
    /// The folders of a job in those of all jobs.
    pub fn of(store: impl Into<PathBuf>, folder: impl Into<PathBuf>, job: &str) -> Self {
        let component = component(job);
        Self {
            store: store.into().join(&component),
            folder: folder.into().join(component),
        }
    }

    /// The versions of a lineage in the store.
    pub fn stream(&self, lineage: u32) -> Stream {
        Stream::new(self.store.join(lineage.to_string()))
    }

    /// The versions of a lineage on a host.
    pub fn local(&self, lineage: u32) -> Local {
        Local::new(self.folder.join(lineage.to_string()))
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
            let places = Places::of("/store", "/local", name);
            let parts: Vec<_> = places.store.components().collect();
            let prefix = Path::new("/store").components();
            let last = Component::Normal(expected.as_ref());
            assert_eq!(parts, prefix.chain([last]).collect::<Vec<_>>());
        }
    }
}
