//! Accepting uploads, listing them, and finding one by name or digest.

use super::reference::is_called;
use super::{NATIVE, PluginRegistry, RegistryError, reference, unix_us};
use treadle_policy_runtime::{Description, Inspection, SignaturePolicy, TrustedKeys};
use treadle_store::{PLUGINS_BYTES_MAX, PLUGINS_MAX, PluginHead, PluginRow};

/// The trusted keys, and whether uploads need a signature.
#[derive(Default)]
pub struct Signing {
    /// Whether an unsigned upload is accepted.
    pub policy: SignaturePolicy,
    /// Trusted keys.
    pub keys: TrustedKeys,
}

/// An upload.
#[derive(Debug, Default)]
pub struct Upload {
    /// A component, or a core module with embedded WIT.
    pub bytes: Vec<u8>,
    /// An ed25519 signature of its digest.
    pub signature: Option<String>,
    /// True if the uploader's tenant accepts only signed uploads.
    pub signed_only: bool,
}

/// Checks that a tenant with these plugins may store another one of `new_bytes`: `tenants` have
/// equal shares of what the store holds.
///
/// # Errors
/// [`RegistryError::BeyondShare`].
pub fn check_share(
    tenants: usize,
    plugins: &[PluginHead],
    new_bytes: u64,
) -> Result<(), RegistryError> {
    let share = |all: u64| (all / tenants.max(1) as u64).max(1);
    let stored: u64 = plugins.iter().map(|head| head.size_bytes).sum();
    let (plugins, bytes) = (plugins.len() as u64 + 1, stored.saturating_add(new_bytes));
    let (plugins_max, bytes_max) = (share(PLUGINS_MAX), share(PLUGINS_BYTES_MAX));
    if plugins > plugins_max || bytes > bytes_max {
        return Err(RegistryError::BeyondShare {
            plugins,
            bytes,
            plugins_max,
            bytes_max,
        });
    }
    Ok(())
}

impl PluginRegistry {
    /// Checks and stores an upload. The second value is false if it was stored before.
    pub async fn push(&self, upload: Upload) -> Result<(PluginHead, bool), RegistryError> {
        let digest = treadle_policy_runtime::upload_digest(&upload.bytes);
        let policy = if upload.signed_only {
            SignaturePolicy::SignedOnly
        } else {
            self.signing.policy
        };
        let signed_by = policy
            .check(&self.signing.keys, &digest, upload.signature.as_deref())
            .map_err(RegistryError::Refused)?;
        let signed_by = signed_by.map(|signer| signer.name);
        self.keep(upload.bytes, signed_by).await
    }

    /// Checks and stores a policy that needs no signature.
    pub(super) async fn push_unsigned(
        &self,
        bytes: Vec<u8>,
    ) -> Result<(PluginHead, bool), RegistryError> {
        self.keep(bytes, None).await
    }

    async fn keep(
        &self,
        bytes: Vec<u8>,
        signed_by: Option<String>,
    ) -> Result<(PluginHead, bool), RegistryError> {
        let inspection = self.inspect(bytes).await?;
        let head = PluginHead {
            digest: inspection.digest.clone(),
            world: inspection.world.clone(),
            name: inspection.description.name.clone(),
            version: inspection.description.version.clone(),
            summary: inspection.description.summary.clone(),
            size_bytes: inspection.component.len() as u64,
            uploaded_at_us: unix_us(),
            signed_by,
        };
        let row = PluginRow {
            head: head.clone(),
            component: inspection.component,
        };
        let new = self.store.put_plugin(&row).await?;
        Ok((head, new))
    }

    /// Takes an upload through every check without storing it.
    pub async fn inspect(&self, bytes: Vec<u8>) -> Result<Inspection, RegistryError> {
        let engine = self.engine.clone();
        // Compiling takes a while; it must not hold requests up.
        let inspected = tokio::task::spawn_blocking(move || engine.inspect(&bytes)).await;
        inspected
            .map_err(|_| RegistryError::EndedEarly("the inspection"))?
            .map_err(RegistryError::Refused)
    }

    /// Stored policies, newest first.
    pub async fn list(&self) -> Result<Vec<PluginHead>, RegistryError> {
        Ok(self.store.plugins().await?)
    }

    /// The description of the stored or bundled policy with this digest.
    pub async fn describe(&self, digest: &str) -> Result<Description, RegistryError> {
        let known = self.modules.get(digest);
        let stored = match known {
            Some(_) => None,
            None => self.store.plugin(digest).await?,
        };
        let (engine, asked) = (self.engine.clone(), digest.to_owned());
        let described = tokio::task::spawn_blocking(move || {
            let module = match (known, stored) {
                (Some(module), _) => module,
                (None, Some(row)) => engine.compile(&row.component)?,
                (None, None) => {
                    let mut brought = reference::all().iter();
                    let found = brought
                        .find(|brought| brought.head.digest == asked)
                        .ok_or(RegistryError::Unknown(asked))?;
                    let candidate = engine.examine(found.module);
                    engine.compile(&candidate.map_err(RegistryError::Refused)?.component)?
                }
            };
            let description = module.description()?.clone();
            Ok::<_, RegistryError>((module, description))
        });
        let ended = |_| RegistryError::EndedEarly("starting the policy");
        let (module, description) = described.await.map_err(ended)??;
        self.modules.keep(digest, module);
        Ok(description)
    }

    /// Finds a policy by its digest, a prefix of it, its name, or name@version, among those that
    /// `is_visible`.
    pub async fn resolve(
        &self,
        policy: &str,
        is_visible: impl Fn(&PluginHead) -> bool,
    ) -> Result<PluginHead, RegistryError> {
        let heads = self.store.plugins().await?;
        let visible = heads.into_iter().filter(|head| is_visible(head));
        let mut found: Vec<_> = visible.filter(|head| is_called(head, policy)).collect();
        match found.len() {
            0 => Err(RegistryError::Unknown(policy.into())),
            1 => Ok(found.remove(0)),
            count => Err(RegistryError::Ambiguous {
                name: policy.into(),
                count,
            }),
        }
    }

    /// Finds a policy for use: if it is not stored, it is looked up among the bundled reference
    /// policies, and stored for all tenants.
    pub async fn obtain(
        &self,
        policy: &str,
        is_visible: impl Fn(&PluginHead) -> bool,
    ) -> Result<PluginHead, RegistryError> {
        match self.resolve(policy, is_visible).await {
            Err(RegistryError::Unknown(name)) => {
                let mut brought = reference::all().iter();
                let found = brought
                    .find(|brought| is_called(&brought.head, &name))
                    .ok_or(RegistryError::Unknown(name))?;
                self.bring(found.module).await
            }
            other => other,
        }
    }

    pub(super) fn is_native(policy: &str) -> bool {
        policy == NATIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_of_all_tenants_together_fit_into_the_store() {
        let head = |size_bytes| PluginHead {
            digest: "sha256:1".to_owned(),
            world: "eviction".to_owned(),
            name: "one".to_owned(),
            version: "1.0.0".to_owned(),
            summary: String::new(),
            size_bytes,
            uploaded_at_us: 1,
            signed_by: None,
        };
        let half = PLUGINS_BYTES_MAX / 2;
        assert!(check_share(2, &[head(half - 1)], 1).is_ok());
        let refused = check_share(2, &[head(half - 1)], 2).expect_err("it is beyond its half");
        let message = refused.to_string();
        assert!(message.contains(&format!("of {half} bytes")), "{message}");
        assert!(
            check_share(1, &[head(half)], half).is_ok(),
            "nobody else is there"
        );
        let share = PLUGINS_MAX / 1_000;
        let many: Vec<_> = (0..share).map(|_| head(1)).collect();
        assert!(check_share(1_000, &many, 1).is_err());
        assert!(check_share(1_000, &many[1..], 1).is_ok());
    }
}
