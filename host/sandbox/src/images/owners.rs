//! Owners of images. An image that a tenant imported belongs to it, unless it was imported for all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Stands for all tenants.
const ALL: &str = "*";
/// The owner of images without a record: the default tenant.
const DEFAULT: &str = "default";

/// The file with the owner of an image, beside the folder of images.
fn file(images: &Path, name: &str) -> PathBuf {
    images.with_file_name("image-owners").join(name)
}

/// Records the owner of an image; all tenants if `None`.
pub(super) fn note(images: &Path, name: &str, tenant: Option<&str>) -> io::Result<()> {
    let file = file(images, name);
    fs::create_dir_all(file.parent().unwrap_or(images))?;
    fs::write(file, tenant.unwrap_or(ALL))
}

/// The owner of an image; `None` if it belongs to all tenants.
pub(super) fn of(images: &Path, name: &str) -> Option<String> {
    let noted = fs::read_to_string(file(images, name));
    let owner = noted.unwrap_or_else(|_| DEFAULT.to_owned());
    (owner != ALL).then_some(owner)
}

/// Removes the record of an image.
pub(super) fn forget(images: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(file(images, name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
