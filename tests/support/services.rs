//! PostgreSQL and RabbitMQ: those that all tests share, and private ones to kill.

pub use treadle_services::{
    Psql, Schema, Servers, Service, amqp_url, are_skipped, fresh_name, postgres_program,
    postgres_url,
};
