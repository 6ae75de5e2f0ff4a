//! What may go wrong with a broker, and what to do about it.
//!
//! No variant holds a password: a URL is shown without one.

use thiserror::Error;

/// Why the broker could not do what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerError {
    /// The URL can't be used.
    #[error(
        "broker.url: {cause}; write amqp://user:password@host:5672/vhost, or amqps:// for TLS, \
         with / in the vhost as %2F"
    )]
    Url {
        /// What is wrong with it.
        cause: String,
    },
    /// The prefix of names can't be used.
    #[error("broker.prefix: {cause}")]
    Prefix {
        /// What is wrong with it.
        cause: String,
    },
    /// No answer.
    #[error(
        "no broker answers at {address} ({cause}); start RabbitMQ there, open the port, or correct \
         host and port in broker.url"
    )]
    Unreachable {
        /// The URL without its password.
        address: String,
        /// What was seen.
        cause: String,
    },
    /// The server is not an AMQP broker.
    #[error(
        "what answers at {address} does not speak AMQP 0-9-1 ({cause}); RabbitMQ listens on 5672 \
         for amqp:// and on 5671 for amqps://"
    )]
    Protocol {
        /// The URL without its password.
        address: String,
        /// What was seen.
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
        /// What was seen.
        cause: String,
    },
    /// User or password are wrong.
    #[error(
        "{address} refused user and password (ACCESS_REFUSED); correct them in broker.url, or make \
         the user: rabbitmqctl add_user. The user guest may come from the broker's own host alone"
    )]
    Credentials {
        /// The URL without its password.
        address: String,
    },
    /// There is no such virtual host, or it is not for this user.
    #[error(
        "{address}: the virtual host can't be used ({cause}); make it: rabbitmqctl add_vhost, and \
         allow it: rabbitmqctl set_permissions -p <vhost> <user> '.*' '.*' '.*'"
    )]
    VirtualHost {
        /// The URL without its password.
        address: String,
        /// The broker's error.
        cause: String,
    },
    /// The user may not do this.
    #[error(
        "the broker does not allow it ({cause}); give the user of broker.url the right to configure, \
         write and read these names: rabbitmqctl set_permissions -p <vhost> <user> '.*' '.*' '.*'"
    )]
    Permission {
        /// The broker's error.
        cause: String,
    },
    /// Something of this name is there, made otherwise.
    #[error(
        "{name} is there, but was declared otherwise ({cause}); remove it when it is empty, \
         for a queue by rabbitmqctl delete_queue {name}, or choose another broker.prefix"
    )]
    Mismatch {
        /// Name of the queue or exchange.
        name: String,
        /// The broker's error.
        cause: String,
    },
    /// The broker has no quorum queues.
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
    /// A queue or exchange is gone.
    #[error("{cause}; it is made again at the next connection")]
    Absent {
        /// The broker's error.
        cause: String,
    },
    /// The broker takes no messages at present.
    #[error(
        "the broker takes no messages ({reason}): an alarm for memory or disk is on; free some, or \
         raise vm_memory_high_watermark or lower disk_free_limit in rabbitmq.conf"
    )]
    Blocked {
        /// The broker's error.
        reason: String,
    },
    /// The broker did not take a message.
    #[error(
        "the broker did not take message {id}; a queue that it goes to is full or has no leader: \
         look at rabbitmqctl list_queues name messages state"
    )]
    Nacked {
        /// The message's id.
        id: String,
    },
    /// The connection is lost.
    #[error("the connection to the broker is lost ({cause}); it reconnects automatically")]
    Lost {
        /// What was seen.
        cause: String,
    },
    /// The broker is silent.
    #[error("the broker has not answered for {after_ms} ms ({what}); look at its load and its log")]
    TimedOut {
        /// What was asked.
        what: &'static str,
        /// How long.
        after_ms: u64,
    },
    /// More than fits.
    #[error("{what} has at most {size_max}, not {size}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// How large it may be.
        size_max: usize,
    },
    /// A reply can't go there.
    #[error(
        "reply_to: {cause}; name an existing queue of the client's own in at most 255 bytes, not \
         below broker.prefix, or amq.rabbitmq.reply-to, which RabbitMQ resolves"
    )]
    ReplyTo {
        /// What is wrong with it.
        cause: String,
    },
    /// The delivery was of a connection that is gone: it comes, or has come, again.
    #[error("the delivery's connection is gone; the message comes again")]
    DeliveryLost,
    /// No connection was made yet.
    #[error("the first connection to the broker is still being made")]
    Connecting,
    /// [`crate::Broker::close`] was called.
    #[error("the connection to the broker was closed by this daemon")]
    Closed,
}

impl BrokerError {
    /// A name for metrics and health, stable.
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

    /// Whether trying again may help without any intervention.
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
