//! An agent's messages for its daemon, and the answers that it waits for.

use crate::outputs::FileOutputs;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use treadle_actions::Recovery;
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;
use treadle_runs::actions::Failure;
use treadle_runs::machine;
use treadle_runs::nodes::{
    Answer, AttemptKey, Ended, FromNode, Known, NodeLoad, Question, refusal,
};
use treadle_sandbox::Sandboxes;

/// How often the node's load is measured.
const LOOK: Duration = Duration::from_secs(1);
/// Memory is reported in multiples of this, in MiB.
const MEMORY_STEP_MIB: u64 = 256;
/// The error for handlers while the daemon is unreachable.
const AWAY: &str = "the node's daemon can't be reached; try again once it is back";

/// An attempt whose end is not on record at the daemon.
#[derive(Clone)]
enum Attempt {
    /// It was received.
    Received,
    /// It has ended.
    Over(Outcome, Option<Box<str>>),
}

/// An answer, and the notification of the end of the action that it recorded.
type Answered = (Answer, Option<oneshot::Receiver<()>>);

/// An unanswered question, and the tenant of the action that it records.
struct Open {
    asker: oneshot::Sender<Answered>,
    tenant: Option<String>,
}

#[derive(Default)]
struct State {
    attempts: BTreeMap<AttemptKey, Attempt>,
    /// Unanswered questions.
    questions: BTreeMap<u64, Open>,
    asked: u64,
    /// Handlers that wait for their actions.
    waiting: BTreeMap<ActionId, oneshot::Sender<()>>,
    /// The current connection.
    sender: Option<UnboundedSender<FromNode>>,
    /// Whether attempts that are not listed certainly never started.
    is_all: bool,
    load: NodeLoad,
}

/// The agent's state towards the daemon.
pub(super) struct Upstream {
    state: Mutex<State>,
    outputs: Arc<FileOutputs>,
    /// A marker file that exists until the daemon knows that missing attempts may have started.
    unsettled: PathBuf,
    /// Number of attempts whose ends are not on record.
    open: watch::Sender<usize>,
}

impl Upstream {
    /// Starts with the attempts that an earlier agent left.
    ///
    /// # Errors
    /// The folder can't be written to.
    pub(super) fn new(
        recovery: &Recovery,
        outputs: Arc<FileOutputs>,
        folder: &Path,
    ) -> io::Result<Self> {
        let unsettled = folder.join("unsettled");
        let is_all = recovery.is_all() && !unsettled.exists();
        if !is_all {
            // Missing attempts prove nothing until the daemon knows that, even after further
            // restarts of the agent.
            File::create(&unsettled)?.sync_all()?;
            File::open(folder)?.sync_all()?;
        }
        let ended = recovery.attempts().filter_map(|(action, attempt)| {
            match recovery.end(action, attempt)? {
                ActionEvent::ActionEnded {
                    outcome, output, ..
                } => Some(((action, attempt), Attempt::Over(outcome, output))),
                _ => None,
            }
        });
        let state = State {
            attempts: ended.collect(),
            is_all,
            ..State::default()
        };
        let outcomes = state.attempts.values();
        let named = outcomes.filter_map(|attempt| match attempt {
            Attempt::Over(_, output) => output.clone(),
            Attempt::Received => None,
        });
        outputs.keep(&named.collect());
        Ok(Self {
            open: watch::Sender::new(state.attempts.len()),
            state: Mutex::new(state),
            outputs,
            unsettled,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new connection: it first carries the current state, and then all further messages.
    pub(super) async fn begin(&self) -> UnboundedReceiver<FromNode> {
        let (sender, said) = unbounded_channel();
        let (ended, known) = {
            let mut state = self.lock();
            state.sender = Some(sender.clone());
            // They will not be answered on a new connection.
            state.questions.clear();
            let running = state.attempts.iter();
            let running = running.filter(|(_, attempt)| matches!(attempt, Attempt::Received));
            let known = Known {
                running: running.map(|(key, _)| *key).collect(),
                waiting: state.waiting.keys().copied().collect(),
                is_all: state.is_all,
            };
            let ended = state.attempts.iter();
            let ended = ended.filter_map(|(key, attempt)| match attempt {
                Attempt::Received => None,
                Attempt::Over(outcome, output) => Some((*key, outcome.clone(), output.clone())),
            });
            let ended: Vec<_> = ended.collect();
            let _ = sender.send(FromNode::Load(state.load.clone()));
            (ended, known)
        };
        for (attempt, outcome, output) in ended {
            let frame = self.frame(attempt, outcome, output.as_deref()).await;
            let _ = sender.send(frame);
        }
        let _ = sender.send(FromNode::Known(known));
        said
    }

    async fn frame(&self, attempt: AttemptKey, outcome: Outcome, output: Option<&str>) -> FromNode {
        let output = match output {
            Some(digest) => STANDARD.encode(self.outputs.read(digest).await),
            None => String::new(),
        };
        FromNode::Ended(Box::new(Ended {
            attempt,
            outcome,
            output,
        }))
    }

    /// Handles the end of the connection.
    pub(super) fn away(&self) {
        let mut state = self.lock();
        state.sender = None;
        state.questions.clear();
    }

    /// Handles that both sides agree on the attempts.
    pub(super) fn settled(&self) {
        let mut state = self.lock();
        if state.is_all {
            return;
        }
        match std::fs::remove_file(&self.unsettled) {
            Ok(()) => state.is_all = true,
            Err(error) => tracing::error!(%error, "the settled state can't be stored"),
        }
    }

    /// Adds an attempt; returns whether it is new.
    pub(super) fn receive(&self, attempt: AttemptKey) -> bool {
        let mut state = self.lock();
        let is_new = !state.attempts.contains_key(&attempt);
        if is_new {
            state.attempts.insert(attempt, Attempt::Received);
        }
        self.open.send_replace(state.attempts.len());
        is_new
    }

    /// Handles that the end of an attempt is on record. Returns whether it had ended; a running one
    /// is kept.
    pub(super) fn acknowledged(&self, attempt: AttemptKey) -> bool {
        let mut state = self.lock();
        if matches!(state.attempts.get(&attempt), Some(Attempt::Received)) {
            return false;
        }
        let over = state.attempts.remove(&attempt);
        self.open.send_replace(state.attempts.len());
        if let Some(Attempt::Over(_, Some(output))) = over {
            self.outputs.remove(&output);
        }
        true
    }

    /// Reports to the daemon that an attempt can't be run here; it never reaches the executor.
    pub(super) fn refuse(&self, attempt: AttemptKey) {
        let cause = "a node only runs commands in its sandboxes".into();
        let outcome = Outcome::InfrastructureFailure { cause };
        let end = Ended {
            attempt,
            outcome: outcome.clone(),
            output: String::new(),
        };
        let mut state = self.lock();
        state.attempts.insert(attempt, Attempt::Over(outcome, None));
        if let Some(sender) = &state.sender {
            let _ = sender.send(FromNode::Ended(Box::new(end)));
        }
    }

    /// Waits until the daemon has recorded all ends.
    pub(super) async fn all_on_record(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Sends the daemon a question, and waits for the answer.
    pub(super) async fn ask(&self, question: Question) -> Result<Answered, Failure> {
        let away = || Failure::from(refusal("overloaded", AWAY.to_owned()));
        let answered = {
            let mut state = self.lock();
            let sender = state.sender.clone().ok_or_else(away)?;
            state.asked += 1;
            let (id, (answer, answered)) = (state.asked, oneshot::channel());
            let tenant = match &question {
                Question::Hold { tenant, .. } => Some(tenant.clone()),
                Question::Live { .. } => None,
            };
            let open = Open {
                asker: answer,
                tenant,
            };
            state.questions.insert(id, open);
            let _ = sender.send(FromNode::Ask { id, question });
            answered
        };
        match answered.await.map_err(|_| away())? {
            (Answer::Refused { code, message }, _) => Err(refusal(&code, message).into()),
            answered => Ok(answered),
        }
    }

    /// Handles an answer of the daemon.
    pub(super) fn answered(&self, id: u64, answer: Answer) {
        let mut state = self.lock();
        let over = match &answer {
            Answer::Held { action } => {
                let (tell, told) = oneshot::channel();
                // Registered here, so that no end is missed.
                state.waiting.insert(*action, tell);
                Some(told)
            }
            _ => None,
        };
        let open = state.questions.remove(&id);
        let tenant = open.as_ref().and_then(|open| open.tenant.clone());
        let heard = open.map(|open| open.asker.send((answer, over)));
        if let Some(Err((Answer::Held { action }, _))) = heard {
            // Its handler stopped waiting meanwhile.
            state.waiting.remove(&action);
            if let (Some(tenant), Some(sender)) = (tenant, &state.sender) {
                let _ = sender.send(FromNode::Cancel { tenant, action });
            }
        }
    }

    /// Handles the end of an action that a handler waits for.
    pub(super) fn over(&self, action: ActionId) {
        if let Some(handler) = self.lock().waiting.remove(&action) {
            let _ = handler.send(());
        }
    }

    /// Removes a waiting handler; if it stopped waiting early, its action is cancelled.
    pub(super) fn waits_no_longer(&self, action: ActionId, gave_up: Option<String>) {
        let mut state = self.lock();
        state.waiting.remove(&action);
        if let (Some(tenant), Some(sender)) = (gave_up, &state.sender) {
            let _ = sender.send(FromNode::Cancel { tenant, action });
        }
    }

    /// Reports the node's current load.
    fn has(&self, load: NodeLoad) {
        let mut state = self.lock();
        state.load = load.clone();
        if let Some(sender) = &state.sender {
            let _ = sender.send(FromNode::Load(load));
        }
    }

    fn say(&self, word: FromNode) {
        if let Some(sender) = &self.lock().sender {
            let _ = sender.send(word);
        }
    }
}

/// Sends the executor's reports to the daemon.
pub(super) async fn report(upstream: Arc<Upstream>, mut reports: Receiver<ActionEvent>) {
    while let Some(event) = reports.recv().await {
        match event {
            ActionEvent::ActionBegan { action, attempt } => {
                let attempt = (action, attempt);
                upstream.say(FromNode::Began { attempt });
            }
            ActionEvent::ActionEnded {
                action,
                attempt,
                outcome,
                output,
            } => {
                let key = (action, attempt);
                let frame = upstream
                    .frame(key, outcome.clone(), output.as_deref())
                    .await;
                let mut state = upstream.lock();
                state.attempts.insert(key, Attempt::Over(outcome, output));
                if let Some(sender) = &state.sender {
                    let _ = sender.send(frame);
                }
            }
            _ => {}
        }
    }
}

/// Sends the node's load to the daemon.
pub(super) async fn tell_load(upstream: Arc<Upstream>, sandboxes: Sandboxes) {
    loop {
        let images = sandboxes.images();
        let owned = images.iter().filter_map(|image| {
            let owner = sandboxes.image_owner(image)?;
            Some((image.clone(), owner))
        });
        let load = NodeLoad {
            image_owners: owned.collect(),
            sandboxes: sandboxes.list().len() as u64,
            memory_free_mib: machine::memory_free_mib() / MEMORY_STEP_MIB * MEMORY_STEP_MIB,
            images,
        };
        upstream.has(load);
        tokio::time::sleep(LOOK).await;
    }
}
