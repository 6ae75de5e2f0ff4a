//! The images of sandboxes: owners, import and removal.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sandboxes;
use crate::blocking::whole;
use crate::error::SandboxError;

/// How long to wait for a moment without sandboxes being made.
const QUIET_MAX: Duration = Duration::from_secs(5);

impl Sandboxes {
    /// Names of all images, of all tenants.
    pub fn images(&self) -> Vec<String> {
        self.0.agent.platform.images()
    }

    /// Names of the images that a tenant may use.
    pub fn images_of(&self, tenant: &str) -> Vec<String> {
        let mut names = self.images();
        names.retain(|name| self.is_image_of(name, tenant));
        names
    }

    /// The tenant that owns an image; `None` if all tenants may use it.
    pub fn image_owner(&self, name: &str) -> Option<String> {
        self.0.agent.platform.image_owner(name)
    }

    /// Whether a tenant may use an existing image.
    pub(super) fn is_image_of(&self, name: &str, tenant: &str) -> bool {
        let owner = self.image_owner(name);
        owner.is_none_or(|owner| owner == tenant)
    }

    /// Imports an image for all tenants from any folder, tar archive or OCI image layout of this
    /// machine. Paths from clients must not be passed here.
    ///
    /// # Errors
    /// An invalid name or source.
    pub async fn import(&self, name: &str, from: &Path) -> Result<(), SandboxError> {
        self.0.agent.platform.import(name, from, None).await
    }

    /// Imports an image from a client's path on this machine, for a tenant or for all.
    ///
    /// # Errors
    /// An invalid name or source, or a source that is not permitted.
    pub async fn import_listed(
        &self,
        name: &str,
        from: &Path,
        owner: Option<&str>,
    ) -> Result<(), SandboxError> {
        let agent: Arc<_> = self.0.agent.clone();
        // First, so that platforms without imports report that.
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

    /// Removes an unused image.
    ///
    /// # Errors
    /// If it does not exist, or a sandbox uses it.
    pub async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        let Some(_none_is_made) = self.none_is_made().await else {
            let problem = format!(
                "`{name}` may be in use: sandboxes are being made or copied just now; try again"
            );
            return Err(SandboxError::Value("image", problem));
        };
        if self.list().iter().any(|sandbox| sandbox.spec.image == name) {
            let problem = format!("`{name}` is used by sandboxes; remove those first");
            return Err(SandboxError::Value("image", problem));
        }
        if self
            .snapshots()
            .iter()
            .any(|snapshot| snapshot.image == name)
        {
            let problem = format!("`{name}` is used by snapshots; remove those first");
            return Err(SandboxError::Value("image", problem));
        }
        self.0.agent.platform.remove_image(name).await
    }

    /// Excludes making and copying sandboxes, if that is possible soon. It polls instead of
    /// queueing, because creations would queue behind it.
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
