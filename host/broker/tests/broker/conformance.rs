//! One test suite for all implementations of [`Broker`].

use treadle_broker::{
    Address, BODY_BYTES_MAX, Broker, BrokerError, DELIVERY_LIMIT, InProcess, Letter, Names, Queue,
    RabbitMq, Reply, SHORT_BYTES_MAX, Subscription, header,
};

use crate::fixture::{event, healthy, letter, next, next_ids, prefix, reply, server_url, settings};
use crate::proxy::Proxy;

/// A broker whose connection a test may cut.
enum Fixture {
    InProcess(InProcess),
    RabbitMq(RabbitMq, Proxy),
}

impl Fixture {
    async fn start(kind: &str, prefix: &str) -> Option<Self> {
        if kind == "in_process" {
            return Some(Self::InProcess(InProcess::new(Names::new(prefix).unwrap())));
        }
        let url = server_url()?;
        let shown = Address::parse(&url).unwrap().to_string();
        // The URL as shown: amqp://user@host:port/vhost.
        let place = shown.split(['@', '/']).nth(3).unwrap().to_owned();
        let proxy = Proxy::start(place.clone()).await;
        let url = url.replace(&place, &format!("127.0.0.1:{}", proxy.port()));
        let broker = RabbitMq::start(settings(&url, prefix));
        Some(Self::RabbitMq(broker, proxy))
    }

    fn broker(&self) -> &dyn Broker {
        match self {
            Self::InProcess(broker) => broker,
            Self::RabbitMq(broker, _) => broker,
        }
    }

    /// Cuts the connection, and restores it.
    async fn interrupt(&self) {
        match self {
            Self::InProcess(broker) => broker.cut(),
            Self::RabbitMq(_, proxy) => proxy.cut(),
        }
        let health = healthy(self.broker(), |health| !health.is_connected()).await;
        assert!(health.cause().is_some());
        match self {
            Self::InProcess(broker) => broker.mend(),
            Self::RabbitMq(_, proxy) => proxy.mend(),
        }
        healthy(self.broker(), treadle_broker::Health::is_connected).await;
    }

    async fn end(self, queues: &[&str]) {
        for queue in queues {
            self.broker().unsubscribe(queue).await.unwrap();
        }
        if let Self::RabbitMq(broker, _) = &self {
            broker.remove_topology().await.unwrap();
        }
        self.broker().close().await.unwrap();
    }
}

macro_rules! on_each {
    ($($test:ident),+ $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $test() {
                super::$test("in_process").await;
            })+
        }
        mod rabbitmq {
            $(#[tokio::test]
            async fn $test() {
                super::$test("rabbitmq").await;
            })+
        }
    };
}

on_each!(
    events_reach_their_subscribers,
    all_of_a_large_batch_is_confirmed_and_in_order,
    an_acknowledged_letter_is_not_delivered_again,
    prefetch_limits_unsettled_deliveries,
    a_rejected_letter_is_dead_with_its_reason,
    a_poisonous_letter_becomes_a_dead_letter_after_its_last_return,
    unsettled_letters_are_delivered_again_after_a_loss,
    deliveries_of_a_dropped_stream_go_to_others,
    a_request_is_answered_while_its_queue_exists,
    a_dead_request_can_still_be_answered,
    no_reply_goes_to_a_queue_of_the_daemon,
    a_long_run_outlasts_many_losses,
    too_large_messages_are_refused,
    a_closed_broker_refuses_operations,
);

async fn events_reach_their_subscribers(kind: &str) {
    let prefix = prefix("events");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let (one, all) = (format!("{prefix}.one"), format!("{prefix}.all"));
    let one_job = Subscription::new(&one, ["acme.math.#", "*.math.step.*"]);
    let mut of_math = fixture.broker().subscribe(&one_job).await.unwrap();
    let everything = Subscription::new(&all, ["#"]);
    let mut of_all = fixture.broker().subscribe(&everything).await.unwrap();

    let batch = [event(7, "code", "p-1"), event(8, "math", "p-2")];
    assert_eq!(fixture.broker().publish(&batch).await.unwrap(), 8);
    assert_eq!(fixture.broker().publish(&[]).await.unwrap(), 0);

    let delivery = next(&mut of_math).await;
    assert_eq!(delivery.id.as_deref(), Some("8"));
    assert_eq!(delivery.routing_key, "acme.math.step.finished");
    assert_eq!(delivery.body, b"{\"seq\":8}");
    assert!(!delivery.redelivered);
    for (name, value) in [
        (header::SCHEMA_VERSION, "1"),
        (header::SPEC_VERSION, "1.0"),
        (header::ID, "8"),
        (header::SOURCE, "/treadle/acme/math"),
        (header::KIND, "treadle.step.finished"),
        (header::SUBJECT, "p-2"),
        (header::TIME, "2026-01-01T00:00:00Z"),
    ] {
        assert_eq!(delivery.headers.get(name).map(String::as_str), Some(value));
    }
    delivery.ack().await.unwrap();
    assert_eq!(next_ids(&mut of_all, 2).await, ["7", "8"]);
    fixture.end(&[&one, &all]).await;
}

async fn all_of_a_large_batch_is_confirmed_and_in_order(kind: &str) {
    let prefix = prefix("large");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let queue = format!("{prefix}.all");
    let subscription = Subscription::new(&queue, ["#"]);
    let mut deliveries = fixture.broker().subscribe(&subscription).await.unwrap();
    // More than the window of 1,000.
    let batch: Vec<_> = (1..=3_000).map(|seq| event(seq, "math", "p-1")).collect();
    assert_eq!(fixture.broker().publish(&batch).await.unwrap(), 3_000);
    let ids = next_ids(&mut deliveries, 3_000).await;
    let expected: Vec<String> = (1..=3_000).map(|seq: u64| seq.to_string()).collect();
    assert!(ids == expected, "out of order");
    fixture.end(&[&queue]).await;
}

async fn an_acknowledged_letter_is_not_delivered_again(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("ack")).await else {
        return;
    };
    let mut sent = letter("c-1");
    sent.headers.insert("who".into(), "a test".into());
    fixture.broker().send(Queue::Commands, &sent).await.unwrap();
    fixture
        .broker()
        .send(Queue::Actions, &letter("a-1"))
        .await
        .unwrap();

    let mut commands = fixture.broker().consume(Queue::Commands, 10);
    let delivery = next(&mut commands).await;
    assert_eq!(delivery.id.as_deref(), Some("c-1"));
    assert_eq!(
        delivery.headers.get("who").map(String::as_str),
        Some("a test")
    );
    assert_eq!((delivery.returns(), delivery.redelivered), (0, false));
    delivery.requeue().await.unwrap();
    let delivery = next(&mut commands).await;
    assert_eq!((delivery.returns(), delivery.redelivered), (1, true));
    delivery.ack().await.unwrap();

    // The next delivery is the next letter, not the same one again.
    fixture
        .broker()
        .send(Queue::Commands, &letter("c-2"))
        .await
        .unwrap();
    assert_eq!(next_ids(&mut commands, 1).await, ["c-2"]);
    let mut actions = fixture.broker().consume(Queue::Actions, 10);
    assert_eq!(next_ids(&mut actions, 1).await, ["a-1"]);
    fixture.end(&[]).await;
}

async fn prefetch_limits_unsettled_deliveries(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("prefetch")).await else {
        return;
    };
    for id in ["1", "2", "3", "4"] {
        fixture
            .broker()
            .send(Queue::Commands, &letter(id))
            .await
            .unwrap();
    }
    let mut first = fixture.broker().consume(Queue::Commands, 2);
    let held = [next(&mut first).await, next(&mut first).await];
    // The first stream has reached its prefetch, so the others go to the second.
    let mut second = fixture.broker().consume(Queue::Commands, 2);
    assert_eq!(next_ids(&mut second, 2).await, ["3", "4"]);
    for (delivery, id) in held.into_iter().zip(["1", "2"]) {
        assert_eq!(delivery.id.as_deref(), Some(id));
        delivery.ack().await.unwrap();
    }
    drop(second);
    fixture
        .broker()
        .send(Queue::Commands, &letter("5"))
        .await
        .unwrap();
    assert_eq!(next_ids(&mut first, 1).await, ["5"]);
    fixture.end(&[]).await;
}

async fn a_rejected_letter_is_dead_with_its_reason(kind: &str) {
    let prefix = prefix("reject");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    fixture
        .broker()
        .send(Queue::Commands, &letter("c-1"))
        .await
        .unwrap();
    let mut commands = fixture.broker().consume(Queue::Commands, 1);
    let delivery = next(&mut commands).await;
    let reason = format!("command: no such command {}", "ü".repeat(2_000));
    delivery.reject(&reason).await.unwrap();

    let mut dead = fixture.broker().consume(Queue::DeadLetters, 1);
    let delivery = next(&mut dead).await;
    assert_eq!(delivery.id.as_deref(), Some("c-1"));
    assert_eq!(delivery.body, b"{}");
    let told = delivery.reason().unwrap();
    assert!(told.starts_with("command: no such command ü") && told.len() <= 1_000);
    let from = delivery.headers.get(header::FROM_QUEUE).map(String::as_str);
    assert_eq!(from, Some(format!("{prefix}.commands").as_str()));
    assert_eq!(delivery.routing_key, format!("{prefix}.commands"));
    delivery.ack().await.unwrap();
    fixture.end(&[]).await;
}

async fn a_poisonous_letter_becomes_a_dead_letter_after_its_last_return(kind: &str) {
    let prefix = prefix("poison");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    fixture
        .broker()
        .send(Queue::Actions, &letter("a-1"))
        .await
        .unwrap();
    let mut actions = fixture.broker().consume(Queue::Actions, 1);
    for returns in 0..=DELIVERY_LIMIT {
        let delivery = next(&mut actions).await;
        assert_eq!(delivery.returns(), returns);
        delivery.requeue().await.unwrap();
    }
    let mut dead = fixture.broker().consume(Queue::DeadLetters, 1);
    let delivery = next(&mut dead).await;
    assert_eq!(delivery.id.as_deref(), Some("a-1"));
    assert_eq!(delivery.reason(), Some("delivery_limit"));
    assert_eq!(delivery.routing_key, format!("{prefix}.actions"));
    delivery.ack().await.unwrap();
    fixture.end(&[]).await;
}

async fn unsettled_letters_are_delivered_again_after_a_loss(kind: &str) {
    let prefix = prefix("loss");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let queue = format!("{prefix}.all");
    let subscription = Subscription::new(&queue, ["#"]);
    let mut events = fixture.broker().subscribe(&subscription).await.unwrap();
    fixture
        .broker()
        .send(Queue::Commands, &letter("c-1"))
        .await
        .unwrap();
    let mut commands = fixture.broker().consume(Queue::Commands, 1);
    let held = next(&mut commands).await;

    fixture.interrupt().await;
    assert_eq!(held.ack().await, Err(BrokerError::DeliveryLost));
    let again = next(&mut commands).await;
    assert_eq!(again.id.as_deref(), Some("c-1"));
    assert!(again.redelivered);
    again.ack().await.unwrap();

    // Publishing and subscriptions continue automatically.
    fixture
        .broker()
        .publish(&[event(1, "math", "p-1")])
        .await
        .unwrap();
    assert_eq!(next_ids(&mut events, 1).await, ["1"]);
    fixture.end(&[&queue]).await;
}

async fn deliveries_of_a_dropped_stream_go_to_others(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("drop")).await else {
        return;
    };
    fixture
        .broker()
        .send(Queue::Commands, &letter("c-1"))
        .await
        .unwrap();
    let mut first = fixture.broker().consume(Queue::Commands, 1);
    let held = next(&mut first).await;
    drop(first);
    let mut second = fixture.broker().consume(Queue::Commands, 1);
    let again = next(&mut second).await;
    assert_eq!(again.id.as_deref(), Some("c-1"));
    assert_eq!(held.ack().await, Err(BrokerError::DeliveryLost));
    again.ack().await.unwrap();
    fixture.end(&[]).await;
}

/// A request for an action, with replies into `queue`.
fn request(queue: &str) -> Letter {
    Letter {
        reply_to: Some(queue.into()),
        correlation_id: Some("call-7".into()),
        ..letter("r-1")
    }
}

async fn a_request_is_answered_while_its_queue_exists(kind: &str) {
    let prefix = prefix("answer");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let broker = fixture.broker();
    let queue = format!("{prefix}-replies");
    let own = Subscription::new(&queue, Vec::<String>::new());
    let mut replies = broker.subscribe(&own).await.unwrap();
    broker.send(Queue::Runs, &request(&queue)).await.unwrap();

    let mut runs = broker.consume(Queue::Runs, 1);
    let asked = next(&mut runs).await;
    assert_eq!(asked.reply_to.as_deref(), Some(queue.as_str()));
    assert_eq!(asked.correlation_id.as_deref(), Some("call-7"));
    assert_eq!(broker.answer(&reply(&queue)).await, Ok(true));
    asked.ack().await.unwrap();
    let answered = next(&mut replies).await;
    assert_eq!(answered.id.as_deref(), Some("reply-1"));
    assert_eq!(answered.correlation_id.as_deref(), Some("call-7"));
    assert_eq!(answered.reply_to, None);
    assert_eq!(answered.routing_key, queue);
    assert_eq!(answered.body, b"{\"ok\":true}");
    answered.ack().await.unwrap();

    drop(replies);
    broker.unsubscribe(&queue).await.unwrap();
    assert_eq!(broker.answer(&reply(&queue)).await, Ok(false));
    // The next message must not be confused with the returned one.
    broker.send(Queue::Runs, &letter("r-2")).await.unwrap();
    let asked = next(&mut runs).await;
    assert_eq!((&asked.reply_to, &asked.correlation_id), (&None, &None));
    asked.ack().await.unwrap();
    fixture.end(&[]).await;
}

async fn a_dead_request_can_still_be_answered(kind: &str) {
    let prefix = prefix("deadrun");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let broker = fixture.broker();
    broker
        .send(Queue::Runs, &request("somewhere"))
        .await
        .unwrap();
    let mut runs = broker.consume(Queue::Runs, 1);
    let asked = next(&mut runs).await;
    asked.reject("run: no such program").await.unwrap();
    let mut dead = broker.consume(Queue::DeadLetters, 1);
    let delivery = next(&mut dead).await;
    assert_eq!(delivery.reason(), Some("run: no such program"));
    assert_eq!(delivery.routing_key, format!("{prefix}.runs"));
    assert_eq!(delivery.reply_to.as_deref(), Some("somewhere"));
    assert_eq!(delivery.correlation_id.as_deref(), Some("call-7"));
    delivery.ack().await.unwrap();
    fixture.end(&[]).await;
}

async fn no_reply_goes_to_a_queue_of_the_daemon(kind: &str) {
    let prefix = prefix("own");
    let Some(fixture) = Fixture::start(kind, &prefix).await else {
        return;
    };
    let broker = fixture.broker();
    for last in ["commands", "actions", "runs", "dead-letters", "events", "x"] {
        let to = format!("{prefix}.{last}");
        let error = broker.answer(&reply(&to)).await.unwrap_err();
        assert!(matches!(error, BrokerError::ReplyTo { .. }), "{error}");
        assert!(!error.passes_by_itself());
        assert!(error.to_string().contains("of the client's own"), "{error}");
    }
    let long = Reply {
        correlation_id: Some("x".repeat(SHORT_BYTES_MAX + 1)),
        ..reply("somewhere")
    };
    let large = Reply {
        body: vec![b' '; BODY_BYTES_MAX + 1],
        ..reply("somewhere")
    };
    for refused in [long, large] {
        let error = broker.answer(&refused).await.unwrap_err();
        assert!(matches!(error, BrokerError::TooLarge { .. }), "{error}");
    }
    // Nothing came before this one.
    broker.send(Queue::Commands, &letter("c-1")).await.unwrap();
    let mut commands = broker.consume(Queue::Commands, 1);
    assert_eq!(next_ids(&mut commands, 1).await, ["c-1"]);
    fixture.end(&[]).await;
}

async fn a_long_run_outlasts_many_losses(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("outlast")).await else {
        return;
    };
    let broker = fixture.broker();
    broker.send(Queue::Runs, &letter("r-1")).await.unwrap();
    let mut runs = broker.consume(Queue::Runs, 1);
    let mut held = next(&mut runs).await;
    // A command would be a dead letter after the last of them.
    for _ in 0..=DELIVERY_LIMIT {
        fixture.interrupt().await;
        held = next(&mut runs).await;
    }
    assert_eq!(held.id.as_deref(), Some("r-1"));
    held.ack().await.unwrap();
    fixture.end(&[]).await;
}

async fn too_large_messages_are_refused(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("size")).await else {
        return;
    };
    let mut large = event(1, "math", "p-1");
    large.body = vec![b' '; BODY_BYTES_MAX + 1];
    let error = fixture.broker().publish(&[large]).await.unwrap_err();
    assert!(matches!(error, BrokerError::TooLarge { .. }), "{error}");
    assert!(!error.passes_by_itself());
    let many: Vec<_> = (1..=10_001).map(|seq| event(seq, "math", "p-1")).collect();
    let error = fixture.broker().publish(&many).await.unwrap_err();
    assert!(matches!(error, BrokerError::TooLarge { .. }), "{error}");
    fixture.end(&[]).await;
}

async fn a_closed_broker_refuses_operations(kind: &str) {
    let Some(fixture) = Fixture::start(kind, &prefix("close")).await else {
        return;
    };
    let mut commands = fixture.broker().consume(Queue::Commands, 1);
    healthy(fixture.broker(), treadle_broker::Health::is_connected).await;
    if let Fixture::RabbitMq(broker, _) = &fixture {
        broker.remove_topology().await.unwrap();
    }
    fixture.broker().close().await.unwrap();
    assert!(commands.next().await.is_none());
    let batch = [event(1, "math", "p-1")];
    assert_eq!(
        fixture.broker().publish(&batch).await,
        Err(BrokerError::Closed)
    );
    let health = healthy(fixture.broker(), |health| !health.is_connected()).await;
    assert_eq!(health.cause(), Some(BrokerError::Closed));
}
