//! Kills a broker during publishing: nothing is lost, and the order is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_broker::{Broker, Deliveries, Delivery, Health, Message, RabbitMq, Subscription};

use crate::fixture::{event, healthy, prefix, publish_surely, server_url, settings};
use crate::order::Order;
use crate::server::Server;

/// Messages published at once.
const BATCH: u64 = 250;
/// Number of messages that have arrived when the server is killed.
const KILLED_AT: u64 = 2 * BATCH;
/// Batches published after the server was killed.
const BATCHES_AFTER: u64 = 20;
/// Unacknowledged deliveries.
const PREFETCH: u16 = 100;
const PROGRAMS: u64 = 7;

fn batch(number: u64) -> Vec<Message> {
    (number * BATCH + 1..=(number + 1) * BATCH)
        .map(|seq| event(seq, "math", &format!("p-{}", seq % PROGRAMS)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_in_order_though_the_broker_is_killed() {
    if server_url().is_none() {
        return;
    }
    let server = tokio::task::spawn_blocking(|| Server::start(|_, _| String::new()));
    let server = server.await.unwrap();
    let prefix = prefix("kill");
    let broker = RabbitMq::start(settings(&server.url(), &prefix));
    let queue = format!("{prefix}.all");
    let all = Subscription {
        prefetch: PREFETCH,
        ..Subscription::new(&queue, ["#"])
    };
    let mut deliveries = broker.subscribe(&all).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.settle();
        server
    });
    let server = server.await.unwrap();

    let killed = Arc::new(AtomicBool::new(false));
    let (published, all_published) = watch::channel(None);
    let publishing = async {
        let last = publish_beyond(&broker, &killed).await;
        published.send_replace(Some(last));
    };
    let outage = Killer {
        server: Some(server),
        killed: killed.clone(),
    };
    let consuming = consume_and_kill(&mut deliveries, outage, all_published);
    let ((), server) = tokio::join!(publishing, consuming);
    healthy(&broker, Health::is_connected).await;
    broker.close().await.unwrap();
    let end = tokio::task::spawn_blocking(move || drop(server));
    end.await.unwrap();
}

/// Publishes until the server is killed, and some more; returns the last number.
async fn publish_beyond(broker: &RabbitMq, killed: &AtomicBool) -> u64 {
    let (mut number, mut after) = (0, 0);
    while after < BATCHES_AFTER {
        after += u64::from(killed.load(Ordering::Relaxed));
        publish_surely(broker, &batch(number)).await;
        number += 1;
    }
    number * BATCH
}

/// Kills a server, once.
struct Killer {
    server: Option<Server>,
    killed: Arc<AtomicBool>,
}

impl Killer {
    /// Kills the server, and starts it again, in the background.
    fn strike(&mut self) -> Option<JoinHandle<Server>> {
        let mut victim = self.server.take()?;
        let killed = self.killed.clone();
        Some(tokio::task::spawn_blocking(move || {
            victim.kill();
            killed.store(true, Ordering::Relaxed);
            victim.restart();
            victim
        }))
    }
}

/// Consumes until all published messages have arrived, and kills the server early.
async fn consume_and_kill(
    deliveries: &mut Deliveries,
    mut killer: Killer,
    mut published: watch::Receiver<Option<u64>>,
) -> Server {
    let mut order = Order::default();
    let mut revival = None;
    while *published.borrow_and_update() != Some(order.last()) || !order.is_whole() {
        let delivery = tokio::select! {
            delivery = next_through(deliveries) => delivery,
            Ok(()) = published.changed() => continue,
        };
        order.take(delivery.id.as_deref().unwrap().parse().unwrap());
        // A lost acknowledgement causes the message to be delivered again.
        let _ = delivery.ack().await;
        if order.last() >= KILLED_AT
            && let Some(begun) = killer.strike()
        {
            order.broker_is_killed(PREFETCH);
            revival = Some(begun);
        }
    }
    revival.unwrap().await.unwrap()
}

/// The next delivery, even if the broker restarts meanwhile.
async fn next_through(deliveries: &mut Deliveries) -> Delivery {
    let wait = Duration::from_mins(2);
    let next = tokio::time::timeout(wait, deliveries.next()).await;
    next.expect("a delivery comes").unwrap()
}
