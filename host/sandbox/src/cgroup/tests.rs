//! Tests with plain files in place of the kernel's, checking what is written. The version of this
//! machine is also tested by real sandboxes.

use std::fs;
use std::path::Path;

use super::{Cgroups, Hierarchy, Limits};

const LIMITS: Limits = Limits {
    tenant_memory_bytes: 1 << 30,
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
    cgroups.limit_memory(2 << 30).unwrap();
    let control = "+cpu +cpuset +memory +pids";
    assert_eq!(read(&root.join("cgroup.subtree_control")), control);
    assert_eq!(read(&root.join("treadle/memory.max")), "2147483648");
    let cgroup = cgroups.make("a", "red", LIMITS).unwrap();
    assert_eq!(read(&root.join("treadle/cgroup.subtree_control")), control);
    let of_red = root.join(cgroups.of_tenant("red").name());
    assert_eq!(read(&of_red.join("cgroup.subtree_control")), control);
    assert_eq!(read(&of_red.join("memory.max")), "1073741824");
    let folder = of_red.join("a");
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
    cgroups.make("b", "blue", LIMITS).unwrap();
    let found = cgroups.found();
    let mut names: Vec<_> = found.iter().map(super::Cgroup::name).collect();
    let tenants = names.split_off(2);
    assert!(
        tenants
            .iter()
            .all(|name| !name.ends_with("/a") && !name.ends_with("/b"))
    );
    assert!(names.iter().any(|name| name.ends_with("/a")), "{names:?}");
    assert_eq!(tenants.len(), 2);
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
    cgroups.limit_memory(2 << 30).unwrap();
    let cgroup = cgroups.make("a", "red", LIMITS).unwrap();
    let of_red = cgroups.of_tenant("red").name().to_owned();
    let at = |controller: &str, file: &str| read(&root.join(controller).join(&of_red).join(file));
    assert_eq!(read(&root.join("cpuset/treadle/cpuset.mems")), "0");
    assert_eq!(
        read(&root.join("memory/treadle/memory.limit_in_bytes")),
        "2147483648"
    );
    assert_eq!(at("memory", "memory.limit_in_bytes"), "1073741824");
    assert_eq!(at("memory", "a/memory.limit_in_bytes"), "67108864");
    assert_eq!(at("cpuset", "cpuset.mems"), "0");
    assert_eq!(at("cpu,cpuacct", "a/cpu.cfs_quota_us"), "5000");
    assert_eq!(cgroup.procs().len(), 5);
    cgroup.give(&[&[3]]).unwrap();
    assert_eq!(at("cpu,cpuacct", "a/cpu.cfs_quota_us"), "100000");
    assert_eq!(at("cpuset", "a/cpuset.cpus"), "3");
    fs::write(
        root.join("memory")
            .join(&of_red)
            .join("a/memory.oom_control"),
        "under_oom 0\noom_kill 4\n",
    )
    .unwrap();
    assert_eq!(cgroup.out_of_memory(), 4);
}
