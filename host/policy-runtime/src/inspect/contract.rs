//! Checks of an upload against the WIT package: what it imports, and which world it
//! targets.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldId, WorldItem, WorldKey};

use super::Refused;
use super::bytes::invalid;
use super::packages;
use crate::error::UploadRefusal;
use crate::worlds::{Contract, IMPORTS, PACKAGE, WORLDS};

pub(super) static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::parse);

/// Maximum number of WIT sections in a module; each library with bindings adds one.
const CONTRACTS_MAX: usize = 16;

/// Turns a core module with embedded WIT into a component.
pub(crate) fn componentize(module: &[u8]) -> Refused<Vec<u8>> {
    let mut contracts = 0;
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(|error| invalid(&error))?;
                    check_core_import(import.module)?;
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                contracts += 1;
                if contracts > CONTRACTS_MAX {
                    let what = format!("embeds its WIT more than {CONTRACTS_MAX} times");
                    return Err(packages::too_large(what));
                }
                packages::check(section.data())?;
            }
            _ => {}
        }
    }
    if contracts == 0 {
        return Err(UploadRefusal::new(
            "no-wit",
            "the module does not name the world it targets",
            "custom section component-type",
            "build it with treadle-plugin, or embed the WIT: wasm-tools component embed wit --world eviction",
        ));
    }
    let encoded = parsed(|| {
        let encoder = ComponentEncoder::default().validate(true).module(module);
        encoder.and_then(|mut encoder| encoder.encode())
    });
    encoded.map_err(|error| {
        UploadRefusal::new(
            "not-a-component",
            error,
            "the module's imports and exports against its embedded WIT",
            "build it again with the WIT of this treadle and one version of the bindings",
        )
    })
}

/// What a library for components makes of an upload. These libraries panic at some components that
/// are valid but have names where others have none.
fn parsed<T, E: Display>(parse: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(parse)) {
        Ok(parsed) => parsed.map_err(|error| format!("{error:#}")),
        Err(_) => Err("it has an import or export of a form that is not supported".to_owned()),
    }
}

/// Imports of a core module have the names of the interfaces, possibly after a prefix of the naming
/// scheme.
fn check_core_import(module: &str) -> Refused<()> {
    let name = module.strip_prefix("cm32p2|").unwrap_or(module);
    let is_internal = name.starts_with('[') || name.starts_with('$');
    if is_internal {
        return Ok(());
    }
    check_import(name)
}

/// Refuses every import of a component except the host's interfaces.
pub(crate) fn check_imports(component: &[u8]) -> Refused<()> {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    check_import(import.map_err(|error| invalid(&error))?.name.name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_import(import: &str) -> Refused<()> {
    let name = import.split('@').next().unwrap_or(import);
    if IMPORTS.contains(&name) {
        return Ok(());
    }
    let remedy = if name.starts_with("wasi") {
        "policies get no WASI: build for wasm32-unknown-unknown, or with --stub-wasi"
    } else {
        "policies may import treadle:policy/host only; remove what needs this import"
    };
    Err(UploadRefusal::new(
        "forbidden-import",
        format!("imports {import}"),
        format!("import {import}"),
        remedy,
    ))
}

/// The WIT that a component was made from.
pub(crate) fn decode(component: &[u8]) -> Refused<(Resolve, WorldId)> {
    match parsed(|| wit_component::decode(component)) {
        Ok(DecodedWasm::Component(resolve, world)) => Ok((resolve, world)),
        Ok(DecodedWasm::WitPackage(..)) => Err(UploadRefusal::new(
            "no-code",
            "this is a WIT package, not a policy",
            "the whole file",
            "upload the component that implements it",
        )),
        Err(error) => Err(UploadRefusal::new(
            "not-a-component",
            error,
            "the component's imports and exports",
            "build it with treadle-plugin or another tool that works from the WIT",
        )),
    }
}

/// Names with versions.
pub(crate) fn interfaces<'a>(
    resolve: &Resolve,
    items: impl IntoIterator<Item = (&'a WorldKey, &'a WorldItem)>,
) -> Vec<String> {
    let names = items
        .into_iter()
        .map(|(key, _)| resolve.name_world_key(key));
    names.collect()
}

/// The world whose shape the component has, types included.
pub(crate) fn find_world(component: &[u8], exports: &[String]) -> Refused<&'static str> {
    let mut nearest = None;
    for &(name, world) in &CONTRACT.worlds {
        match parsed(|| wit_component::targets(&CONTRACT.resolve, world, component)) {
            Ok(()) => return Ok(name),
            Err(error) => {
                let interface = format!("{PACKAGE}/{name}-policy");
                let is_meant = exports.iter().any(|export| export.starts_with(&interface));
                if is_meant {
                    nearest = Some((name, error));
                }
            }
        }
    }
    if let Some((name, why)) = nearest {
        return Err(UploadRefusal::new(
            "world-mismatch",
            format!("does not fit the world {name}: {why}"),
            "the component's exports",
            format!("build against wit/{name}.wit of this treadle and export all its interfaces"),
        ));
    }
    Err(UploadRefusal::new(
        "wrong-world",
        format!("exports [{}], which is not a policy", exports.join(", ")),
        "the component's exports",
        format!(
            "target one of the worlds of {PACKAGE}: {}",
            WORLDS.join(", ")
        ),
    ))
}
