//! An upload names interfaces of one package only: `treadle:policy` in the version that there is.
//!
//! Checked before the upload's WIT is decoded. The decoder orders packages by what
//! they use from each other and does not return when that is a circle; with one
//! package there is none.

use wasmparser::{
    ComponentExternName, ComponentType, ComponentTypeDeclaration, InstanceTypeDeclaration, Parser,
    Payload,
};

use super::Refused;
use super::bytes::invalid;
use crate::error::UploadRefusal;
use crate::worlds::{PACKAGE, VERSION};

/// Imports, exports and types with a name, all together. The contract has about a
/// hundred.
const NAMES_MAX: usize = 10_000;

/// Checks a valid component, or the encoded WIT in a module's custom section.
pub(crate) fn check(component: &[u8]) -> Refused<()> {
    let mut seen = Seen::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            // Types declared inside can be exported by the outside.
            Payload::ComponentTypeSection(section) => {
                for ty in section {
                    seen.ty(&ty.map_err(|error| invalid(&error))?)?;
                }
            }
            // What nested components pass among themselves is their own affair.
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    seen.name(&import.map_err(|error| invalid(&error))?.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    seen.name(&export.map_err(|error| invalid(&error))?.name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Default)]
struct Seen {
    names: usize,
}

impl Seen {
    /// Recursion is bounded: the parser refuses types nested too deep.
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

/// The decoder takes seconds for what no contract is like.
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
