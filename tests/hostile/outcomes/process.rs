//! Memory and children of this process, from the operating system.

use std::ffi::OsString;

use treadle_policy_runtime::{Compiler, CompilerCommand, CompilerLimits};

/// The most memory that this process has had at once, in bytes.
pub(crate) fn memory_peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: usize = number
        .and_then(|kib| kib.parse().ok())
        .expect("VmHWM is in KiB");
    kib << 10
}

/// Ids of the children of this process that have not been reaped.
pub(crate) fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|ids| {
            ids.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Compiles in children, as a daemon does.
pub(crate) fn compiler(limits: CompilerLimits) -> Compiler {
    let command = CompilerCommand {
        program: env!("CARGO_BIN_EXE_hostile").into(),
        args: vec![OsString::from("compile")],
    };
    Compiler::in_children(command, limits).expect("the limits are acceptable")
}
