//! Tests with plain files in place of the kernel's, checking what is written. The version of this
//! machine is also tested by real sandboxes.

use std::fs;
use std::path::Path;

use super::{Cgroups, Hierarchy, Limits};

const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    processes: 100,
};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_unified_tree_of_version_2() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mounts = format!("cgroup2 {} cgroup2 rw,nsdelegate 0 0\n", root.display());
    fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
    let error = Hierarchy::find(&mounts, None).unwrap_err().to_string();
    assert!(error.contains("cpu, cpuset, memory, pids"), "{error}");
    fs::write(
        root.join("cgroup.controllers"),
        "cpuset cpu io memory pids\n",
    )
    .unwrap();
    let hierarchy = Hierarchy::find(&mounts, None).unwrap();
    let cgroups = Cgroups::open(hierarchy, "treadle", vec![0, 1, 2, 3]).unwrap();
    let control = "+cpu +cpuset +memory +pids";
    assert_eq!(read(&root.join("cgroup.subtree_control")), control);
    let cgroup = cgroups.make("a", LIMITS).unwrap();
    assert_eq!(read(&root.join("treadle/cgroup.subtree_control")), control);
    let folder = root.join("treadle/a");
    assert_eq!(cgroup.procs(), [folder.join("cgroup.procs")]);
    assert_eq!(read(&folder.join("memory.max")), "67108864");
    assert_eq!(read(&folder.join("pids.max")), "100");
    assert_eq!(read(&folder.join("cpu.max")), "5000 100000", "nothing runs");
    cgroup.give(&[&[1, 2]]).unwrap();
    assert_eq!(read(&folder.join("cpu.max")), "200000 100000");
    assert_eq!(read(&folder.join("cpuset.cpus")), "1,2");
    cgroup.give(&[&[1, 2], &[]]).unwrap();
    assert_eq!(read(&folder.join("cpu.max")), "300000 100000");
    assert_eq!(
        read(&folder.join("cpuset.cpus")),
        "0,1,2,3",
        "one may be anywhere"
    );
    fs::write(folder.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    cgroup.freeze(true).unwrap();
    assert_eq!(read(&folder.join("cgroup.freeze")), "1");
    fs::write(folder.join("memory.events"), "oom 1\noom_kill 2\n").unwrap();
    assert_eq!(cgroup.out_of_memory(), 2);
    assert_eq!(cgroups.found(), ["a"]);
}

#[test]
fn the_trees_of_version_1() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut mounts = String::new();
    for controllers in ["cpu,cpuacct", "cpuset", "memory", "pids", "freezer"] {
        let at = root.join(controllers);
        fs::create_dir(&at).unwrap();
        let line = format!(
            "cgroup {} cgroup rw,relatime,{controllers} 0 0\n",
            at.display()
        );
        mounts.push_str(&line);
    }
    let cut = mounts.lines().take(4).collect::<Vec<_>>().join("\n");
    let error = Hierarchy::find(&cut, None).unwrap_err().to_string();
    assert!(error.contains("controllers freezer are mounted"), "{error}");
    fs::write(root.join("cpuset/cpuset.cpus"), "0-3\n").unwrap();
    fs::write(root.join("cpuset/cpuset.mems"), "0\n").unwrap();
    let hierarchy = Hierarchy::find(&mounts, None).unwrap();
    let cgroups = Cgroups::open(hierarchy, "treadle", vec![0, 1, 2, 3]).unwrap();
    let cgroup = cgroups.make("a", LIMITS).unwrap();
    assert_eq!(read(&root.join("cpuset/treadle/cpuset.mems")), "0");
    assert_eq!(
        read(&root.join("memory/treadle/a/memory.limit_in_bytes")),
        "67108864"
    );
    assert_eq!(
        read(&root.join("cpu,cpuacct/treadle/a/cpu.cfs_quota_us")),
        "5000"
    );
    assert_eq!(cgroup.procs().len(), 5);
    cgroup.give(&[&[3]]).unwrap();
    assert_eq!(
        read(&root.join("cpu,cpuacct/treadle/a/cpu.cfs_quota_us")),
        "100000"
    );
    assert_eq!(read(&root.join("cpuset/treadle/a/cpuset.cpus")), "3");
    fs::write(
        root.join("memory/treadle/a/memory.oom_control"),
        "under_oom 0\noom_kill 4\n",
    )
    .unwrap();
    assert_eq!(cgroup.out_of_memory(), 4);
}
