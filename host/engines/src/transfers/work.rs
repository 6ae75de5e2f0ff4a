//! One transfer, from the order to what it came to.

use super::node::{Abilities, Node};
use super::prompts;
use std::sync::{Arc, Mutex, PoisonError};
use treadle_core::{Event, ProgramEvent};
use treadle_model::{EngineKind, ProgramId};
use treadle_scheduler::orders::{End, Work};
use treadle_transfer::{Export, Import, KvCopy, KvExecutor, Means, Prompt, Tags, TransferError};

/// A copy that is needed for as long as a transfer runs; the transfer executor drops it after that,
/// however it ended.
pub(super) type Passing = Arc<Mutex<Option<KvCopy>>>;

/// Why nothing came of a transfer.
pub(super) struct Failure {
    /// A name for metrics.
    pub(super) code: &'static str,
    /// For people.
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

/// What a transfer did.
pub(super) struct Moved {
    pub(super) event: Event,
    pub(super) bytes: u64,
    /// What is kept from now on.
    pub(super) kept: Option<KvCopy>,
}

/// A transfer under way.
pub(super) struct Transfer {
    pub(super) node: Arc<Node>,
    pub(super) program: ProgramId,
    /// The scheduler that wants it.
    pub(super) owner: Box<str>,
    pub(super) key: Box<str>,
    pub(super) passing: Passing,
}

/// What is asked of an engine.
#[derive(Clone, Copy)]
enum Wish {
    Offload,
    Migrate,
}

impl Transfer {
    /// Carries it out. Dropping the future gives it up.
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
                "it is of {} tokens, and {tokens} are held for the program",
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

    /// Until the program is at the other engine its cache stays where it was. Both engines are asked
    /// with the same prompt, even if a step comes meanwhile that brings another.
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
        let means = support.means;
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
        if means == Means::SlotFiles && end.slot.is_none() {
            // Before anything is saved for nothing.
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
        // A slot's tokens are compared with those that the last request named.
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
            return Err(unsupported(from, "it had nothing of the program's cache"));
        }
        Ok(copy)
    }

    async fn import(&self, to: &End, copy: KvCopy, prompt: Option<Prompt>) -> Result<u64, Failure> {
        let bytes = copy.bytes;
        // A slot's copy has the last answer too; the server compares its tokens with prompts itself.
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
