//! Sandboxes for real: root, namespaces, cgroups and overlayfs of this machine.

mod archives;
mod bounds;
mod commands;
mod course;
mod ends;
mod escapes;
mod files;
mod shares;
mod snapshots;
mod stage;
