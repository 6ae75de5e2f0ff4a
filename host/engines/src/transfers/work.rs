//! One transfer, from the order to its result.

use super::node::{Abilities, Node};
use super::prompts;
use std::sync::{Arc, Mutex, PoisonError};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::{EngineKind, ProgramId};
use treadle_scheduler::orders::{End, Work};
use treadle_transfer::{
    Export, Import, KvCopy, KvExecutor, KvInterface, Prompt, Tags, TransferError,
};

/// An intermediate copy for the duration of a transfer; the transfer executor drops it at its end,
/// whatever the result.
pub(super) type Passing = Arc<Mutex<Option<KvCopy>>>;

/// Why a transfer failed.
pub(super) struct Failure {
    /// The error code, for metrics.
    pub(super) code: &'static str,
    /// The message.
    pub(super) cause: String,
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        Self {
            code: error.code(),
            cause: error.to_string(),
        }
    }
}

/// The result of a transfer.
pub(super) struct Moved {
    pub(super) event: Event,
    pub(super) bytes: u64,
    /// The copy that is kept.
    pub(super) kept: Option<KvCopy>,
}

/// A transfer in progress.
pub(super) struct Transfer {
    pub(super) node: Arc<Node>,
    pub(super) program: ProgramId,
    /// The scheduler that ordered it.
    pub(super) owner: Box<str>,
    pub(super) key: Box<str>,
    pub(super) passing: Passing,
}

/// The operation on an engine.
#[derive(Clone, Copy)]
enum Wish {
    Offload,
    Migrate,
}

impl Transfer {
    /// Carries out the transfer. Dropping the future aborts it.
    pub(super) async fn run(&self, work: &Work) -> Result<Moved, Failure> {
        let limit = self.node.transfer_max;
        let done = async {
            match work {
                Work::Offload { from, tokens } => self.offload(from, *tokens).await,
                Work::Load { to, copy, tokens } => self.load(to, copy, *tokens).await,
                Work::Migrate { from, to, tokens } => self.migrate(from, to, *tokens).await,
            }
        };
        tokio::time::timeout(limit, done).await.unwrap_or_else(|_| {
            Err(TransferError::Timeout {
                what: "the whole transfer",
                after: limit,
            }
            .into())
        })
    }

    async fn offload(&self, from: &End, tokens: u64) -> Result<Moved, Failure> {
        self.able(from, Wish::Offload).await?;
        let copy = self.export(from, tokens, self.prompt()).await?;
        let (tokens, bytes) = (copy.prefix.tokens, copy.bytes);
        let handle = match copy.to_handle() {
            Ok(handle) => handle,
            Err(error) => {
                self.pass(copy);
                return Err(error.into());
            }
        };
        let event = Event::Program(ProgramEvent::ProgramOffloaded {
            program: self.program,
            copy: handle,
            tokens,
            bytes,
        });
        Ok(Moved {
            event,
            bytes,
            kept: Some(copy),
        })
    }

    async fn load(&self, to: &End, handle: &str, tokens: u64) -> Result<Moved, Failure> {
        let copy = KvCopy::from_handle(handle)?;
        if copy.prefix.tokens != tokens {
            let why = format!(
                "it has {} tokens, but the program has {tokens}",
                copy.prefix.tokens
            );
            return Err(TransferError::WrongHandle { why: why.into() }.into());
        }
        let bytes = self.import(to, copy, self.prompt()).await?;
        let event = Event::Program(ProgramEvent::ProgramLoaded {
            program: self.program,
            to: to.worker,
        });
        Ok(Moved {
            event,
            bytes,
            kept: None,
        })
    }

    /// Keeps the source's cache until the program is at the other engine. Both engines get the same
    /// prompt, even if a step with another one arrives meanwhile.
    async fn migrate(&self, from: &End, to: &End, tokens: u64) -> Result<Moved, Failure> {
        self.able(from, Wish::Migrate).await?;
        self.able(to, Wish::Migrate).await?;
        let prompt = self.prompt();
        let copy = self.export(from, tokens, prompt.clone()).await?;
        self.pass(copy.clone());
        let bytes = self.import(to, copy, prompt).await?;
        let event = Event::Program(ProgramEvent::ProgramMigrated {
            program: self.program,
            to: to.worker,
        });
        Ok(Moved {
            event,
            bytes,
            kept: None,
        })
    }

    fn pass(&self, copy: KvCopy) {
        *self.passing.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
    }

    async fn able(&self, end: &End, wish: Wish) -> Result<(), Failure> {
        let seen = self.node.executors.support_seen(self.node.worker(end));
        let support = seen.await?;
        let interface = support.interface;
        let Abilities {
            offload,
            migrate,
            missing,
        } = self.node.allowed(support);
        let can = match wish {
            Wish::Offload => offload,
            Wish::Migrate => migrate,
        };
        if !can {
            return Err(unsupported(end, &missing));
        }
        if interface == KvInterface::SlotFiles && end.slot.is_none() {
            // Checked before anything is saved in vain.
            let why = "the program has no slot there: llama.cpp's caches don't move in this mode";
            return Err(unsupported(end, why));
        }
        Ok(())
    }

    async fn export(
        &self,
        from: &End,
        tokens: u64,
        prompt: Option<Prompt>,
    ) -> Result<KvCopy, Failure> {
        // A slot's tokens are compared with the token ids of the last request.
        let prompt = match from.kind {
            EngineKind::Llamacpp => prompt.as_ref().and_then(prompts::named_tokens),
            _ => prompt,
        };
        let export = Export {
            worker: self.node.worker(from),
            slot: from.slot,
            program: self.program,
            owner: self.owner.clone(),
            tokens,
            prompt,
            cache_salt: None,
            tags: self.tags(from).await?,
        };
        let copy = self.node.executors.export(export).await?;
        if copy.prefix.tokens == 0 {
            self.pass(copy);
            return Err(unsupported(from, "it had no cache of the program"));
        }
        Ok(copy)
    }

    async fn import(&self, to: &End, copy: KvCopy, prompt: Option<Prompt>) -> Result<u64, Failure> {
        let bytes = copy.bytes;
        // A slot's copy includes the last answer; the server itself compares its tokens with
        // prompts.
        let prompt = prompt.filter(|_| to.kind != EngineKind::Llamacpp);
        let import = Import {
            worker: self.node.worker(to),
            slot: to.slot,
            program: self.program,
            prompt,
            cache_salt: None,
            tags: self.tags(to).await?,
            copy,
        };
        let taken = self.node.executors.import(import).await?;
        Ok(taken.bytes.max(bytes))
    }

    fn prompt(&self) -> Option<Prompt> {
        self.node.prompts.of(&self.key)
    }

    async fn tags(&self, end: &End) -> Result<Tags, Failure> {
        self.node.tags.of(&end.url).await.map_err(|cause| Failure {
            code: "unreachable",
            cause,
        })
    }
}

fn unsupported(end: &End, why: &str) -> Failure {
    TransferError::Unsupported {
        worker: end.url.clone(),
        why: why.into(),
    }
    .into()
}
