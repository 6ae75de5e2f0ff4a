//! `treadle plugin new`: creates a project with a working policy.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use treadle_model::World;

use super::files::{below, text};
use super::language::Language;
use super::rust_workspace;
use crate::cli::error::CliError;
use crate::cli::output::{print_json, print_text};

/// Longest name of a policy.
const NAME_CHARS_MAX: usize = 64;

/// Arguments of `treadle plugin new`.
#[derive(Args, Clone, Debug)]
pub(super) struct NewArgs {
    /// The policy's name: lower-case words joined by hyphens.
    #[arg(value_parser = policy_name)]
    name: String,
    /// The language to write it in.
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,
    /// The kind of decision: prediction, priority, placement, allocation, eviction, reward
    /// or shaping.
    #[arg(long, value_parser = world)]
    world: World,
    /// Folder of the project; by default the policy's name.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

/// Parses the name of a world.
pub(super) fn world(text: &str) -> Result<World, String> {
    World::from_name(text).ok_or_else(|| {
        let words: Vec<_> = World::ALL.iter().map(|world| world.as_str()).collect();
        let words = words.join(", ");
        format!("give one of {words}")
    })
}

fn policy_name(text: &str) -> Result<String, String> {
    let is_word = |word: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        !word.is_empty() && word.chars().all(is_plain)
    };
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && text.len() <= NAME_CHARS_MAX && text.split('-').all(is_word) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "write lower-case words joined by hyphens, at most {NAME_CHARS_MAX} characters, such as shortest-first-priority"
    ))
}

impl NewArgs {
    /// Creates the project and prints the next steps.
    pub(super) fn run(self, json: bool) -> Result<(), CliError> {
        let folder = self.path.clone().unwrap_or_else(|| (&self.name).into());
        let is_taken = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
        if is_taken || folder.is_file() {
            return Err(CliError::Usage(format!(
                "{} already exists; choose another name or --path",
                folder.display()
            )));
        }
        let files = project_files(&self.name, self.lang, self.world);
        for (path, text) in &files {
            write(&folder.join(path), text)?;
        }
        let next = next_commands(&folder, self.lang);
        if json {
            return print_json(&json!({
                "path": folder, "language": self.lang, "world": self.world.as_str(),
                "files": files.iter().map(|(path, _)| path).collect::<Vec<_>>(), "next": next,
            }));
        }
        print_text(&format!(
            "{} contains a policy of the world {} in {}; next:\n  {}",
            folder.display(),
            self.world.as_str(),
            self.lang,
            next.join("\n  ")
        ))
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
    written.map_err(|cause| {
        CliError::Failed(format!(
            "can't write {}: {cause}; choose another place with --path",
            path.display()
        ))
    })
}

/// The commands to run after `new`.
fn next_commands(folder: &Path, language: Language) -> [String; 3] {
    let place = folder.display();
    let prepare = match language {
        Language::Rust => format!("cd {place} && rustup target add wasm32-unknown-unknown"),
        Language::Python => format!(
            "cd {place} && python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
        ),
        Language::Typescript => format!("cd {place} && npm ci"),
    };
    [
        prepare,
        "treadle plugin build".to_owned(),
        "treadle plugin test".to_owned(),
    ]
}

/// Paths in a project, and the files' content.
fn project_files(name: &str, language: Language, world: World) -> Vec<(String, String)> {
    let mut files = template_files(name, language, world);
    let mut copy = |from: &str, to: &str| {
        let copies = below(from).map(|(path, text)| (format!("{to}/{path}"), text.to_owned()));
        files.extend(copies);
    };
    copy("wit", "wit");
    match language {
        Language::Rust => {
            copy("sdk/rust/src", "treadle-plugin/src");
            copy("sdk/rust/wit", "treadle-plugin/wit");
        }
        Language::Python => copy("sdk/python/treadle_plugin", "treadle_plugin"),
        Language::Typescript => copy("sdk/typescript/src", "treadle-plugin"),
    }
    let mut put = |path: &str, text: String| files.push((path.to_owned(), text));
    let inputs = text(&format!("sdk/inputs/{world}.jsonl"));
    put("inputs.jsonl", inputs.to_owned());
    match language {
        Language::Rust => {
            let sdk = text("sdk/rust/Cargo.toml");
            put("treadle-plugin/Cargo.toml", sdk.to_owned());
            // The project's README.
            let guide = text("sdk/rust/README.md");
            put("treadle-plugin/README.md", guide.to_owned());
            let manifest = rust_workspace::manifest(name, world.as_str());
            put("Cargo.toml", manifest);
        }
        Language::Python => {
            let requirements = text("sdk/python/requirements.txt");
            put("requirements.txt", requirements.to_owned());
        }
        Language::Typescript => {
            put("package.json", package(name, world.as_str()));
            put("package-lock.json", lock(name));
        }
    }
    files
}

/// The files of a language's template, with the policy of the world.
fn template_files(name: &str, language: Language, world: World) -> Vec<(String, String)> {
    let (folder, policy) = match language {
        Language::Rust => ("sdk/rust/template", "src/lib"),
        Language::Python => ("sdk/python/template", "policy"),
        Language::Typescript => ("sdk/typescript/template", "policy"),
    };
    let mut files = Vec::new();
    for (path, text) in below(folder) {
        // Template manifests have names that no tool recognises.
        let path = path.strip_suffix(".in").unwrap_or(path);
        let place = match path.strip_prefix("policies/") {
            None => path.to_owned(),
            Some(file) => match file.split_once('.') {
                Some((of_world, ending)) if of_world == world.as_str() => {
                    format!("{policy}.{ending}")
                }
                _ => continue,
            },
        };
        let filled = text.replace("@name@", name);
        files.push((place, filled.replace("@world@", world.as_str())));
    }
    files
}

/// `package.json`: the SDK's with another name, so that the tools have the same versions.
fn package(name: &str, world: &str) -> String {
    let mut package: Value =
        serde_json::from_str(text("sdk/typescript/package.json")).unwrap_or_default();
    package["name"] = name.into();
    package["version"] = "0.1.0".into();
    package["description"] = format!("A treadle policy of the world {world}").into();
    package["treadle"] = json!({"world": world, "main": "policy.ts", "wit": "wit"});
    format!("{package:#}\n")
}

/// `package-lock.json`: the SDK's with another name.
fn lock(name: &str) -> String {
    let mut lock: Value =
        serde_json::from_str(text("sdk/typescript/package-lock.json")).unwrap_or_default();
    for at in ["", "/packages/"] {
        if let Some(root) = lock.pointer_mut(at) {
            root["name"] = name.into();
            root["version"] = "0.1.0".into();
        }
    }
    format!("{lock:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_project_has_a_policy_a_manifest_inputs_and_the_contract() {
        for language in Language::ALL {
            for &world in World::ALL {
                let files = project_files("a-policy", language, world);
                let text = |path: &str| {
                    let file = files.iter().find(|(name, _)| name == path);
                    let text = file.map(|(_, text)| text.clone()).unwrap_or_default();
                    assert!(!text.is_empty(), "{language} {}: {path}", world.as_str());
                    text
                };
                assert!(text(language.manifest()).contains("a-policy"));
                text("wit/types.wit");
                assert!(text("inputs.jsonl").contains(world.as_str()));
                text("README.md");
                text(".gitignore");
                let policy = match language {
                    Language::Rust => "src/lib.rs",
                    Language::Python => "policy.py",
                    Language::Typescript => "policy.ts",
                };
                assert!(text(policy).contains(world.as_str()));
                let unfilled = files.iter().find(|(_, text)| text.contains("@name@"));
                assert_eq!(unfilled, None);
            }
        }
    }

    #[test]
    fn names_are_hyphenated() {
        for good in ["a", "shortest-first-priority", "a1-b2"] {
            assert_eq!(policy_name(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "A",
            "a_b",
            "-a",
            "a-",
            "a--b",
            "1a",
            "a/b",
            "..",
            &"a".repeat(65),
        ] {
            assert!(policy_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_occupied_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine"), "").unwrap();
        let new = NewArgs {
            name: "a".to_owned(),
            lang: Language::Rust,
            world: World::Reward,
            path: Some(folder.path().to_owned()),
        };
        let error = new.run(false).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
