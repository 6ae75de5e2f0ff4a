//! The exchanges and queues of treadle.

use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, Error, ExchangeKind};

use super::failure;
use super::link::Session;
use crate::{
    BrokerError, COMMANDS_HELD_MAX, DEAD_LETTERS_HELD_MAX, EVENTS_HELD_MAX, Names, Queue,
    RUN_UNSETTLED_MS_MAX, Subscription,
};

/// Declares everything. Existing ones are unchanged; other properties are an error.
pub(super) async fn declare(connection: &Connection, names: &Names) -> Result<(), BrokerError> {
    let channel = channel(connection).await?;
    for exchange in [names.events_exchange(), names.dead_exchange()] {
        declare_exchange(&channel, &exchange).await?;
    }
    for queue in Queue::ALL {
        declare_queue(&channel, &names.queue(queue), arguments(names, queue)).await?;
    }
    let dead_letters = names.queue(Queue::DeadLetters);
    bind(&channel, &dead_letters, &names.dead_exchange(), "#").await?;
    close(&channel).await;
    Ok(())
}

/// Declares a subscription's queue and its bindings.
pub(super) async fn subscribe(
    session: &Session,
    names: &Names,
    subscription: &Subscription,
) -> Result<(), BrokerError> {
    let channel = channel(&session.connection).await?;
    let mut arguments = quorum();
    insert(&mut arguments, "x-max-length", EVENTS_HELD_MAX);
    declare_queue(&channel, &subscription.queue, arguments).await?;
    for pattern in &subscription.patterns {
        bind(
            &channel,
            &subscription.queue,
            &names.events_exchange(),
            pattern,
        )
        .await?;
    }
    close(&channel).await;
    Ok(())
}

/// Removes a subscription's queue.
pub(super) async fn unsubscribe(session: &Session, queue: &str) -> Result<(), BrokerError> {
    let channel = channel(&session.connection).await?;
    delete_queue(&channel, queue).await?;
    close(&channel).await;
    Ok(())
}

/// Removes everything that [`declare`] makes.
pub(super) async fn remove(session: &Session, names: &Names) -> Result<(), BrokerError> {
    let channel = channel(&session.connection).await?;
    for queue in Queue::ALL {
        delete_queue(&channel, &names.queue(queue)).await?;
    }
    for exchange in [names.events_exchange(), names.dead_exchange()] {
        channel
            .exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default())
            .await
            .map_err(|error| failure::lost(&error))?;
    }
    close(&channel).await;
    Ok(())
}

/// A separate channel, because the first error closes it.
pub(super) async fn channel(connection: &Connection) -> Result<Channel, BrokerError> {
    connection
        .create_channel()
        .await
        .map_err(|error| failure::lost(&error))
}

/// A channel that can't be closed in order is closed with its connection.
async fn close(channel: &Channel) {
    let _ = channel.close(200, "done".into()).await;
}

async fn declare_exchange(channel: &Channel, name: &str) -> Result<(), BrokerError> {
    let options = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    channel
        .exchange_declare(
            name.into(),
            ExchangeKind::Topic,
            options,
            FieldTable::default(),
        )
        .await
        .map_err(|error| failure::declaring(name, false, &error))
}

async fn declare_queue(
    channel: &Channel,
    name: &str,
    arguments: FieldTable,
) -> Result<(), BrokerError> {
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(name.into(), options, arguments)
        .await
        .map(drop)
        .map_err(|error| failure::declaring(name, true, &error))
}

async fn bind(
    channel: &Channel,
    queue: &str,
    exchange: &str,
    pattern: &str,
) -> Result<(), BrokerError> {
    channel
        .queue_bind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
        .map_err(|error: Error| failure::declaring(queue, false, &error))
}

async fn delete_queue(channel: &Channel, name: &str) -> Result<(), BrokerError> {
    channel
        .queue_delete(name.into(), QueueDeleteOptions::default())
        .await
        .map(drop)
        .map_err(|error| failure::lost(&error))
}

/// Arguments of a replicated queue.
fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    insert_text(&mut arguments, "x-queue-type", "quorum");
    arguments
}

fn arguments(names: &Names, queue: Queue) -> FieldTable {
    let mut arguments = quorum();
    if !queue.has_dead_letters() {
        insert(&mut arguments, "x-max-length", DEAD_LETTERS_HELD_MAX);
        return arguments;
    }
    insert(&mut arguments, "x-max-length", COMMANDS_HELD_MAX);
    insert(&mut arguments, "x-delivery-limit", queue.delivery_limit());
    if queue == Queue::Runs {
        // RabbitMQ before 3.12 stores it, and applies it after an upgrade.
        insert(&mut arguments, "x-consumer-timeout", RUN_UNSETTLED_MS_MAX);
    }
    // Messages beyond the limit are refused, and a dead letter leaves its queue only when it has
    // arrived among the dead letters.
    insert_text(&mut arguments, "x-overflow", "reject-publish");
    insert_text(&mut arguments, "x-dead-letter-strategy", "at-least-once");
    insert_text(
        &mut arguments,
        "x-dead-letter-exchange",
        &names.dead_exchange(),
    );
    insert_text(
        &mut arguments,
        "x-dead-letter-routing-key",
        &names.queue(queue),
    );
    arguments
}

fn insert(arguments: &mut FieldTable, name: &str, value: u32) {
    arguments.insert(name.into(), AMQPValue::LongLongInt(i64::from(value)));
}

fn insert_text(arguments: &mut FieldTable, name: &str, value: &str) {
    arguments.insert(name.into(), AMQPValue::LongString(value.into()));
}
