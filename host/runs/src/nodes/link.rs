//! The daemon's end of a node's connection.

use super::ActionHost;
use super::Nodes;
use super::frames::{Answer, Ended, FromNode, Known, PROTOCOL, Question, ToNode};
use super::settling::{At, Stopped};
use crate::links::{knows_secret, upgraded, write_lines};
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;
use treadle_http::refuse;
use treadle_model::Tenant;
use treadle_scheduler::link::{LineError, read_line};
use treadle_wire::{ErrorBody, ErrorCode};

/// Time that an agent has for its first line.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Most unrecorded ends that a reconnecting agent may send.
const ENDS_MAX: usize = 100_000;

/// Accepts the connection of a node's agent.
pub fn connect(
    nodes: Arc<Nodes>,
    actions: impl ActionHost + 'static,
    request: Request,
) -> Response<Body> {
    if !knows_secret(request.headers(), nodes.secret.reveal()) {
        let message =
            "the daemon's `cluster.secret` and the node's differ; set both to the same value";
        return refuse(ErrorCode::Forbidden, message);
    }
    let actions: Arc<dyn ActionHost> = Arc::new(actions);
    upgraded(PROTOCOL, request, move |stream| async move {
        run(&nodes, &actions, stream).await;
    })
}

async fn run(
    nodes: &Arc<Nodes>,
    actions: &Arc<dyn ActionHost>,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
) {
    let (reader, writer) = tokio::io::split(stream);
    let mut lines = Lines {
        reader: BufReader::with_capacity(64 << 10, reader),
        line: Vec::new(),
    };
    let hello = tokio::time::timeout(HELLO_TIMEOUT, lines.next()).await;
    let Ok(Ok(FromNode::Hello(hello))) = hello else {
        tracing::warn!("a node's connection did not begin with its name");
        return;
    };
    let (sender, said) = unbounded_channel();
    let joined = nodes.join(&hello, sender.clone()).await;
    let name = hello.name;
    let at = match joined {
        Ok(at) => at,
        Err(cause) => {
            tracing::warn!(node = name, cause, "a node was refused");
            let _ = sender.send(ToNode::Unwelcome { cause });
            drop(sender);
            let _ = tokio::time::timeout(HELLO_TIMEOUT, write_lines(writer, said)).await;
            return;
        }
    };
    // The writer ends with another connection of the same node, which drops the only sender.
    drop(sender);
    tracing::info!(node = name, mark = at.mark, "a node connected");
    let (tell, told) = oneshot::channel();
    let error = tokio::select! {
        error = lines.read(nodes, actions, &at, tell) => error,
        error = settle(nodes, actions, &at, told) => error,
        error = write_lines(writer, said) => error,
        () = nodes.driver.stopped() => LineError::Closed,
    };
    tracing::warn!(node = name, %error, "a node's connection ended");
    // So that the agent notices it at once.
    drop(lines);
    nodes.left(&at).await;
}

/// A node's report: ends that are not on record, and open attempts.
type NodeReport = (Vec<Ended>, Known);

/// Settles once the node's report has arrived. Runs beside the connection's other tasks, because it
/// may wait for the store; ends with the connection.
async fn settle(
    nodes: &Arc<Nodes>,
    actions: &Arc<dyn ActionHost>,
    at: &At,
    told: oneshot::Receiver<NodeReport>,
) -> LineError {
    if let Ok((ends, known)) = told.await
        && nodes.settle(&**actions, at, ends, known).await.is_err()
    {
        return LineError::Closed;
    }
    std::future::pending().await
}

/// Reads a node's messages.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    async fn next(&mut self) -> Result<FromNode, LineError> {
        read_line(&mut self.reader, &mut self.line).await
    }

    /// Handles messages until the connection ends.
    async fn read(
        &mut self,
        nodes: &Arc<Nodes>,
        actions: &Arc<dyn ActionHost>,
        at: &At,
        tell: oneshot::Sender<NodeReport>,
    ) -> LineError {
        let (mut ends, mut tell) = (Vec::new(), Some(tell));
        loop {
            match self.next().await {
                Ok(FromNode::Ended(_)) if tell.is_some() && ends.len() >= ENDS_MAX => {
                    return LineError::TooLong;
                }
                Ok(FromNode::Ended(end)) if tell.is_some() => ends.push(*end),
                Ok(FromNode::Known(known)) => {
                    if let Some(tell) = tell.take() {
                        let _ = tell.send((std::mem::take(&mut ends), known));
                    }
                }
                Ok(said) => {
                    if nodes.hear(actions, at, said).await.is_err() {
                        return LineError::Closed;
                    }
                }
                Err(error) => return error,
            }
        }
    }
}

impl Nodes {
    async fn hear(
        self: &Arc<Self>,
        actions: &Arc<dyn ActionHost>,
        at: &At,
        said: FromNode,
    ) -> Result<(), Stopped> {
        match said {
            FromNode::Began { attempt } => self.began(at, attempt).await?,
            FromNode::Ended(end) => self.ended(&**actions, at, *end).await?,
            FromNode::Load(load) => {
                if let Some(node) = super::node_at(&mut self.lock().nodes, at) {
                    node.load = load;
                    node.chosen = 0;
                }
            }
            FromNode::Ask { id, question } => {
                let (nodes, actions, at) = (self.clone(), actions.clone(), at.clone());
                tokio::spawn(async move {
                    let answer = answer(&*actions, &at.mark, question).await;
                    let held = match &answer {
                        Answer::Held { action } => Some(*action),
                        _ => None,
                    };
                    nodes.say(&at, ToNode::Answer { id, answer });
                    if let Some(action) = held {
                        nodes.held(&at.mark, action);
                        // It may have ended meanwhile.
                        let _ = nodes.tell_if_over(action).await;
                    }
                });
            }
            FromNode::Cancel { tenant, action } => {
                let actions = actions.clone();
                tokio::spawn(async move {
                    actions.cancel(&Tenant::new(&tenant), action).await;
                });
            }
            FromNode::Hello(_) | FromNode::Known(_) => {}
        }
        Ok(())
    }
}

async fn answer(actions: &dyn ActionHost, mark: &str, question: Question) -> Answer {
    let answer = match question {
        Question::Hold {
            tenant,
            token,
            action,
        } => {
            if super::mark_of_sandbox(&action.sandbox) == Some(mark) {
                let admitted = actions.hold(&Tenant::new(&tenant), &action, &token).await;
                admitted.map(|action| Answer::Held { action })
            } else {
                let message = format!("{} is not a sandbox of this node", action.sandbox);
                Err(ErrorBody::new(ErrorCode::SandboxUnknown, message))
            }
        }
        Question::Live { programs } => {
            let live = actions.live(&programs).await;
            live.map(|live| Answer::Live { live })
        }
    };
    answer.unwrap_or_else(|error| Answer::refused(&error))
}
