//! System calls that are refused inside: those that make namespaces and mounts, load code into the
//! kernel, access other processes' keys, or have a history of exploits. Others are allowed, because
//! agents run arbitrary programs; system calls newer than this list appear to be missing.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Flags of `clone` that make namespaces.
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
    0x80, // CLONE_NEWTIME
];
/// Sockets that leave the namespace, or reach seldom used code of the kernel.
const SOCKETS: [i32; 5] = [
    libc::AF_KEY,
    libc::AF_ALG,
    libc::AF_VSOCK,
    libc::AF_XDP,
    libc::AF_PACKET,
];
/// The newest system call when this was written, `file_setattr`.
const LAST: i64 = 469;
const REFUSED: [i64; 55] = [
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // The kernel: its code, clock and machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    443, // quotactl_fd
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    // Programs in the kernel, and measurements of all that runs.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Keys, which are not separated by namespaces.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files by handle, which may lie outside the root.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // io_uring, whose requests are not filtered.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory placement, and its owner.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_kcmp,
    // Mounts as lists.
    457, // statmount
    458, // listmount
    467, // open_tree_attr
    libc::SYS_process_madvise,
];

/// Installs the filters, which all later processes inherit.
pub(super) fn install() -> io::Result<()> {
    for program in programs().map_err(io::Error::other)? {
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn programs() -> Result<[BpfProgram; 3], seccompiler::Error> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED
        .into_iter()
        .map(|number| (number, Vec::new()))
        .collect();
    let has = |flag: i32| {
        let flag = u64::from(flag as u32);
        (SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
    };
    refused.insert(libc::SYS_clone, any(NAMESPACES.map(has))?);
    let is = |family: i32| (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family as u64);
    refused.insert(libc::SYS_socket, any(SOCKETS.map(is))?);
    // The flags of `clone3` are in memory, which filters can't read: the C library falls back to
    // `clone`.
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        program(refused, libc::EPERM)?,
        program(absent, libc::ENOSYS)?,
        newer(),
    ])
}

/// Makes all newer system calls appear to be missing, as well as 32-bit calls in 64-bit mode, which
/// have the same numbers with an additional bit.
fn newer() -> BpfProgram {
    let step = |code: u32, jf: u8, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    vec![
        // The number is the first field of the kernel's data about a call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, LAST as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, absent),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Rules on a call's first argument; one must match.
fn any<const N: usize>(
    conditions: [(SeccompCmpArgLen, SeccompCmpOp, u64); N],
) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let rules = conditions.into_iter().map(|(length, comparison, value)| {
        let condition = SeccompCondition::new(0, length, comparison, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    });
    rules.collect()
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: i32,
) -> Result<BpfProgram, seccompiler::Error> {
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(error as u32));
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, allow, refuse, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}
