//! A broker that is killed while it is published to: nothing is lost, and order stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use treadle_broker::{
    Broker, Deliveries, Delivery, Health, Message, RabbitMq, Subscription, header,
};

use crate::server::Server;
use crate::stand::{event, healthy, prefix, publish_surely, server_url, settings};

const BATCHES: u64 = 40;
const BATCH: u64 = 250;
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
    let all = Subscription::new(&queue, ["#"]);
    let mut deliveries = broker.subscribe(&all).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.settle();
        server
    });
    let server = server.await.unwrap();

    let publishing = async {
        let mut refusals = 0;
        for number in 0..BATCHES {
            refusals += publish_surely(&broker, &batch(number)).await;
        }
        refusals
    };
    let (refusals, server) = tokio::join!(publishing, consume_and_kill(&mut deliveries, server));
    assert!(
        refusals > 0,
        "the broker was not killed while it was published to"
    );
    healthy(&broker, Health::is_connected).await;
    broker.close().await.unwrap();
    let end = tokio::task::spawn_blocking(move || drop(server));
    end.await.unwrap();
}

/// Consumes until all has arrived, and kills the server once, early on: the publisher does not
/// wait for this.
async fn consume_and_kill(deliveries: &mut Deliveries, server: Server) -> Server {
    let mut seen = BTreeSet::new();
    let mut last_of = BTreeMap::new();
    let mut server = Some(server);
    let mut revival = None;
    while (seen.len() as u64) < BATCHES * BATCH {
        let delivery = next_through(deliveries).await;
        let seq: u64 = delivery.id.as_deref().unwrap().parse().unwrap();
        if seen.insert(seq) {
            let program = delivery.headers[header::SUBJECT].clone();
            let before = last_of.insert(program, seq);
            assert!(before < Some(seq), "{seq} after {before:?}");
        }
        // An acknowledgement that is lost brings the message again.
        let _ = delivery.ack().await;
        if seen.len() as u64 >= 2 * BATCH
            && let Some(mut victim) = server.take()
        {
            revival = Some(tokio::task::spawn_blocking(move || {
                victim.kill();
                victim.restart();
                victim
            }));
        }
    }
    revival.unwrap().await.unwrap()
}

/// The next delivery, though the broker starts anew meanwhile.
async fn next_through(deliveries: &mut Deliveries) -> Delivery {
    let wait = Duration::from_mins(2);
    let next = tokio::time::timeout(wait, deliveries.next()).await;
    next.expect("a delivery comes").unwrap()
}
