//! The images that sandboxes are made of: whose they are, where they come from, and how they go.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sandboxes;
use crate::blocking::whole;
use crate::error::SandboxError;

/// How long it is tried to find a moment at which nothing is made.
const QUIET_MAX: Duration = Duration::from_secs(5);

impl Sandboxes {
    /// Names of all images, whosever they are.
    pub fn images(&self) -> Vec<String> {
        self.0.agent.platform.images()
    }

    /// Names of the images that a tenant may make sandboxes of.
    pub fn images_of(&self, tenant: &str) -> Vec<String> {
        let mut names = self.images();
        names.retain(|name| self.is_image_of(name, tenant));
        names
    }

    /// The tenant whose an image is; nothing where it is all tenants'.
    pub fn image_owner(&self, name: &str) -> Option<String> {
        self.0.agent.platform.image_owner(name)
    }

    /// Whether a tenant may make sandboxes of an image that is there.
    pub(super) fn is_image_of(&self, name: &str, tenant: &str) -> bool {
        let owner = self.image_owner(name);
        owner.is_none_or(|owner| owner == tenant)
    }

    /// Makes an image for all tenants of a folder, a tar archive or an OCI image layout of this
    /// machine, wherever that is. Nothing that a client names goes here.
    ///
    /// # Errors
    /// What is wrong with the name or the source.
    pub async fn import(&self, name: &str, from: &Path) -> Result<(), SandboxError> {
        self.0.agent.platform.import(name, from, None).await
    }

    /// Makes an image of what a client names on this machine: of a tenant, or of all without one.
    ///
    /// # Errors
    /// What is wrong with the name or the source, or it is not one that images are made of.
    pub async fn import_listed(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError> {
        let agent: Arc<_> = self.0.agent.clone();
        // Where images are not made of files, that is what is told.
        agent.platform.check_imports(name)?;
        let (name, given, owner) = (name.to_owned(), from.to_owned(), owner.map(str::to_owned));
        whole(async move {
            let (sources, path) = (agent.config.image_sources.clone(), given.clone());
            let held = tokio::task::spawn_blocking(move || sources.open(&path)).await;
            let failed = |error| SandboxError::System("importing", std::io::Error::other(error));
            let source = held.map_err(failed)??;
            let platform = &agent.platform;
            let imported = platform
                .import(&name, &source.path(), owner.as_deref())
                .await;
            imported.map_err(|error| match error {
                SandboxError::File { error, .. } => {
                    let path = given.display().to_string();
                    SandboxError::File { path, error }
                }
                other => other,
            })
        })
        .await
    }

    /// Removes an image that no sandbox has.
    ///
    /// # Errors
    /// It is not there, or a sandbox has it.
    pub async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        let Some(_none_is_made) = self.none_is_made().await else {
            let problem = format!(
                "`{name}` may be in use: sandboxes are being made or copied just now; try again"
            );
            return Err(SandboxError::Value("image", problem));
        };
        if self.list().iter().any(|sandbox| sandbox.spec.image == name) {
            let problem = format!("`{name}` is what sandboxes are made of; remove those first");
            return Err(SandboxError::Value("image", problem));
        }
        if self
            .snapshots()
            .iter()
            .any(|snapshot| snapshot.image == name)
        {
            let problem = format!("`{name}` lies below snapshots; remove those first");
            return Err(SandboxError::Value("image", problem));
        }
        self.0.agent.platform.remove_image(name).await
    }

    /// What keeps anything from being made or copied, if that comes about soon. It does not wait in
    /// line: those who make something would wait behind it.
    async fn none_is_made(&self) -> Option<tokio::sync::RwLockWriteGuard<'_, ()>> {
        let began = Instant::now();
        loop {
            match self.0.copying.try_write() {
                Ok(guard) => return Some(guard),
                Err(_) if began.elapsed() < QUIET_MAX => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(_) => return None,
            }
        }
    }
}
