//! Checks whether a machine supports sandboxes, before any are started.

use std::fs;
use std::path::Path;

use crate::cgroup::Hierarchy;

/// A check and its result.
#[derive(Clone, Debug)]
pub struct Look {
    /// What was checked.
    pub what: &'static str,
    /// The result, or the problem and the remedy.
    pub found: Result<String, (String, &'static str)>,
}

/// Checks this machine, and changes nothing.
pub fn look(cgroup: Option<&Path>) -> Vec<Look> {
    let root = if rustix::process::geteuid().is_root() {
        Ok("the daemon may make namespaces".to_owned())
    } else {
        let remedy = "run the daemon as root, or leave sandboxes.enabled off";
        Err(("this is not root".to_owned(), remedy))
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let cgroups = match Hierarchy::find(&mounts, cgroup) {
        Ok(Hierarchy::Unified(folder)) => Ok(format!("version 2 at {}", folder.display())),
        Ok(Hierarchy::Split(_)) => Ok("version 1".to_owned()),
        Err(error) => {
            let remedy = "mount cgroups, or delegate one and name it in actions.cgroup";
            Err((error.to_string(), remedy))
        }
    };
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let overlays = if systems
        .split_ascii_whitespace()
        .any(|name| name == "overlay")
    {
        Ok("the kernel has overlayfs".to_owned())
    } else {
        let remedy = "load the kernel module `overlay`";
        Err(("the kernel has no overlayfs".to_owned(), remedy))
    };
    [
        ("root", root),
        ("cgroups", cgroups),
        ("overlayfs", overlays),
    ]
    .map(|(what, found)| Look { what, found })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_requirements_have_a_remedy() {
        let looks = look(Some(Path::new("/nowhere")));
        let whats: Vec<_> = looks.iter().map(|look| look.what).collect();
        assert_eq!(whats, ["root", "cgroups", "overlayfs"]);
        for look in looks {
            match look.found {
                Ok(found) => assert!(!found.is_empty()),
                Err((missing, remedy)) => assert!(!missing.is_empty() && !remedy.is_empty()),
            }
        }
    }
}
