//! The root file system of a sandbox: overlays, and the few kernel files that programs need. Links
//! left by an image or an earlier process can't redirect a mount.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;

use super::told;
use crate::wire::{Guard, Overlay, Setup};

/// Maximum number of terminals of a sandbox, of the machine's few thousand.
const TERMINALS_MAX: u32 = 64;
/// Devices that programs expect; none has state that is visible to others.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links within `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Kernel files that reveal information about the machine or change it.
const MASKED: [&str; 10] = [
    "kcore",
    "keys",
    "kmsg",
    "kallsyms",
    "latency_stats",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];
/// Kernel folders that change the machine.
const READ_ONLY: [&str; 4] = ["sys", "irq", "bus", "fs"];

fn none() -> Option<&'static str> {
    None
}

fn plain(what: &str) -> impl Fn(nix::Error) -> io::Error + '_ {
    move |error| told(what, &error.into())
}

/// Mounts everything and makes it the root.
pub(super) fn enter(setup: &Setup) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(plain("mounts"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none(), "/", none(), private, none()).map_err(plain("mounts"))?;
    for overlay in &setup.overlays {
        lay(setup, overlay)?;
    }
    for (from, to) in &setup.read_only {
        let target = folder(&setup.root, to)?;
        bind(from, &target, true)?;
    }
    kernel(setup)?;
    devices(setup)?;
    std::env::set_current_dir(&setup.root)?;
    if !setup.without.contains(&Guard::Root) {
        nix::unistd::pivot_root(".", ".").map_err(plain("the root"))?;
        umount2(".", MntFlags::MNT_DETACH).map_err(plain("the root of the machine"))?;
    }
    std::env::set_current_dir(if setup.without.contains(&Guard::Root) {
        setup.root.as_path()
    } else {
        Path::new("/")
    })
}

fn lay(setup: &Setup, overlay: &Overlay) -> io::Result<()> {
    let target = folder(&setup.root, &overlay.at)?;
    let lower: Vec<_> = overlay
        .lower
        .iter()
        // A colon would separate paths; images may have one in their names.
        .map(|path| path.to_string_lossy().replace(':', "\\:"))
        .collect();
    let options = format!(
        // Allows renaming folders of lower layers, by a note about the old place. Processes inside
        // can't write such notes, and unpacked images have none.
        "redirect_dir=on,lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        overlay.upper.display(),
        overlay.work.display()
    );
    let mut flags = MsFlags::MS_NODEV;
    if !setup.without.contains(&Guard::NoNewPrivileges) {
        flags |= MsFlags::MS_NOSUID;
    }
    mount(
        Some("overlay"),
        &through(&target),
        Some("overlay"),
        flags,
        Some(options.as_str()),
    )
    .map_err(plain("overlay"))
}

/// Opens a folder below the root, made if missing; links and other files are refused.
fn folder(root: &Path, at: &Path) -> io::Result<OwnedFd> {
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let base = rustix::fs::open(root, flags, Mode::empty())?;
        if path.as_os_str().is_empty() {
            return Ok(base);
        }
        openat2(&base, path, flags, Mode::empty(), resolve)
    };
    let relative = at.strip_prefix("/").unwrap_or(at);
    match open(relative) {
        Err(Errno::NOENT) => {
            let parent = relative.parent().unwrap_or(Path::new(""));
            let above = folder(root, parent)?;
            let name = relative.file_name().unwrap_or_default();
            mkdirat(&above, name, Mode::from_raw_mode(0o755))?;
            open(relative).map_err(io::Error::from)
        }
        opened => opened.map_err(|error| told(&format!("{}", at.display()), &error.into())),
    }
}

/// A path to an open file, independent of its name.
fn through(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn bind(from: &Path, to: &OwnedFd, read_only: bool) -> io::Result<()> {
    let target = through(to);
    let cause = from.display().to_string();
    mount(Some(from), &target, none(), MsFlags::MS_BIND, none()).map_err(plain(&cause))?;
    if read_only {
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        flags |= MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        // The descriptor refers to the folder below the mount, the name to the mount.
        let named = fs::read_link(&target)?;
        mount(none(), &named, none(), flags, none()).map_err(plain(&cause))?;
    }
    Ok(())
}

/// `/proc` of the sandbox's own processes.
fn kernel(setup: &Setup) -> io::Result<()> {
    let proc = folder(&setup.root, Path::new("/proc"))?;
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &through(&proc), Some("proc"), closed, none()).map_err(plain("proc"))?;
    if setup.without.contains(&Guard::MaskedProc) {
        return Ok(());
    }
    let proc = setup.root.join("proc");
    for name in MASKED {
        let path = proc.join(name);
        if path.exists() {
            mount(Some("/dev/null"), &path, none(), MsFlags::MS_BIND, none())
                .map_err(plain(name))?;
        }
    }
    for name in READ_ONLY {
        let path = proc.join(name);
        if path.exists() {
            let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | closed;
            mount(Some(&path), &path, none(), MsFlags::MS_BIND, none()).map_err(plain(name))?;
            mount(none(), &path, none(), again, none()).map_err(plain(name))?;
        }
    }
    Ok(())
}

fn devices(setup: &Setup) -> io::Result<()> {
    let dev = folder(&setup.root, Path::new("/dev"))?;
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let small = Some("mode=755,size=64k");
    mount(Some("tmpfs"), &through(&dev), Some("tmpfs"), closed, small).map_err(plain("dev"))?;
    let dev = setup.root.join("dev");
    for name in DEVICES {
        let path = dev.join(name);
        fs::File::create(&path)?;
        let real = Path::new("/dev").join(name);
        mount(Some(&real), &path, none(), MsFlags::MS_BIND, none()).map_err(plain(name))?;
    }
    for (name, target) in LINKS {
        std::os::unix::fs::symlink(target, dev.join(name))?;
    }
    let (pts, shm) = (dev.join("pts"), dev.join("shm"));
    fs::create_dir(&pts)?;
    fs::create_dir(&shm)?;
    let options = format!("newinstance,ptmxmode=0666,mode=0620,max={TERMINALS_MAX}");
    let options = Some(options.as_str());
    mount(Some("devpts"), &pts, Some("devpts"), closed, options).map_err(plain("pts"))?;
    let options = format!("mode=1777,size={}", setup.shm_bytes);
    let closed = closed | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        &shm,
        Some("tmpfs"),
        closed,
        Some(options.as_str()),
    )
    .map_err(plain("shm"))?;
    Ok(())
}
