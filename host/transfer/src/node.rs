//! The node of a worker: either this one, with its tier, or another one, with its tier's server.

use crate::stream::{Link, RemoteSaving, RemoteStaged, RemoteUnkept};
use crate::tier::{Draft, Plan, Saving, Staged, Tier, Unkept};
use crate::{CopyId, CopyLocation, KvCopy, Prefix, TransferError};

/// All nodes, as seen from this one.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub(crate) tier: Tier,
    pub(crate) link: Link,
}

/// A file for an engine to write; removed when this is dropped.
pub(crate) enum SavingAt {
    Here(Saving),
    There(RemoteSaving),
}

/// A copy where an engine can read it; removed when this is dropped.
#[expect(dead_code, reason = "held for what dropping it does")]
pub(crate) enum StagedAt {
    Here(Staged),
    There(RemoteStaged),
}

impl Nodes {
    /// The node's address, unless it is this node.
    fn other<'n>(&self, node: Option<&'n str>) -> Option<&'n str> {
        node.filter(|node| *node != self.tier.node())
    }

    pub(crate) async fn saving(
        &self,
        node: Option<&str>,
        id: CopyId,
        plan: Plan,
    ) -> Result<SavingAt, TransferError> {
        Ok(match self.other(node) {
            None => SavingAt::Here(self.tier.saving(id, &plan).await?),
            Some(node) => SavingAt::There(self.link.save(node, id, plan).await?),
        })
    }

    pub(crate) async fn stage(
        &self,
        node: Option<&str>,
        copy: &KvCopy,
        name: CopyId,
    ) -> Result<StagedAt, TransferError> {
        Ok(match self.other(node) {
            None => StagedAt::Here(self.tier.stage(copy, name, &self.link).await?),
            Some(node) => StagedAt::There(self.link.stage(node, copy, name).await?),
        })
    }

    pub(crate) async fn remove(&self, copy: &KvCopy) -> Result<(), TransferError> {
        match &copy.place {
            CopyLocation::Tier { node, .. } => match self.other(Some(node)) {
                None => {
                    self.tier.forget([copy.id]).await;
                    Ok(())
                }
                Some(node) => self.link.remove(node, copy.id).await,
            },
            _ => Err(TransferError::wrong_handle("the copy is in no host tier")),
        }
    }
}

impl SavingAt {
    pub(crate) fn id(&self) -> CopyId {
        match self {
            Self::Here(saving) => saving.id(),
            Self::There(saving) => saving.id(),
        }
    }

    /// Turns the file that the engine has written into a copy.
    pub(crate) async fn adopt(self, draft: Draft) -> Result<UnkeptAt, TransferError> {
        Ok(match self {
            Self::Here(saving) => UnkeptAt::Here(saving.adopt(draft).await?),
            Self::There(saving) => UnkeptAt::There(saving.adopt(draft).await?),
        })
    }
}

/// A complete copy, which is removed unless it is kept.
pub(crate) enum UnkeptAt {
    Here(Unkept),
    There(RemoteUnkept),
}

impl UnkeptAt {
    /// The copy's first tokens, up to the number known of its program.
    pub(crate) fn head(&self) -> Option<&Prefix> {
        match self {
            Self::Here(unkept) => unkept.head(),
            Self::There(unkept) => unkept.head.as_ref(),
        }
    }

    pub(crate) fn copy(&self) -> &KvCopy {
        match self {
            Self::Here(unkept) => unkept.copy(),
            Self::There(unkept) => &unkept.copy,
        }
    }

    pub(crate) async fn keep(self) -> Result<KvCopy, TransferError> {
        match self {
            Self::Here(unkept) => Ok(unkept.keep()),
            Self::There(unkept) => unkept.keep().await,
        }
    }
}
