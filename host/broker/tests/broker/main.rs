//! Tests of the broker's interface: one suite for RabbitMQ and its in-memory fake, and tests of
//! RabbitMQ only.

mod conformance;
mod fixture;
mod order;
mod proxy;
mod rabbitmq;
mod restart;
mod server;
mod tls;
