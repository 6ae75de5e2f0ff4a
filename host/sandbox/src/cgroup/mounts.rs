//! Locations of the kernel's cgroups: one hierarchy, or one for each controller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Controllers that sandboxes need.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// Freezes processes; built into version 2.
const FREEZER: &str = "freezer";

/// Folders for cgroups.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Hierarchy {
    /// Version 2: one folder.
    Unified(PathBuf),
    /// Version 1: one folder for each controller.
    Split(Vec<(&'static str, PathBuf)>),
}

impl Hierarchy {
    /// Finds the hierarchies in the machine's table of mounts; `delegated` is a version 2 folder to
    /// use instead.
    ///
    /// # Errors
    /// The missing controllers.
    pub(crate) fn find(mounts: &str, delegated: Option<&Path>) -> io::Result<Self> {
        if let Some(folder) = delegated {
            return Ok(Self::Unified(folder.to_owned()));
        }
        let mut split = Vec::new();
        let mut unified = None;
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            match kind {
                "cgroup2" => unified = Some(PathBuf::from(at)),
                "cgroup" => {
                    let wanted = CONTROLLERS.into_iter().chain([FREEZER]);
                    let found = wanted.filter(|name| options.split(',').any(|one| one == *name));
                    split.extend(found.map(|name| (name, PathBuf::from(at))));
                }
                _ => {}
            }
        }
        if let Some(folder) = unified {
            let offered = fs::read_to_string(folder.join("cgroup.controllers"))?;
            let offers = |name: &&str| offered.split_ascii_whitespace().any(|one| one == *name);
            if CONTROLLERS.iter().all(offers) {
                return Ok(Self::Unified(folder));
            }
        }
        let missing = CONTROLLERS.into_iter().chain([FREEZER]);
        let missing: Vec<_> = missing
            .filter(|name| !split.iter().any(|(known, _)| known == name))
            .collect();
        if missing.is_empty() {
            return Ok(Self::Split(split));
        }
        let missing = missing.join(", ");
        let cause = format!("no cgroups with the controllers {missing} are mounted");
        Err(io::Error::new(io::ErrorKind::NotFound, cause))
    }

    /// The folder of a cgroup for this controller.
    pub(super) fn folder(&self, controller: &str, name: &str) -> PathBuf {
        match self {
            Self::Unified(root) => root.join(name),
            Self::Split(roots) => {
                let known = roots.iter().find(|(known, _)| *known == controller);
                known.map(|(_, root)| root.join(name)).unwrap_or_default()
            }
        }
    }

    /// All folders of a cgroup.
    pub(super) fn folders(&self, name: &str) -> Vec<PathBuf> {
        match self {
            Self::Unified(root) => vec![root.join(name)],
            Self::Split(roots) => {
                let mut folders: Vec<_> = roots.iter().map(|(_, root)| root.join(name)).collect();
                folders.dedup();
                folders
            }
        }
    }

    /// Makes a cgroup in an existing folder.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        let told = |folder: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        };
        for folder in self.folders(name) {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(told(&folder, error));
                }
                _ => {}
            }
        }
        match self {
            Self::Unified(root) => {
                let above = root.join(name);
                let above = above
                    .parent()
                    .unwrap_or(root)
                    .join("cgroup.subtree_control");
                let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
                fs::write(&above, wanted).map_err(|error| told(&above, error))
            }
            Self::Split(roots) => {
                // A new cpuset is empty until it is set.
                let Some((_, root)) = roots.iter().find(|(known, _)| *known == "cpuset") else {
                    return Ok(());
                };
                let folder = root.join(name);
                let above = folder.parent().unwrap_or(root);
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let value =
                        fs::read_to_string(above.join(file)).map_err(|error| told(above, error))?;
                    fs::write(folder.join(file), value.trim())
                        .map_err(|error| told(&folder, error))?;
                }
                Ok(())
            }
        }
    }
}
