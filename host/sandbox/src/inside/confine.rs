//! Drops the rights of the first process before it runs anything.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal as AnySignal, raise};
use nix::unistd::{Gid, Uid, setgroups, sethostname, setresgid, setresuid};
use rustix::net::{AddressFamily, SendFlags, SocketType, send, socket};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, setrlimit, setsid,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::told;
use crate::wire::{Guard, Setup};

/// Capabilities of root inside, about those that container images expect. Each applies only to the
/// sandbox's own files and processes.
const KEPT: [CapabilitySet; 9] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::FOWNER,
    CapabilitySet::FSETID,
    CapabilitySet::KILL,
    CapabilitySet::SETFCAP,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::SYS_CHROOT,
];
/// Maximum number of open files of a process.
const OPEN_MAX: u64 = 65_536;

/// Sets the host name, and brings up the loopback interface.
pub(super) fn name(setup: &Setup) -> io::Result<()> {
    sethostname(&setup.name)?;
    if setup.without.contains(&Guard::NetNamespace) {
        return Ok(());
    }
    raise_loopback().map_err(|error| told("loopback", &error))
}

/// Sends an `rtnetlink` message to the kernel to bring up interface 1.
fn raise_loopback() -> io::Result<()> {
    const SET_LINK: u16 = 16;
    const REQUEST: u16 = 1;
    const UP: u32 = 1;
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(SET_LINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence number, sender, family and kind of interface: unspecified.
    message.extend([0; 12]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    send(&kernel, &message, SendFlags::empty())?;
    Ok(())
}

/// Enters the user namespace as root; `keeper` maps the ids.
pub(super) fn leave_machine(setup: &Setup, keeper: &mut UnixStream) -> io::Result<()> {
    if setup.without.contains(&Guard::UserNamespace) {
        return Ok(());
    }
    become_owner(setup.owner).map_err(|error| told("its owner", &error))?;
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| told("user namespace", &error.into()))?;
    let mut word = [1];
    keeper.write_all(&word)?;
    keeper.read_exact(&mut word)?;
    let (root, group) = (Uid::from_raw(0), Gid::from_raw(0));
    let became = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(root, root, root));
    became.map_err(|error| told("the users inside", &error.into()))
}

/// Becomes the user that the namespace is counted for. Per-user limits, such as file watches, count
/// for the maker of a namespace: if that were root, one sandbox could use up root's limits.
fn become_owner(owner: u32) -> io::Result<()> {
    let root = Uid::from_raw(0);
    setresuid(root, Uid::from_raw(owner), root)?;
    // Capabilities are lost by the change of user, but may be taken again.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Drops the rights that no command may have.
pub(super) fn give_up(setup: &Setup) -> io::Result<()> {
    // Processes inside must not inspect this process, and it must not outlive the keeper.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Detaches from the terminal of the agent, if any.
    setsid()?;
    // Unlike 0, it also prevents piping core dumps to the machine's handler.
    bound(Resource::Core, 1)?;
    let open_max = getrlimit(Resource::Nofile).maximum.unwrap_or(OPEN_MAX);
    bound(Resource::Nofile, open_max.min(OPEN_MAX))?;
    if !setup.without.contains(&Guard::Disk) {
        bound(Resource::Fsize, setup.file_bytes_max)?;
    }
    if !setup.without.contains(&Guard::UserNamespace) {
        drop_capabilities().map_err(|error| told("capabilities", &error))?;
    }
    if !setup.without.contains(&Guard::NoNewPrivileges) {
        rustix::thread::set_no_new_privs(true)?;
    }
    if !setup.without.contains(&Guard::Seccomp) {
        super::seccomp::install().map_err(|error| told("seccomp", &error))?;
    }
    Ok(())
}

/// Removes all signal handlers. The kernel drops signals from inside that the first process does
/// not handle; but Rust's runtime handles SIGSEGV and SIGBUS, for faults that end the process
/// anyway, and aborts if one arrives while the other is handled. Each handler removes itself at the
/// first signal that is not a fault. A real fault ends the process without them, too.
pub(super) fn forget_handlers() -> io::Result<()> {
    raise(AnySignal::SIGBUS)?;
    Ok(raise(AnySignal::SIGSEGV)?)
}

fn bound(resource: Resource, max: u64) -> io::Result<()> {
    let (current, maximum) = (Some(max), Some(max));
    let bounded = setrlimit(resource, Rlimit { current, maximum });
    bounded.map_err(|error| told("limits", &error.into()))
}

fn drop_capabilities() -> io::Result<()> {
    let kept = KEPT.into_iter().collect::<CapabilitySet>();
    for capability in CapabilitySet::all()
        .iter()
        .filter(|one| !kept.contains(*one))
    {
        // Fails for capabilities that the kernel does not know.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// The socket to the keeper, which is the standard output.
pub(super) fn keeper() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?))
}
