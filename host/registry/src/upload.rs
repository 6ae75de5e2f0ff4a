//! Accepting uploads, listing them, and finding one by name or digest.

use super::reference::is_called;
use super::{NATIVE, PluginRegistry, RegistryError, reference, unix_us};
use treadle_policy_runtime::{Description, Inspection, SignaturePolicy, TrustedKeys};
use treadle_store::{PluginHead, PluginRow};

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
