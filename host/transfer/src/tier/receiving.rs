//! Turns a slot file into a copy.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use treadle_model::ProgramId;

use super::{Reservation, Tier, files, remove_file};
use crate::llama_cpp::slot_file;
use crate::{CopyId, CopyLocation, KvCopy, Prefix, Tags, TransferError};

/// What the exporter declared about a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) program: ProgramId,
    /// The scheduler that owns it.
    #[serde(default)]
    pub(crate) owner: Box<str>,
    pub(crate) tags: Tags,
    /// Bytes that the engine reports as written.
    pub(crate) bytes: u64,
    /// Tokens that the engine reports as saved.
    pub(crate) tokens: u64,
    /// Number of known tokens of the program, for [`Unkept::head`].
    pub(crate) known_tokens: u64,
}

/// A complete copy, which is removed unless it is kept.
pub(crate) struct Unkept {
    tier: Tier,
    copy: KvCopy,
    is_kept: bool,
    /// The copy's first tokens, up to the number known of its program.
    head: Option<Prefix>,
}

impl Unkept {
    pub(crate) fn copy(&self) -> &KvCopy {
        &self.copy
    }

    pub(crate) fn head(&self) -> Option<&Prefix> {
        self.head.as_ref()
    }

    pub(crate) fn keep(mut self) -> KvCopy {
        self.is_kept = true;
        self.copy.clone()
    }
}

impl Drop for Unkept {
    fn drop(&mut self) {
        if !self.is_kept {
            self.tier.remove(self.copy.id);
        }
    }
}

/// A file that is removed unless it becomes a copy.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        if self.0.exists() {
            remove_file(&self.0);
        }
    }
}

/// Turns the file that an engine has written to `path` into a copy.
pub(super) async fn adopt(
    mut room: Reservation,
    id: CopyId,
    path: PathBuf,
    draft: Draft,
) -> Result<Unkept, TransferError> {
    let tier = room.tier.clone();
    let written = tokio::fs::metadata(&path).await.map_err(|error| {
        let error = std::io::Error::new(
            error.kind(),
            format!(
                "{error}; the engine's --slot-save-path and the tier's slots folder have to be \
                 the same folder"
            ),
        );
        TransferError::file("looking for the engine's file", &path)(error)
    })?;
    if written.len() != draft.bytes {
        let why = format!(
            "the engine wrote {} bytes, but the file has {}",
            draft.bytes,
            written.len()
        );
        return Err(TransferError::damaged(id, why));
    }
    tier.inner
        .estimates
        .learn(&draft.tags.model, draft.bytes, draft.tokens);
    room.resize(draft.bytes).await?;
    let beside = tier.room_beside(draft.bytes).await?;
    // If the caller has stopped waiting, the copy is dropped with the result.
    let work = move || take_in(room, beside, id, &path, draft);
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| TransferError::internal("receiving a copy", error))?
}

/// The part with file operations.
fn take_in(
    mut room: Reservation,
    beside: Option<Reservation>,
    id: CopyId,
    path: &Path,
    draft: Draft,
) -> Result<Unkept, TransferError> {
    let tier = room.tier.clone();
    let partial = Partial(tier.inner.folder.partial(id));
    files::move_file(path, &partial.0)?;
    drop(beside);
    let (bytes, digest) = files::digest(&partial.0)?;
    if bytes != draft.bytes {
        let why = format!("it has {bytes} of {} bytes", draft.bytes);
        return Err(TransferError::damaged(id, why));
    }
    let tokens = slot_file::tokens(&partial.0);
    let prefix = prefix(id, &draft, tokens.as_deref())?;
    let head = tokens.as_deref().map(|tokens| {
        let known = usize::try_from(draft.known_tokens).unwrap_or(usize::MAX);
        Prefix::of(&tokens[..tokens.len().min(known)])
    });
    let copy = KvCopy {
        id,
        program: draft.program,
        tags: draft.tags,
        prefix,
        bytes,
        checksum: Some(digest.text()),
        place: CopyLocation::Tier {
            node: tier.inner.node.clone(),
            owner: draft.owner,
        },
    };
    tier.inner.folder.commit(&copy)?;
    // The reservation becomes the copy's atomically, so that no other can take the room.
    {
        let mut index = tier.index();
        index.release(std::mem::take(&mut room.bytes));
        index.insert(copy.clone());
    }
    Ok(Unkept {
        tier,
        copy,
        is_kept: false,
        head,
    })
}

/// Checks that the file has as many tokens as the engine reports.
fn prefix(id: CopyId, draft: &Draft, tokens: Option<&[u32]>) -> Result<Prefix, TransferError> {
    let Some(tokens) = tokens else {
        return Ok(Prefix {
            tokens: draft.tokens,
            hash: None,
        });
    };
    if tokens.len() as u64 != draft.tokens {
        let why = format!(
            "the engine saved {} tokens, but the file has {}",
            draft.tokens,
            tokens.len()
        );
        return Err(TransferError::damaged(id, why));
    }
    Ok(Prefix::of(tokens))
}
