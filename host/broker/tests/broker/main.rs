//! Tests of the broker's interface: one suite on RabbitMQ and on its twin in the process, and what
//! RabbitMQ alone can do.

mod conformance;
mod order;
mod proxy;
mod rabbitmq;
mod restart;
mod server;
mod stand;
mod tls;
