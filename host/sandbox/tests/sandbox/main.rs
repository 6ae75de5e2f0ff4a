//! Real sandboxes, with root, namespaces, cgroups and overlayfs of this machine.

mod archives;
mod bounds;
mod commands;
mod ends;
mod escapes;
mod files;
mod lifecycle;
mod shares;
mod snapshots;
mod stage;
