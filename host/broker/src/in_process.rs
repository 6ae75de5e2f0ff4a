//! A broker within the process, instead of RabbitMQ, for daemons without one and for tests.
//!
//! It has all guarantees of [`Broker`], including delivery limit and dead letters, except that
//! nothing survives the process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::delivery::{Parts, Settle, Settlement};
use crate::health::Board;
use crate::{
    Broker, BrokerError, COMMANDS_HELD_MAX, DEAD_LETTERS_HELD_MAX, Deliveries, Delivery,
    EVENTS_HELD_MAX, Health, Letter, Message, Names, Queue, Reply, Subscription, check_letter,
    check_reply, check_sizes, header, routing,
};

/// [`Broker`] within the process.
pub struct InProcess {
    names: Names,
    board: Arc<Board>,
    part: usize,
    shared: Arc<Shared>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    /// Notifies of new messages in queues, and of the end of consumers.
    stirred: Notify,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    is_away: bool,
    is_closed: bool,
    queues: BTreeMap<String, MessageQueue>,
    bindings: Vec<(String, String)>,
    unsettled: BTreeMap<u64, Unsettled>,
    next_tag: u64,
    next_consumer: u64,
}

/// A queue.
struct MessageQueue {
    waiting: VecDeque<Stored>,
    held_max: usize,
    /// Whether a full queue refuses new messages, rather than dropping the oldest.
    refuses: bool,
    /// How often a message is delivered again.
    delivery_limit: u32,
    /// The queue for messages that were rejected or returned too often.
    dead_letters: Option<String>,
}

#[derive(Clone, Default)]
struct Stored {
    id: Option<String>,
    key: String,
    headers: BTreeMap<String, String>,
    reply_to: Option<String>,
    correlation_id: Option<String>,
    body: Vec<u8>,
    returns: u32,
    delivered: bool,
}

struct Unsettled {
    queue: String,
    consumer: u64,
    stored: Stored,
    /// A part of the consumer's prefetch, released when this is settled.
    _permit: Option<OwnedSemaphorePermit>,
}

impl InProcess {
    /// A broker with empty queues.
    pub fn new(names: Names) -> Self {
        let mut state = State::default();
        let dead_letters = names.queue(Queue::DeadLetters);
        for queue in Queue::ALL {
            let message_queue = MessageQueue {
                waiting: VecDeque::new(),
                held_max: if queue.has_dead_letters() {
                    COMMANDS_HELD_MAX as usize
                } else {
                    DEAD_LETTERS_HELD_MAX as usize
                },
                refuses: queue.has_dead_letters(),
                delivery_limit: queue.delivery_limit(),
                dead_letters: queue.has_dead_letters().then(|| dead_letters.clone()),
            };
            state.queues.insert(names.queue(queue), message_queue);
        }
        let board = Arc::new(Board::new());
        let part = board.add();
        board.set(part, Health::Connected);
        Self {
            names,
            board,
            part,
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                stirred: Notify::new(),
                closed: watch::Sender::new(false),
            }),
        }
    }

    /// For tests: simulates the loss of the connection. Unsettled messages are returned, and all
    /// operations fail until [`InProcess::mend`].
    pub fn cut(&self) {
        let mut state = self.shared.state();
        state.is_away = true;
        let tags: Vec<u64> = state.unsettled.keys().copied().collect();
        state.give_back(tags);
        drop(state);
        self.board.set(self.part, Health::disconnected(away()));
        self.shared.stirred.notify_waiters();
    }

    /// For tests: restores the connection.
    pub fn mend(&self) {
        self.shared.state().is_away = false;
        self.board.set(self.part, Health::Connected);
        self.shared.stirred.notify_waiters();
    }

    fn start(&self, queue: String, prefetch: u16) -> Deliveries {
        let (sender, receiver) = mpsc::channel(usize::from(prefetch.max(1)));
        let consumer = {
            let mut state = self.shared.state();
            state.next_consumer += 1;
            state.next_consumer
        };
        let pump = Pump {
            shared: Arc::clone(&self.shared),
            queue,
            consumer,
            room: Arc::new(Semaphore::new(usize::from(prefetch.max(1)))),
            sender,
        };
        tokio::spawn(pump.run());
        Deliveries::new(receiver)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
    }
}

fn away() -> BrokerError {
    BrokerError::Lost {
        cause: "cut by a test".into(),
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if it is connected.
    fn connected(&self) -> Result<MutexGuard<'_, State>, BrokerError> {
        let state = self.state();
        if state.is_closed {
            return Err(BrokerError::Closed);
        }
        if state.is_away {
            return Err(away());
        }
        Ok(state)
    }
}

impl State {
    /// Adds a message to a queue; `false` if it is full.
    fn put(&mut self, queue: &str, stored: Stored) -> bool {
        let Some(message_queue) = self.queues.get_mut(queue) else {
            return true;
        };
        if message_queue.waiting.len() >= message_queue.held_max {
            if message_queue.refuses {
                return false;
            }
            message_queue.waiting.pop_front();
        }
        message_queue.waiting.push_back(stored);
        true
    }

    /// Returns deliveries to their queues, in their original order.
    fn give_back(&mut self, mut tags: Vec<u64>) {
        tags.sort_unstable();
        for tag in tags.into_iter().rev() {
            let Some(unsettled) = self.unsettled.remove(&tag) else {
                continue;
            };
            let mut stored = unsettled.stored;
            stored.returns += 1;
            stored.delivered = true;
            let Some(message_queue) = self.queues.get_mut(&unsettled.queue) else {
                continue;
            };
            if stored.returns > message_queue.delivery_limit && message_queue.dead_letters.is_some()
            {
                self.bury(&unsettled.queue, stored, "delivery_limit", None);
            } else {
                message_queue.waiting.push_front(stored);
            }
        }
    }

    /// Adds a message to the dead letters of its queue, if the queue has any.
    fn bury(&mut self, queue: &str, mut stored: Stored, word: &str, reason: Option<String>) {
        let message_queue = self.queues.get(queue);
        let Some(dead_letters) =
            message_queue.and_then(|message_queue| message_queue.dead_letters.clone())
        else {
            return;
        };
        stored
            .headers
            .insert(header::FIRST_DEATH_REASON.into(), word.into());
        if let Some(reason) = reason {
            stored.headers.insert(header::REASON.into(), reason);
            stored
                .headers
                .insert(header::FROM_QUEUE.into(), queue.into());
        }
        queue.clone_into(&mut stored.key);
        (stored.returns, stored.delivered) = (0, false);
        self.put(&dead_letters, stored);
    }
}

/// Takes messages from a queue for one consumer.
struct Pump {
    shared: Arc<Shared>,
    queue: String,
    consumer: u64,
    room: Arc<Semaphore>,
    sender: mpsc::Sender<Delivery>,
}

impl Pump {
    async fn run(self) {
        let mut closed = self.shared.closed.subscribe();
        tokio::select! {
            () = self.sender.closed() => {}
            _ = closed.wait_for(|closed| *closed) => {}
            () = self.pump() => {}
        }
        let mut state = self.shared.state();
        let own = |unsettled: &Unsettled| unsettled.consumer == self.consumer;
        let tags = state.unsettled.iter().filter(|(_, u)| own(u));
        let tags = tags.map(|(&tag, _)| tag).collect();
        state.give_back(tags);
        drop(state);
        self.shared.stirred.notify_waiters();
    }

    async fn pump(&self) {
        loop {
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else {
                return;
            };
            let delivery = self.take(permit).await;
            if self.sender.send(delivery).await.is_err() {
                return;
            }
        }
    }

    /// Waits for the next message of the queue.
    async fn take(&self, permit: OwnedSemaphorePermit) -> Delivery {
        let mut permit = Some(permit);
        loop {
            let stirred = self.shared.stirred.notified();
            tokio::pin!(stirred);
            stirred.as_mut().enable();
            if let Some(delivery) = self.try_take(&mut permit) {
                return delivery;
            }
            stirred.await;
        }
    }

    /// Takes a message and marks it as unsettled at once, so that a loss of the connection can't
    /// come between.
    fn try_take(&self, permit: &mut Option<OwnedSemaphorePermit>) -> Option<Delivery> {
        let mut state = self.shared.connected().ok()?;
        let stored = state.queues.get_mut(&self.queue)?.waiting.pop_front()?;
        state.next_tag += 1;
        let tag = state.next_tag;
        let unsettled = Unsettled {
            queue: self.queue.clone(),
            consumer: self.consumer,
            stored: stored.clone(),
            _permit: permit.take(),
        };
        state.unsettled.insert(tag, unsettled);
        let mut headers = stored.headers;
        if stored.returns > 0 {
            headers.insert(header::DELIVERY_COUNT.into(), stored.returns.to_string());
        }
        Some(Delivery {
            id: stored.id,
            routing_key: stored.key,
            headers,
            reply_to: stored.reply_to,
            correlation_id: stored.correlation_id,
            body: stored.body,
            redelivered: stored.delivered,
            settle: Box::new(Receipt {
                shared: Arc::clone(&self.shared),
                tag,
            }),
        })
    }
}

struct Receipt {
    shared: Arc<Shared>,
    tag: u64,
}

#[async_trait]
impl Settle for Receipt {
    async fn settle(self: Box<Self>, _: Parts, settlement: Settlement) -> Result<(), BrokerError> {
        let mut state = self.shared.state();
        if !state.unsettled.contains_key(&self.tag) {
            return Err(BrokerError::DeliveryLost);
        }
        match settlement {
            Settlement::Requeue => state.give_back(vec![self.tag]),
            Settlement::Ack => {
                state.unsettled.remove(&self.tag);
            }
            Settlement::Reject(reason) => {
                if let Some(unsettled) = state.unsettled.remove(&self.tag) {
                    let queue = unsettled.queue;
                    state.bury(&queue, unsettled.stored, "rejected", Some(reason));
                }
            }
        }
        drop(state);
        self.shared.stirred.notify_waiters();
        Ok(())
    }
}

#[async_trait]
impl Broker for InProcess {
    async fn publish(&self, batch: &[Message]) -> Result<u64, BrokerError> {
        check_sizes(batch.len(), batch.iter().map(|message| message.body.len()))?;
        let mut state = self.shared.connected()?;
        for message in batch {
            let key = message.key.as_str();
            let bound = state.bindings.iter();
            let bound = bound.filter(|(_, pattern)| routing::matches(pattern, key));
            let mut queues: Vec<String> = bound.map(|(queue, _)| queue.clone()).collect();
            queues.sort_unstable();
            queues.dedup();
            let headers = message.headers().into_iter();
            let stored = Stored {
                id: Some(message.seq.to_string()),
                key: key.to_owned(),
                headers: headers.map(|(name, value)| (name.into(), value)).collect(),
                body: message.body.clone(),
                ..Stored::default()
            };
            for queue in queues {
                state.put(&queue, stored.clone());
            }
        }
        drop(state);
        self.shared.stirred.notify_waiters();
        Ok(batch.last().map_or(0, |message| message.seq))
    }

    async fn send(&self, queue: Queue, letter: &Letter) -> Result<(), BrokerError> {
        check_letter(letter)?;
        let queue = self.names.queue(queue);
        let stored = Stored {
            id: (!letter.id.is_empty()).then(|| letter.id.clone()),
            key: queue.clone(),
            headers: letter.headers.clone(),
            reply_to: letter.reply_to.clone().filter(|to| !to.is_empty()),
            correlation_id: letter.correlation_id.clone(),
            body: letter.body.clone(),
            ..Stored::default()
        };
        if !self.shared.connected()?.put(&queue, stored) {
            return Err(BrokerError::Nacked {
                id: letter.id.clone(),
            });
        }
        self.shared.stirred.notify_waiters();
        Ok(())
    }

    async fn answer(&self, reply: &Reply) -> Result<bool, BrokerError> {
        check_reply(&self.names, reply)?;
        let mut state = self.shared.connected()?;
        if !state.queues.contains_key(&reply.to) {
            return Ok(false);
        }
        let stored = Stored {
            id: (!reply.id.is_empty()).then(|| reply.id.clone()),
            key: reply.to.clone(),
            correlation_id: reply.correlation_id.clone(),
            body: reply.body.clone(),
            ..Stored::default()
        };
        // A full queue drops its oldest message: queues that refuse messages do not receive
        // replies.
        state.put(&reply.to, stored);
        drop(state);
        self.shared.stirred.notify_waiters();
        Ok(true)
    }

    fn consume(&self, queue: Queue, prefetch: u16) -> Deliveries {
        self.start(self.names.queue(queue), prefetch)
    }

    async fn subscribe(&self, subscription: &Subscription) -> Result<Deliveries, BrokerError> {
        let mut state = self.shared.connected()?;
        let queue = &subscription.queue;
        state
            .queues
            .entry(queue.clone())
            .or_insert_with(|| MessageQueue {
                waiting: VecDeque::new(),
                held_max: EVENTS_HELD_MAX as usize,
                refuses: false,
                delivery_limit: u32::MAX,
                dead_letters: None,
            });
        for pattern in &subscription.patterns {
            let binding = (queue.clone(), pattern.clone());
            if !state.bindings.contains(&binding) {
                state.bindings.push(binding);
            }
        }
        drop(state);
        Ok(self.start(queue.clone(), subscription.prefetch))
    }

    async fn unsubscribe(&self, queue: &str) -> Result<(), BrokerError> {
        let mut state = self.shared.connected()?;
        state.bindings.retain(|(bound, _)| bound != queue);
        state.queues.remove(queue);
        Ok(())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.board.watch()
    }

    async fn close(&self) -> Result<(), BrokerError> {
        self.shared.state().is_closed = true;
        self.shared.closed.send_replace(true);
        self.board
            .set(self.part, Health::disconnected(BrokerError::Closed));
        Ok(())
    }
}
