//! `treadle plugin build`: builds a component from a project.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::project::Project;
use super::toolchain;
use crate::cli::error::CliError;
use crate::cli::output::{print_json, print_text};
use crate::cli::plugin::read;
use crate::cli::progress;

/// Arguments of `treadle plugin build`.
#[derive(Args, Clone, Debug)]
pub(super) struct BuildArgs {
    /// The project's folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

impl BuildArgs {
    /// Builds and prints the result.
    pub(super) fn run(self, json: bool) -> Result<(), CliError> {
        let project = Project::open(&self.folder)?;
        let output = project.output();
        if let Some(folder) = output.parent() {
            std::fs::create_dir_all(folder).map_err(|cause| CliError::File {
                path: folder.to_owned(),
                cause,
            })?;
        }
        let spinner = progress::spinner(format!("building {}", project.name));
        let began = Instant::now();
        let built = toolchain::build(&project, &output);
        let build_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        spinner.finish_and_clear();
        built?;
        let (size_bytes, digest) = measure(&output)?;
        if json {
            return print_json(&json!({
                "path": output, "language": project.language, "name": project.name,
                "size_bytes": size_bytes, "digest": digest, "build_ms": build_ms,
            }));
        }
        print_text(&format!(
            "{}, {size_bytes} bytes, in {:.1} s\nsha256 {digest}",
            output.display(),
            build_ms as f64 / 1e3
        ))
    }
}

fn measure(path: &Path) -> Result<(usize, String), CliError> {
    let bytes = read(path)?;
    let mut digest = String::new();
    for byte in Sha256::digest(&bytes) {
        // Writing to a string can't fail.
        let _ = write!(digest, "{byte:02x}");
    }
    Ok((bytes.len(), digest))
}
