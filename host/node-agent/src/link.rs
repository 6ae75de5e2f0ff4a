//! An agent's connection to its daemon.

use crate::identity::Identity;
use crate::upstream::Upstream;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use treadle_actions::{ActionOrder, Executor};
use treadle_config::Secret;
use treadle_gateway::routing::{DialError, dial};
use treadle_model::Span;
use treadle_runs::links::write_lines;
use treadle_runs::nodes::{FromNode, Hello, PATH, PROTOCOL, Start, ToNode};
use treadle_sandbox::Sandboxes;
use treadle_scheduler::link::{LineError, add_line, read_line};
use treadle_trust::Connector;

/// Pause before another attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The parameters of a connection.
pub(super) struct Link {
    /// The daemons; one of them schedules.
    pub(super) urls: Vec<String>,
    pub(super) secret: Secret,
    pub(super) connector: Connector,
    pub(super) hello: Hello,
    pub(super) identity: Identity,
    pub(super) upstream: Arc<Upstream>,
    pub(super) executor: Executor,
    pub(super) sandboxes: Sandboxes,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("{0}")]
    Line(#[from] LineError),
    #[error("the daemon refused this node: {0}")]
    Unwelcome(String),
}

/// Keeps a connection to the daemon, forever.
pub(super) async fn keep_connected(link: Link) {
    let mut told = BTreeSet::new();
    for url in link.urls.iter().cycle() {
        let Err(error) = link.connect_and_run(url, &mut told).await;
        link.upstream.away();
        // Logged once per cause, as there may be many attempts.
        let text = error.to_string();
        if !told.contains(&text) {
            tracing::warn!(url, error = text, "not connected to the daemon");
            told.insert(text);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

impl Link {
    async fn connect_and_run(
        &self,
        url: &str,
        told: &mut BTreeSet<String>,
    ) -> Result<std::convert::Infallible, LinkError> {
        let secret = self.secret.reveal();
        // The mark determines the node's shard.
        let path = format!("{PATH}?{}", self.hello.mark);
        let dialled = dial(url, &path, PROTOCOL, secret, &self.connector).await;
        let (mut reader, mut writer) = dialled?;
        let hello = Hello {
            cordoned: self.identity.is_cordoned(),
            ..self.hello.clone()
        };
        let mut line = Vec::new();
        add_line(&mut line, &FromNode::Hello(hello));
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        written.await.map_err(LineError::from)?;
        match read_line(&mut reader, &mut line).await? {
            ToNode::Welcome => {}
            ToNode::Unwelcome { cause } => return Err(LinkError::Unwelcome(cause)),
            _ => {
                return Err(LinkError::Unwelcome(
                    "its first message is not a welcome".into(),
                ));
            }
        }
        tracing::info!(url, "connected to the daemon");
        told.clear();
        let said = self.upstream.begin().await;
        let hearing = async {
            loop {
                match read_line(&mut reader, &mut line).await {
                    Ok(word) => self.hear(word),
                    Err(error) => break error,
                }
            }
        };
        let ended = tokio::select! {
            ended = write_lines(writer, said) => ended,
            ended = hearing => ended,
        };
        Err(ended.into())
    }

    fn hear(&self, word: ToNode) {
        match word {
            ToNode::Start(start) => self.start(*start),
            ToNode::Stop { attempt } => self.executor.stop(attempt.0, attempt.1),
            ToNode::Acknowledge { attempt } => {
                if self.upstream.acknowledged(attempt) {
                    self.executor.acknowledge(attempt.0, attempt.1);
                } else {
                    // The daemon has given it up; it still runs, and its end will be reported.
                    self.executor.stop(attempt.0, attempt.1);
                }
            }
            ToNode::Over { action } => self.upstream.over(action),
            ToNode::Answer { id, answer } => self.upstream.answered(id, answer),
            ToNode::ProgramEnded { tenant, program } => {
                let sandboxes = self.sandboxes.clone();
                tokio::spawn(async move { sandboxes.remove_of(&tenant, &program).await });
            }
            ToNode::Cordon { cordoned } => self.identity.cordon(cordoned),
            ToNode::Settled => self.upstream.settled(),
            ToNode::Welcome | ToNode::Unwelcome { .. } => {}
        }
    }

    fn start(&self, start: Start) {
        if !self.upstream.receive(start.attempt) {
            return;
        }
        if start.body.sandbox().is_none() {
            return self.upstream.refuse(start.attempt);
        }
        let (action, attempt) = start.attempt;
        self.executor.execute(ActionOrder {
            action,
            attempt,
            grants: start.grants,
            load: None,
            body: Arc::new(start.body),
            run_max: Span(start.run_max_us),
            idempotent: start.idempotent,
            job: start.job,
            tenant: start.tenant,
        });
    }
}
