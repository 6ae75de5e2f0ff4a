//! The tools that build components, and remedies for missing ones.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::language::Language;
use super::project::Project;
use crate::cli::error::CliError;

const RUST_TARGET: &str = "wasm32-unknown-unknown";

/// Builds the component of a project.
pub(super) fn build(project: &Project, output: &Path) -> Result<(), CliError> {
    match project.language {
        Language::Rust => build_rust(project, output),
        Language::Python => build_python(project, output),
        Language::Typescript => build_typescript(project, output),
    }
}

fn build_rust(project: &Project, output: &Path) -> Result<(), CliError> {
    let mut cargo = Command::new("cargo");
    cargo
        .args([
            "build",
            "--quiet",
            "--profile",
            "guest",
            "--lib",
            "--target",
            RUST_TARGET,
        ])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(&project.folder);
    if !has_target(&project.folder) {
        use_debians_compiler(&mut cargo)?;
    }
    let remedy = "install Rust from https://rustup.rs";
    let messages = run(&mut cargo, "cargo", remedy)?;
    let built = wasm_of(&messages).ok_or_else(|| {
        CliError::Failed(format!(
            "{} builds no module; its [lib] needs crate-type = [\"cdylib\", \"rlib\"]",
            project.folder.join("Cargo.toml").display()
        ))
    })?;
    std::fs::copy(&built, output)
        .map(drop)
        .map_err(|cause| CliError::File { path: built, cause })
}

/// Whether the compiler in use has the standard library of the target.
fn has_target(folder: &Path) -> bool {
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", RUST_TARGET])
        .current_dir(folder)
        .output();
    let Ok(asked) = asked else {
        return false;
    };
    let libraries = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let mut entries = std::fs::read_dir(libraries).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

/// Debian ships no standard library for the target, so cargo builds it from source.
fn use_debians_compiler(cargo: &mut Command) -> Result<(), CliError> {
    let is_there = ["/usr/bin/rustc", "/usr/bin/cargo", "/usr/bin/wasm-ld"]
        .iter()
        .all(|program| Path::new(program).exists());
    let mut sources = std::fs::read_dir("/usr/src")
        .into_iter()
        .flatten()
        .flatten();
    let has_source = sources.any(|entry| entry.file_name().to_string_lossy().starts_with("rustc-"));
    if !is_there || !has_source {
        return Err(CliError::Failed(format!(
            "the target {RUST_TARGET} is missing; run `rustup target add {RUST_TARGET}`, or on Debian `apt-get install rustc-web cargo-web rust-web-src lld`"
        )));
    }
    *cargo = {
        let mut debian = Command::new("/usr/bin/cargo");
        debian
            .args(cargo.get_args())
            .args(["-Z", "build-std=std,panic_abort"])
            .env("RUSTC", "/usr/bin/rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld");
        if let Some(folder) = cargo.get_current_dir() {
            debian.current_dir(folder);
        }
        debian
    };
    Ok(())
}

/// The last module in cargo's messages.
fn wasm_of(messages: &str) -> Option<PathBuf> {
    let is_wasm = |file: &&str| Path::new(file).extension() == Some(OsStr::new("wasm"));
    let mut modules = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?;
        let mut files = files.iter().filter_map(Value::as_str);
        files.find(is_wasm).map(PathBuf::from)
    });
    modules.next_back()
}

fn build_python(project: &Project, output: &Path) -> Result<(), CliError> {
    let tool = tool(
        &project.path("tools", ".venv").join("bin"),
        "componentize-py",
    );
    let mut componentize = Command::new(tool);
    componentize
        .args(["--quiet", "--wit-path"])
        .arg(project.path("wit", "wit"))
        .args(["--world", project.setting("world")?])
        .args(["componentize", "--stub-wasi", "--output"])
        .arg(output);
    for path in project.paths("path") {
        componentize.arg("--python-path").arg(path);
    }
    componentize.arg(project.setting("module")?);
    let remedy = format!(
        "run `cd {} && python3 -m venv .venv && .venv/bin/pip install -r requirements.txt`",
        project.folder.display()
    );
    run(&mut componentize, "componentize-py", &remedy).map(drop)
}

fn build_typescript(project: &Project, output: &Path) -> Result<(), CliError> {
    let remedy = format!(
        "run `cd {} && npm ci` (Node 18 or later; on Debian `apt-get install nodejs npm`)",
        project.folder.display()
    );
    let tools = project.path("tools", "node_modules").join(".bin");
    let bin = |name: &str| tool(&tools, name);
    let mut check = Command::new(bin("tsc"));
    check.args(["--noEmit", "--project"]).arg(&project.folder);
    run(&mut check, "tsc", &remedy)?;
    let script = output.with_extension("js");
    let mut bundle = Command::new(bin("esbuild"));
    bundle
        .arg(project.folder.join(project.setting("main")?))
        .args(["--bundle", "--format=esm", "--target=es2022"])
        .args(["--external:treadle:*", "--log-level=warning"])
        .arg(joined("--outfile=", &script));
    run(&mut bundle, "esbuild", &remedy)?;
    let mut componentize = Command::new(bin("componentize-qjs"));
    componentize
        .arg("--wit")
        .arg(project.path("wit", "wit"))
        .arg("--js")
        .arg(&script)
        .args(["--world", project.setting("world")?])
        .args(["--stub-wasi", "--sync", "--output"])
        .arg(output);
    run(&mut componentize, "componentize-qjs", &remedy).map(drop)
}

fn joined(option: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(option);
    argument.push(path);
    argument
}

/// A tool in a folder, or else on the PATH.
fn tool(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    if place.is_file() { place } else { name.into() }
}

/// Runs a tool and returns its standard output; its errors are printed.
fn run(command: &mut Command, name: &str, remedy: &str) -> Result<String, CliError> {
    let ran = command.stdin(Stdio::null()).output();
    let output = ran.map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => CliError::Failed(format!("{name} is missing; {remedy}")),
        _ => CliError::Failed(format!("{name} can't be run: {cause}; {remedy}")),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    // Cargo's standard output is for programs.
    let shown = if complained.is_empty() {
        said
    } else {
        complained
    };
    let program = Path::new(command.get_program()).file_name();
    let program = program
        .unwrap_or_else(|| OsStr::new(name))
        .to_string_lossy()
        .into_owned();
    Err(CliError::Failed(format!(
        "{program} failed; correct the errors:\n{shown}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_the_last_that_cargo_names() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/liba.rlib\"]}\n",
            "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/b.wasm\",\"/t/libb.rlib\"]}\n",
            "no JSON\n{\"reason\":\"build-finished\"}\n",
        );
        assert_eq!(wasm_of(messages), Some("/t/b.wasm".into()));
        assert_eq!(wasm_of(""), None);
    }

    #[test]
    fn a_missing_tool_comes_with_its_remedy() {
        let mut absent = Command::new("/nowhere/tool");
        let error = run(&mut absent, "tool", "install it").unwrap_err();
        assert_eq!(error.to_string(), "tool is missing; install it");
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo broken >&2; exit 3"]);
        let error = run(&mut failing, "sh", "").unwrap_err();
        assert_eq!(error.to_string(), "sh failed; correct the errors:\nbroken");
    }
}
