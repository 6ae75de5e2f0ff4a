//! The `treadle` program that is measured.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The program beside this one; beside its folder for tests, which cargo builds one folder deeper.
pub(super) fn daemon_program() -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folders = own.parent().into_iter().flat_map(Path::ancestors).take(2);
    let name = format!("treadle{}", std::env::consts::EXE_SUFFIX);
    let mut programs = folders.map(|folder| folder.join(&name));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        let what =
            "there is no treadle beside this program; build it with cargo build --package treadle";
        Error::new(ErrorKind::NotFound, what)
    })
}

/// Leaves the settings of the user's environment out: they are not to be measured.
pub(super) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TREADLE_") {
            command.env_remove(name);
        }
    }
}
