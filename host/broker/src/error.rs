//! Errors of a broker and their remedies.
//!
//! No variant contains a password: URLs are stored without it.

use thiserror::Error;

/// Errors of operations on a broker.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerError {
    /// The URL is invalid.
    #[error(
        "broker.url: {cause}; write amqp://user:password@host:5672/vhost, or amqps:// for TLS, \
         with / in the vhost as %2F"
    )]
    Url {
        /// The problem.
        cause: String,
    },
    /// The prefix of names is invalid.
    #[error("broker.prefix: {cause}")]
    Prefix {
        /// The problem.
        cause: String,
    },
    /// The broker is unreachable.
    #[error(
        "no broker answers at {address} ({cause}); start RabbitMQ there, open the port, or correct \
         host and port in broker.url"
    )]
    Unreachable {
        /// The URL without its password.
        address: String,
        /// The observed failure.
        cause: String,
    },
    /// The server is not an AMQP broker.
    #[error(
        "the server at {address} does not speak AMQP 0-9-1 ({cause}); RabbitMQ listens on 5672 \
         for amqp:// and on 5671 for amqps://"
    )]
    Protocol {
        /// The URL without its password.
        address: String,
        /// The observed failure.
        cause: String,
    },
    /// TLS failed.
    #[error(
        "TLS with {address} failed ({cause}); name the authority of the broker's certificate in \
         broker.url with ?cacertfile=/path.pem, use the host name that the certificate bears, and \
         the broker's TLS port, 5671"
    )]
    Tls {
        /// The URL without its password.
        address: String,
        /// The observed failure.
        cause: String,
    },
    /// User or password is wrong.
    #[error(
        "{address} refused user and password (ACCESS_REFUSED); correct them in broker.url, or make \
         the user: rabbitmqctl add_user. The user guest may connect only from the broker's own host"
    )]
    Credentials {
        /// The URL without its password.
        address: String,
    },
    /// The virtual host does not exist, or the user may not use it.
    #[error(
        "{address}: can't use the virtual host ({cause}); create it: rabbitmqctl add_vhost, and \
         allow it: rabbitmqctl set_permissions -p <vhost> <user> '.*' '.*' '.*'"
    )]
    VirtualHost {
        /// The URL without its password.
        address: String,
        /// The broker's error.
        cause: String,
    },
    /// The user lacks a permission.
    #[error(
        "the broker denied access ({cause}); give the user of broker.url the right to configure, \
         write and read these names: rabbitmqctl set_permissions -p <vhost> <user> '.*' '.*' '.*'"
    )]
    Permission {
        /// The broker's error.
        cause: String,
    },
    /// A queue or exchange exists with other properties.
    #[error(
        "{name} exists with other properties ({cause}); remove it when it is empty, \
         for a queue by rabbitmqctl delete_queue {name}, or choose another broker.prefix"
    )]
    Mismatch {
        /// Name of the queue or exchange.
        name: String,
        /// The broker's error.
        cause: String,
    },
    /// The broker does not support quorum queues.
    #[error(
        "the broker can't make the quorum queue {name} ({cause}); quorum queues need RabbitMQ 3.10 \
         or later with the feature flag quorum_queue: rabbitmqctl enable_feature_flag all"
    )]
    Quorum {
        /// Name of the queue.
        name: String,
        /// The broker's error.
        cause: String,
    },
    /// A queue or exchange no longer exists.
    #[error("{cause}; it is recreated at the next connection")]
    Absent {
        /// The broker's error.
        cause: String,
    },
    /// The broker currently accepts no messages.
    #[error(
        "the broker accepts no messages ({reason}): an alarm for memory or disk is on; free some, or \
         raise vm_memory_high_watermark or lower disk_free_limit in rabbitmq.conf"
    )]
    Blocked {
        /// The broker's error.
        reason: String,
    },
    /// The broker refused a message.
    #[error(
        "the broker refused message {id}; a queue that it goes to is full or has no leader: \
         look at rabbitmqctl list_queues name messages state"
    )]
    Nacked {
        /// The message's id.
        id: String,
    },
    /// The connection was lost.
    #[error("the connection to the broker is lost ({cause}); it reconnects automatically")]
    Lost {
        /// The observed failure.
        cause: String,
    },
    /// The broker did not answer in time.
    #[error("the broker has not answered for {after_ms} ms ({what}); check its load and its log")]
    TimedOut {
        /// The operation.
        what: &'static str,
        /// The timeout, in milliseconds.
        after_ms: u64,
    },
    /// A value exceeds its limit.
    #[error("{what} is {size}, the limit is {size_max}")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        size_max: usize,
    },
    /// The address for replies is not permitted.
    #[error(
        "reply_to: {cause}; name an existing queue of the client's own in at most 255 bytes, not \
         below broker.prefix, or amq.rabbitmq.reply-to, which RabbitMQ resolves"
    )]
    ReplyTo {
        /// The problem.
        cause: String,
    },
    /// The delivery's connection was lost: the message is, or was, delivered again.
    #[error("the delivery's connection is gone; the message is delivered again")]
    DeliveryLost,
    /// The first connection is still being made.
    #[error("still connecting to the broker")]
    Connecting,
    /// [`crate::Broker::close`] was called.
    #[error("the connection to the broker was closed by this daemon")]
    Closed,
}

impl BrokerError {
    /// A stable name for metrics and health.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Url { .. } => "broker-url",
            Self::Prefix { .. } => "broker-prefix",
            Self::Unreachable { .. } => "broker-unreachable",
            Self::Protocol { .. } => "broker-protocol",
            Self::Tls { .. } => "broker-tls",
            Self::Credentials { .. } => "broker-credentials",
            Self::VirtualHost { .. } => "broker-virtual-host",
            Self::Permission { .. } => "broker-permission",
            Self::Mismatch { .. } => "broker-mismatch",
            Self::Quorum { .. } => "broker-quorum",
            Self::Absent { .. } => "broker-absent",
            Self::Blocked { .. } => "broker-blocked",
            Self::Nacked { .. } => "broker-nacked",
            Self::Lost { .. } => "broker-lost",
            Self::TimedOut { .. } => "broker-timed-out",
            Self::TooLarge { .. } => "broker-too-large",
            Self::ReplyTo { .. } => "broker-reply-to",
            Self::DeliveryLost => "broker-delivery-lost",
            Self::Connecting => "broker-connecting",
            Self::Closed => "broker-closed",
        }
    }

    /// Whether a retry may help without intervention.
    pub const fn passes_by_itself(&self) -> bool {
        !matches!(
            self,
            Self::Url { .. }
                | Self::Prefix { .. }
                | Self::TooLarge { .. }
                | Self::ReplyTo { .. }
                | Self::Closed
        )
    }
}
