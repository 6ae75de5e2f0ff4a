//! Images of sandboxes: read-only folders shared by many.

mod owners;
mod sources;
mod system;
mod unpack;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::now_us;
use crate::error::SandboxError;
use crate::layers;
use crate::platform::MeasuredImage;
use crate::record::Record;
use crate::usage;
use crate::wire::Overlay;
pub use sources::ImageSources;

/// The image that always exists: the programs of this machine, without its data.
pub const SYSTEM_IMAGE: &str = "system";
/// Maximum length of an image's name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The images of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    folder: PathBuf,
    uid: u32,
    /// Held while an image is added or removed.
    changing: Arc<Mutex<()>>,
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

/// The known size and last use of an image.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    bytes: Option<u64>,
    used_at_us: Option<u64>,
}

/// The layers that an image provides to a sandbox.
#[derive(Debug)]
pub(crate) struct Image {
    /// Mount points of overlays, with their lower layers, uppermost first.
    pub(crate) overlays: Vec<(PathBuf, Vec<PathBuf>)>,
    /// Folders of the machine that are mounted read-only.
    pub(crate) read_only: Vec<(PathBuf, PathBuf)>,
}

impl Images {
    /// Opens the images in a folder, and recreates the system image.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: &Path, uid: u32) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let images = Self {
            folder: folder.to_owned(),
            uid,
            changing: Arc::default(),
            known: Arc::default(),
        };
        let system = folder.join(SYSTEM_IMAGE);
        layers::remove(&system)?;
        system::make(&system, uid)?;
        for name in layers::names(folder)
            .iter()
            .filter(|name| name.starts_with('.'))
        {
            // Left by an incomplete import.
            layers::remove(&folder.join(name))?;
        }
        Ok(images)
    }

    /// The image with this name.
    pub(crate) fn get(&self, name: &str) -> Result<Image, SandboxError> {
        let name = if name.is_empty() { SYSTEM_IMAGE } else { name };
        let unknown = || SandboxError::ImageUnknown(name.to_owned());
        if check_name(name).is_err() || !self.folder.join(name).is_dir() {
            return Err(unknown());
        }
        let folder = self.folder.join(name);
        if name == SYSTEM_IMAGE {
            return Ok(system::image(&folder));
        }
        Ok(Image {
            overlays: vec![(PathBuf::from("/"), vec![folder])],
            read_only: Vec::new(),
        })
    }

    /// Names of all images.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = layers::names(&self.folder);
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    /// Records that a sandbox is made of an image.
    pub(crate) fn used(&self, name: &str) {
        self.known().entry(name.to_owned()).or_default().used_at_us = Some(now_us());
    }

    /// All images except the system image, each measured once. Uses before this agent's start are
    /// unknown: then the import counts as the last use.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn measured(&self) -> io::Result<Vec<MeasuredImage>> {
        let mut names = self.names();
        names.retain(|name| name != SYSTEM_IMAGE);
        self.known().retain(|name, _| names.contains(name));
        let mut all = Vec::new();
        for name in names {
            let known = self.known().get(&name).copied().unwrap_or_default();
            let folder = self.folder.join(&name);
            let bytes = known.bytes.unwrap_or_else(|| usage::of_folder(&folder));
            self.known().entry(name.clone()).or_default().bytes = Some(bytes);
            let came = || fs::metadata(&folder).map(|came| came.ctime());
            let used_at_us = match known.used_at_us {
                Some(used) => used,
                None => u64::try_from(came()?).unwrap_or(0) * 1_000_000,
            };
            all.push(MeasuredImage {
                name,
                bytes,
                used_at_us,
            });
        }
        Ok(all)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tenant that owns an image; `None` if all tenants may use it.
    pub(crate) fn owner(&self, name: &str) -> Option<String> {
        // The system image belongs to all.
        let is_system = name.is_empty() || name == SYSTEM_IMAGE;
        (!is_system).then(|| owners::of(&self.folder, name))?
    }

    /// Imports an image from a folder, an archive (`.tar`), or an OCI image layout, for a tenant or
    /// for all. It is available when it is complete.
    ///
    /// # Errors
    /// An invalid name or source.
    pub(crate) fn import(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError> {
        check_name(name).map_err(|problem| SandboxError::Value("image", problem))?;
        let _changing = self.lock();
        if name == SYSTEM_IMAGE {
            let problem = "is reserved for this machine's programs; use another name".to_owned();
            return Err(SandboxError::Value("image", problem));
        }
        if self.folder.join(name).exists() {
            let problem = format!("`{name}` already exists; remove it first, or use another name");
            return Err(SandboxError::Value("image", problem));
        }
        let partial = self.folder.join(format!(".{name}"));
        let made = layers::remove(&partial)
            .and_then(|()| layers::make_owned(&partial, self.uid))
            .and_then(|()| unpack::into(&partial, from, self.uid))
            .and_then(|()| owners::note(&self.folder, name, owner))
            .and_then(|()| fs::rename(&partial, self.folder.join(name)));
        made.map_err(|error| {
            let _ = layers::remove(&partial);
            let path = from.display().to_string();
            SandboxError::File { path, error }
        })
    }

    /// Renames an unused image out of the list. Returns the folder to remove, which takes longer;
    /// otherwise the next start removes it.
    pub(crate) fn remove(&self, name: &str) -> Result<PathBuf, SandboxError> {
        if name == SYSTEM_IMAGE || check_name(name).is_err() || !self.folder.join(name).is_dir() {
            return Err(SandboxError::ImageUnknown(name.to_owned()));
        }
        let _changing = self.lock();
        // Renamed as a whole, so that no partial image is left.
        let gone = self.folder.join(format!(".gone-{}-{name}", now_us()));
        fs::rename(self.folder.join(name), &gone)
            .and_then(|()| owners::forget(&self.folder, name))
            .map_err(|error| SandboxError::System("removing the image", error))?;
        Ok(gone)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the name of an image or a snapshot; returns the problem.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let plain = !name.starts_with('.') && name.bytes().all(allowed);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !plain {
        return Err(format!(
            "must be at most {NAME_BYTES_MAX} letters, digits and `-_.:`, and must not begin with a dot"
        ));
    }
    Ok(())
}

/// The overlays of a sandbox: its private parts over copies over the image.
pub(crate) fn overlays(image: &Image, record: &Record, own: &Path, copies: &Path) -> Vec<Overlay> {
    let each = image.overlays.iter().enumerate();
    each.map(|(index, (at, base))| {
        let layers_between = record
            .layers
            .iter()
            .map(|layer| layers::parts(&copies.join(layer), index).0);
        let lower = layers_between.chain(base.iter().cloned()).collect();
        let (upper, work) = layers::parts(own, index);
        Overlay {
            at: at.clone(),
            lower,
            upper,
            work,
        }
    })
    .collect()
}
