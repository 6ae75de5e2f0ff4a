//! The `treadle` program that is measured.

use std::path::PathBuf;

/// The program beside this one.
pub(super) fn daemon_program() -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name(format!("treadle{}", std::env::consts::EXE_SUFFIX)))
}
