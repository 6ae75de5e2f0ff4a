//! Sandboxes for real: root, namespaces, cgroups and overlayfs of this machine.

mod course;
mod stage;
