//! A policy's project: a folder from which `treadle plugin build` makes a component.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::language::Language;
use crate::cli::error::CliError;

/// Folder of the component.
const OUTPUT_FOLDER: &str = "dist";

/// A folder with a policy's sources.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Project {
    /// The folder.
    pub(super) folder: PathBuf,
    /// The language of the sources.
    pub(super) language: Language,
    /// The policy's name.
    pub(super) name: String,
    /// The manifest's settings for treadle: `world`, `module`, `wit` and others.
    settings: Value,
}

impl Project {
    /// The project in a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, CliError> {
        let Some(language) = Language::of(folder) else {
            let manifests = Language::ALL.map(Language::manifest).join(", ");
            return Err(CliError::Usage(format!(
                "{} contains no policy (none of {manifests}); name its folder, or create one with `treadle plugin new`",
                folder.display()
            )));
        };
        let path = folder.join(language.manifest());
        let text = std::fs::read_to_string(&path).map_err(|cause| CliError::File {
            path: path.clone(),
            cause,
        })?;
        let unreadable = |error: &dyn std::fmt::Display| {
            CliError::Failed(format!("{}: {error}; correct the file", path.display()))
        };
        let manifest: Value = match language {
            Language::Typescript => serde_json::from_str(&text).map_err(|e| unreadable(&e))?,
            Language::Rust | Language::Python => {
                toml::from_str(&text).map_err(|e| unreadable(&e))?
            }
        };
        let (name, settings) = match language {
            Language::Rust => ("/package/name", "/package/metadata/treadle"),
            Language::Python => ("/project/name", "/tool/treadle"),
            Language::Typescript => ("/name", "/treadle"),
        };
        let Some(name) = manifest.pointer(name).and_then(Value::as_str) else {
            return Err(unreadable(&"the name is missing"));
        };
        Ok(Self {
            folder: folder.to_owned(),
            language,
            name: name.to_owned(),
            settings: manifest.pointer(settings).cloned().unwrap_or_default(),
        })
    }

    /// Path of the built component.
    pub(super) fn output(&self) -> PathBuf {
        let file = format!("{}.wasm", self.name);
        self.folder.join(OUTPUT_FOLDER).join(file)
    }

    /// A value that the manifest must have.
    pub(super) fn setting(&self, key: &str) -> Result<&str, CliError> {
        self.settings[key].as_str().ok_or_else(|| {
            let place = match self.language {
                Language::Rust => "[package.metadata.treadle]",
                Language::Python => "[tool.treadle]",
                Language::Typescript => "the object \"treadle\"",
            };
            CliError::Failed(format!(
                "{} has no {key} in {place}; add it",
                self.folder.join(self.language.manifest()).display()
            ))
        })
    }

    /// An optional path in the manifest, relative to the project's folder.
    pub(super) fn path(&self, key: &str, default: &str) -> PathBuf {
        let path = self.settings[key].as_str().unwrap_or(default);
        self.folder.join(path)
    }

    /// Optional paths in the manifest, relative to the project's folder.
    pub(super) fn paths(&self, key: &str) -> Vec<PathBuf> {
        let paths = self.settings[key].as_array();
        let paths = paths.into_iter().flatten().filter_map(Value::as_str);
        paths.map(|path| self.folder.join(path)).collect()
    }
}

/// The component at a path: the file itself, or the output of the project there.
pub(in crate::cli) fn component(path: &Path) -> Result<PathBuf, CliError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let output = Project::open(path)?.output();
    if output.is_file() {
        return Ok(output);
    }
    Err(CliError::Usage(format!(
        "{} is not built; run `treadle plugin build {}`",
        path.display(),
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_known_by_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let error = Project::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("treadle plugin new"), "{error}");
        let manifest = folder.path().join("pyproject.toml");
        std::fs::write(
            &manifest,
            "[project]\nname = \"a\"\n[tool.treadle]\nworld = \"reward\"\n",
        )
        .unwrap();
        let project = Project::open(folder.path()).unwrap();
        assert_eq!(project.language, Language::Python);
        assert_eq!(project.setting("world").unwrap(), "reward");
        let error = project.setting("module").unwrap_err().to_string();
        assert!(error.contains("no module in [tool.treadle]"), "{error}");
        assert_eq!(project.output(), folder.path().join("dist/a.wasm"));
        let error = component(folder.path()).unwrap_err().to_string();
        assert!(error.contains("treadle plugin build"), "{error}");
    }
}
