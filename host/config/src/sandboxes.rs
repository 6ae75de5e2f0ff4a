//! `[sandboxes]`: isolated environments for programs' commands.

use super::section::section;
use super::{Config, ConfigError, Role, conflict};

/// Default limit on copies, as a multiple of what one sandbox may write.
const COPIES_FACTOR: u64 = 4;

section! {
    /// Sandboxes of programs: separate namespaces, a private writable folder over a read-only system, and limits (docs/sandboxes.md). They need root, cgroups and overlayfs.
    SandboxesSection in "sandboxes" {
        /// Whether programs can have sandboxes. Their commands are actions, so `actions.enabled` must be set too.
        enabled: bool = false, "";
        /// Whether actions may run processes only in sandboxes, so that no job token reaches the machine itself.
        required: bool = false, "";
        /// Folder of images and of the files of sandboxes. If empty, next to the store's file, or in `/var/lib/treadle` if the store is not a file.
        folder: String = String::new(), "";
        /// Folders of this machine that images may be imported from (`PUT /api/v1/images/{image}`), including their subfolders; none if empty. The daemon's own files in them, such as the store and secrets, are refused. Only users who may read all of this machine's files should be able to write to these folders.
        image_folders: Vec<String> = Vec::new(), "";
        /// Maximum number of sandboxes.
        sandboxes_max: usize = 1_024, "sandboxes", 1 ..= 65_536;
        /// Memory of a sandbox by default, and the most that one may request.
        memory_bytes: u64 = 4_294_967_296, "bytes", 16_777_216 ..= 1_125_899_906_842_624_u64;
        /// Processes and threads of a sandbox.
        processes_max: u64 = 1_024, "processes", 8 ..= 4_194_304;
        /// Bytes that a sandbox may write to disk.
        disk_bytes_max: u64 = 10_737_418_240, "bytes", 1_048_576 ..= 1_125_899_906_842_624_u64;
        /// Disk space for images and snapshots; beyond it, unused snapshots and then unused images are removed. 0 for no limit.
        images_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// Disk space for snapshots and for copies under forked sandboxes, shared equally by tenants; beyond a tenant's share they are refused. 0 for four times `sandboxes.disk_bytes_max`.
        copies_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// Disk space for the files of all sandboxes, shared equally by tenants. If a tenant exceeds its share, its largest running sandbox is stopped, and it gets no new one. 0 for nine tenths of the disk.
        files_bytes_max: u64 = 0, "bytes", 0 ..= 1_125_899_906_842_624_u64;
        /// Default lifetime of a sandbox, from when it is ready.
        ttl_s: u64 = 3_600, "seconds", 1 ..= 31_536_000;
        fixed {
            /// The first of 65,536 user ids of the machine that sandboxes use.
            uid: u32 = 231_072, "", 65_536 ..= 4_000_000_000_u32;
            /// Program that keeps sandboxes; the daemon's own binary if empty.
            keeper: String = String::new(), "";
        }
    }
}

impl SandboxesSection {
    /// Disk space for snapshots and copies.
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
                "is true, but the commands of sandboxes are actions, and actions are disabled";
            let remedy = "also set actions.enabled = true";
            return Err(conflict("sandboxes.enabled", problem.to_owned(), remedy));
        }
        if self.enabled && config.cluster.role != Role::Single {
            let problem =
                "is true, but sandboxes of this machine can't follow the scheduler to others";
            let remedy =
                "set it to false, and run `treadle node-agent` on the machines that run sandboxes";
            return Err(conflict("sandboxes.enabled", problem.to_owned(), remedy));
        }
        Ok(())
    }
}
