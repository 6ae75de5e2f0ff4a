//! Shared parts of the tests: messages, a broker to test, and waiting.

use std::time::Duration;

use treadle_broker::{
    Address, Attributes, Broker, Deliveries, Delivery, Health, Letter, Message, Names, RabbitMq,
    Reply, RoutingKey, Settings,
};

/// Timeout of operations that should complete at once.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// The server shared by the tests; `None` if they are skipped.
pub(crate) fn server_url() -> Option<String> {
    if std::env::var("TREADLE_SKIP_SERVICE_TESTS").is_ok_and(|value| value == "1") {
        return None;
    }
    let url = std::env::var("TREADLE_TEST_AMQP_URL").unwrap_or_else(|_| {
        panic!(
            "TREADLE_TEST_AMQP_URL is not set: run `scripts/services.sh start` and set it to what \
             `scripts/services.sh url rabbitmq` prints, or leave these tests out by \
             TREADLE_SKIP_SERVICE_TESTS=1"
        )
    });
    Some(url)
}

/// A prefix that no other test uses.
pub(crate) fn prefix(test: &str) -> String {
    let salt = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    format!("t-{test}-{}-{salt:x}", std::process::id())
}

/// Settings with short timeouts and pauses.
pub(crate) fn settings(url: &str, prefix: &str) -> Settings {
    Settings {
        names: Names::new(prefix).unwrap(),
        timeout: Duration::from_secs(20),
        backoff_first: Duration::from_millis(20),
        backoff_longest: Duration::from_millis(500),
        ..Settings::new(Address::parse(url).unwrap())
    }
}

/// An event of a program of a job.
pub(crate) fn event(seq: u64, job: &str, program: &str) -> Message {
    Message {
        seq,
        key: RoutingKey::event("acme", job, "step", "finished"),
        schema_version: 1,
        attributes: Attributes {
            source: format!("/treadle/acme/{job}"),
            kind: "treadle.step.finished".into(),
            subject: program.into(),
            time: "2026-01-01T00:00:00Z".into(),
        },
        body: format!("{{\"seq\":{seq}}}").into_bytes(),
    }
}

/// A letter without headers.
pub(crate) fn letter(id: &str) -> Letter {
    Letter {
        id: id.into(),
        body: b"{}".to_vec(),
        ..Letter::default()
    }
}

/// A reply to the letter `c-1`.
pub(crate) fn reply(to: &str) -> Reply {
    Reply {
        to: to.into(),
        correlation_id: Some("call-7".into()),
        id: "reply-1".into(),
        body: b"{\"ok\":true}".to_vec(),
    }
}

/// The next delivery, which must arrive.
pub(crate) async fn next(deliveries: &mut Deliveries) -> Delivery {
    tokio::time::timeout(TIMEOUT, deliveries.next())
        .await
        .expect("a delivery comes")
        .expect("the stream goes on")
}

/// Ids of the next deliveries, which are acknowledged.
pub(crate) async fn next_ids(deliveries: &mut Deliveries, count: usize) -> Vec<String> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let delivery = next(deliveries).await;
        ids.push(delivery.id.clone().unwrap_or_default());
        delivery.ack().await.unwrap();
    }
    ids
}

/// Waits until the broker's health matches.
pub(crate) async fn healthy(broker: &dyn Broker, is_met: impl Fn(&Health) -> bool) -> Health {
    let mut health = broker.health();
    let seen = tokio::time::timeout(TIMEOUT, health.wait_for(|health| is_met(health)));
    let seen = seen.await.map(|seen| seen.unwrap().clone());
    seen.unwrap_or_else(|_| panic!("the health is still {:?}", broker.health().borrow()))
}

/// Publishes like an outbox: retries until it is confirmed. Returns the number of failures.
pub(crate) async fn publish_surely(broker: &RabbitMq, batch: &[Message]) -> u32 {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    let mut refusals = 0;
    loop {
        match broker.publish(batch).await {
            Ok(seq) => {
                assert_eq!(seq, batch.last().unwrap().seq);
                return refusals;
            }
            Err(cause) => {
                refusals += 1;
                assert!(cause.passes_by_itself(), "{cause}");
                assert!(tokio::time::Instant::now() < deadline, "{cause}");
            }
        }
    }
}
