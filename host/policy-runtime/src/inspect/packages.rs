//! An upload may name interfaces of only one package: `treadle:policy` in the present version.
//!
//! This is checked before the upload's WIT is decoded. The decoder orders packages by their
//! dependencies and does not return if these are circular; with one package that is impossible.

use wasmparser::{
    ComponentExternName, ComponentType, ComponentTypeDeclaration, InstanceTypeDeclaration, Parser,
    Payload,
};

use super::Refused;
use super::bytes::invalid;
use crate::error::UploadRefusal;
use crate::worlds::{PACKAGE, VERSION};

/// Maximum number of imports, exports and named types. The contract has about a hundred.
const NAMES_MAX: usize = 10_000;

/// Checks a valid component, or the encoded WIT in a module's custom section.
pub(crate) fn check(component: &[u8]) -> Refused<()> {
    let mut counter = NameCounter::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            // Types declared inside can be exported by the outside.
            Payload::ComponentTypeSection(section) => {
                for ty in section {
                    counter.ty(&ty.map_err(|error| invalid(&error))?)?;
                }
            }
            // Names passed among nested components are not checked.
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    counter.name(&import.map_err(|error| invalid(&error))?.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    counter.name(&export.map_err(|error| invalid(&error))?.name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Default)]
struct NameCounter {
    names: usize,
}

impl NameCounter {
    /// Recursion is bounded: the parser refuses deeply nested types.
    fn ty(&mut self, ty: &ComponentType<'_>) -> Refused<()> {
        match ty {
            ComponentType::Component(items) => items.iter().try_for_each(|item| match item {
                ComponentTypeDeclaration::Type(ty) => self.ty(ty),
                ComponentTypeDeclaration::Export { name, .. } => self.name(name),
                ComponentTypeDeclaration::Import(import) => self.name(&import.name),
                ComponentTypeDeclaration::CoreType(_) | ComponentTypeDeclaration::Alias(_) => {
                    Ok(())
                }
            }),
            ComponentType::Instance(items) => items.iter().try_for_each(|item| match item {
                InstanceTypeDeclaration::Type(ty) => self.ty(ty),
                InstanceTypeDeclaration::Export { name, .. } => self.name(name),
                InstanceTypeDeclaration::CoreType(_) | InstanceTypeDeclaration::Alias(_) => Ok(()),
            }),
            ComponentType::Defined(_) | ComponentType::Func(_) | ComponentType::Resource { .. } => {
                Ok(())
            }
        }
    }

    fn name(&mut self, name: &ComponentExternName<'_>) -> Refused<()> {
        self.names += 1;
        if self.names > NAMES_MAX {
            return Err(too_large(format!("names more than {NAMES_MAX} things")));
        }
        if let Some(interface) = name.implements {
            Self::interface(interface, name.version_suffix)?;
            return Self::interface(name.name, None);
        }
        Self::interface(name.name, name.version_suffix)
    }

    /// Names without a package are plain names inside an interface.
    fn interface(name: &str, version_suffix: Option<&str>) -> Refused<()> {
        let Some((package, rest)) = name.rsplit_once('/') else {
            if name.contains([':', '=']) {
                return Err(foreign(name));
            }
            return Ok(());
        };
        if package != PACKAGE {
            return Err(foreign(name));
        }
        let version = rest.split_once('@').map_or("", |(_, version)| version);
        let version = format!("{version}{}", version_suffix.unwrap_or_default());
        if version == VERSION {
            return Ok(());
        }
        Err(UploadRefusal::new(
            "unknown-version",
            format!("was built against {PACKAGE}@{version}, and this treadle has {VERSION}"),
            format!("interface {name}"),
            format!("build it again against the WIT of {PACKAGE}@{VERSION}"),
        ))
    }
}

/// The decoder would take seconds for such an upload, and no contract is like that.
pub(crate) fn too_large(what: String) -> UploadRefusal {
    UploadRefusal::new(
        "contract-too-large",
        what,
        "the imports, exports and types of the component",
        format!("build against the WIT of {PACKAGE} alone"),
    )
}

fn foreign(name: &str) -> UploadRefusal {
    UploadRefusal::new(
        "foreign-package",
        format!("names {name}, which is not of the package {PACKAGE}"),
        format!("interface {name}"),
        format!("import and export interfaces of {PACKAGE} only"),
    )
}
