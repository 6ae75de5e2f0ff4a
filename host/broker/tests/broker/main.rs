//! Tests of the broker's interface: one suite on RabbitMQ and on its in-memory fake, and what
//! RabbitMQ alone can do.

mod conformance;
mod fixture;
mod order;
mod proxy;
mod rabbitmq;
mod restart;
mod server;
mod tls;
