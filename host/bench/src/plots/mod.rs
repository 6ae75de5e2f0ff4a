//! Plots of simulated rollouts as SVG files: how many programs are active over time, how KV memory
//! is used, and where the time of the program that ended last went.
//!
//! The same rollouts give the same files, byte for byte.

mod active;
mod breakdown;
mod colours;
mod memory;

use plotters::drawing::DrawingAreaErrorKind;
use std::path::{Path, PathBuf};
use treadle_simulator::rollout::{Moment, TimeSpent};

/// Width and height of a plot, in pixels.
const SIZE: (u32, u32) = (900, 520);
/// Sizes of fonts, in pixels.
const TITLE: u32 = 20;
const LABEL: u32 = 14;

/// Why a plot is not there.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The folder or file cannot be written.
    #[error("--plots {}: {cause}; give a folder that can be written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// It cannot be drawn.
    #[error("--plots {}: it cannot be drawn: {cause}", path.display())]
    Drawing {
        /// Which.
        path: PathBuf,
        /// What was seen.
        cause: String,
    },
}

/// A simulated rollout of one system.
#[derive(Clone, Debug)]
pub(crate) struct Course<'a> {
    /// The system.
    pub(crate) system: &'a str,
    /// When the last program ended, in seconds.
    pub(crate) makespan_s: f64,
    /// Where its time went.
    pub(crate) last: TimeSpent,
    /// The cluster over time.
    pub(crate) timeline: &'a [Moment],
}

/// Rollouts of the same programs by several systems.
#[derive(Clone, Debug)]
pub(crate) struct Scenario<'a> {
    /// Shown in titles, as `coding, qwen3-14b, 64 H100`.
    pub(crate) title: String,
    /// What names of files begin with, as `coding.qwen3-14b`.
    pub(crate) file: String,
    /// The time that no schedule passes, in seconds.
    pub(crate) bound_s: f64,
    /// The systems, in the order of the legend.
    pub(crate) courses: Vec<Course<'a>>,
}

type Drawn = Result<String, DrawingAreaErrorKind<std::io::Error>>;

/// Writes all plots of a scenario into a folder, which is created if absent.
///
/// # Errors
/// A folder or file that cannot be written.
pub(crate) fn write(folder: &Path, scenario: &Scenario<'_>) -> Result<Vec<PathBuf>, PlotError> {
    std::fs::create_dir_all(folder).map_err(|cause| PlotError::File {
        path: folder.to_owned(),
        cause,
    })?;
    let mut drawn = vec![
        ("active".to_owned(), active::draw(scenario)),
        ("breakdown".to_owned(), breakdown::draw(scenario)),
    ];
    for course in &scenario.courses {
        let name = format!("kv.{}", slug(course.system));
        drawn.push((name, memory::draw(scenario, course)));
    }
    let mut paths = Vec::new();
    for (name, svg) in drawn {
        let path = folder.join(format!("{}.{name}.svg", scenario.file));
        let svg = svg.map_err(|error| PlotError::Drawing {
            path: path.clone(),
            cause: error.to_string(),
        })?;
        let written = std::fs::write(&path, svg);
        written.map_err(|cause| PlotError::File {
            path: path.clone(),
            cause,
        })?;
        paths.push(path);
    }
    Ok(paths)
}

/// Letters, digits and dashes alone.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if !part.is_empty() {
            slug.push_str(if slug.is_empty() { "" } else { "-" });
            slug.push_str(part);
        }
    }
    slug
}

#[cfg(test)]
mod tests;
