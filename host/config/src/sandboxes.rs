//! `[sandboxes]`: where programs' commands run, apart from the machine and from each other.

use super::section::section;
use super::{Config, ConfigError, Role, conflict};

/// How many times what one sandbox may write its copies may take, where that is not configured.
const COPIES_FACTOR: u64 = 4;

section! {
    /// Sandboxes of programs: namespaces of their own, a private writable folder over a read-only system, and bounds (docs/sandboxes.md). They take root, cgroups and overlayfs.
    SandboxesSection in "sandboxes" {
        /// Whether programs get sandboxes. Their commands are actions, so that `actions.enabled` must be set too.
        enabled: bool = false, "";
        /// Whether actions may run processes in sandboxes only, so that no job token reaches the machine.
        required: bool = false, "";
        /// Images, and the files of sandboxes. Beside the store if that is a file, else in `/var/lib/treadle`.
        folder: String = String::new(), "";
        /// Folders of this machine that images may be imported from (`PUT /api/v1/images/{image}`), with all below them; none where empty. What is the daemon's own, such as the store and files of secrets, is refused in them too. Let nobody write to them who may not read this machine's files.
        image_folders: Vec<String> = Vec::new(), "";
        /// Sandboxes at once.
        sandboxes_max: usize = 1_024, "sandboxes", 1 ..= 65_536;
        /// Memory of a sandbox that asks for no other, and the most that one may ask for.
        memory_bytes: u64 = 4_294_967_296, "bytes", 16_777_216 ..= 1_125_899_906_842_624_u64;
        /// Processes and threads of a sandbox.
        processes_max: u64 = 1_024, "processes", 8 ..= 4_194_304;
        /// What a sandbox may write to disk.
        disk_bytes_max: u64 = 10_737_418_240, "bytes", 1_048_576 ..= 1_125_899_906_842_624_u64;
        /// What images and snapshots may take of the disk; beyond it snapshots and then images go that
        /// no sandbox has. 0 for no bound.
        images_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// What snapshots, and copies under forked sandboxes, may take of the disk; tenants have equal shares of it. A further one is refused. 0 for four times `sandboxes.disk_bytes_max`.
        copies_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// What the files of all sandboxes may take of the disk; tenants have equal shares of it. Of a tenant that has more the largest sandbox at work is stopped, and it gets no new one. 0 for nine tenths of the disk.
        files_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// How long a sandbox lives that says nothing else, from when it is ready.
        ttl_s: u64 = 3_600, "seconds", 1 ..= 31_536_000;
        fixed {
            /// The first of 65,536 users of the machine that are the users of sandboxes.
            uid: u32 = 231_072, "", 65_536 ..= 4_000_000_000_u32;
            /// What keeps sandboxes; the daemon's own binary without it.
            keeper: String = String::new(), "";
        }
    }
}

impl SandboxesSection {
    /// What snapshots and copies may take of the disk.
    pub fn copies_bytes_max(&self) -> u64 {
        match self.copies_bytes_max {
            0 => self.disk_bytes_max.saturating_mul(COPIES_FACTOR),
            most => most,
        }
    }

    /// Rules across several values.
    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        if self.enabled && !config.actions.enabled {
            let problem =
                "is true, but the commands of sandboxes are actions, and those are not run";
            let remedy = "set actions.enabled = true too";
            return Err(conflict("sandboxes.enabled", problem.to_owned(), remedy));
        }
        if self.enabled && config.cluster.role != Role::Single {
            let problem =
                "is true, but sandboxes of this machine can't follow the scheduler to others";
            let remedy = "set it to false, and run `treadle node-agent` on the machines that are to have sandboxes";
            return Err(conflict("sandboxes.enabled", problem.to_owned(), remedy));
        }
        Ok(())
    }
}
