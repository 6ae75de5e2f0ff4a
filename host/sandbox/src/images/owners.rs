//! Whose images are. One that a tenant imported is that tenant's, unless it was meant for all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// In the place of a tenant: all of them.
const ALL: &str = "*";
/// Whose images are of which nothing is on record: the tenant that is always there.
const DEFAULT: &str = "default";

/// The file that says whose an image is, beside the folder of images.
fn file(images: &Path, name: &str) -> PathBuf {
    images.with_file_name("image-owners").join(name)
}

/// Notes whose an image is; all tenants' without one.
pub(super) fn note(images: &Path, name: &str, tenant: Option<&str>) -> io::Result<()> {
    let file = file(images, name);
    fs::create_dir_all(file.parent().unwrap_or(images))?;
    fs::write(file, tenant.unwrap_or(ALL))
}

/// The tenant whose an image is; nothing where it is all tenants'.
pub(super) fn of(images: &Path, name: &str) -> Option<String> {
    let noted = fs::read_to_string(file(images, name));
    let owner = noted.unwrap_or_else(|_| DEFAULT.to_owned());
    (owner != ALL).then_some(owner)
}

/// Forgets an image.
pub(super) fn forget(images: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(file(images, name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
