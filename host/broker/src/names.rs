//! Names of exchanges and queues.

use crate::{BrokerError, DELIVERY_LIMIT, RUN_DELIVERY_LIMIT, SHORT_BYTES_MAX};

/// Longest prefix, in bytes; full names stay far below AMQP's 255.
const PREFIX_BYTES_MAX: usize = 100;
/// The name that a client uses to get replies without a queue; the broker replaces it with a unique
/// name that begins with `amq.rabbitmq.reply-to.`.
pub(crate) const DIRECT_REPLIES: &str = "amq.rabbitmq.reply-to";

/// A queue of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Commands to the daemon.
    Commands,
    /// Reports of tool runners about their actions.
    Actions,
    /// Actions to run; a delivery stays unsettled while its action runs.
    Runs,
    /// Commands to training runs; a delivery stays unsettled while its command waits.
    Training,
    /// Messages that could not be processed, with the reason in a header.
    DeadLetters,
}

impl Queue {
    /// All queues.
    pub const ALL: [Self; 5] = [
        Self::Commands,
        Self::Actions,
        Self::Runs,
        Self::Training,
        Self::DeadLetters,
    ];

    /// Whether rejected messages go to the dead letters.
    pub(crate) const fn has_dead_letters(self) -> bool {
        !matches!(self, Self::DeadLetters)
    }

    /// How often a message is delivered again before it becomes a dead letter.
    pub(crate) const fn delivery_limit(self) -> u32 {
        match self {
            Self::Runs => RUN_DELIVERY_LIMIT,
            Self::Commands | Self::Actions | Self::Training | Self::DeadLetters => DELIVERY_LIMIT,
        }
    }

    /// Suffix of the queue's name.
    const fn word(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Actions => "actions",
            Self::Runs => "runs",
            Self::Training => "training",
            Self::DeadLetters => "dead-letters",
        }
    }
}

/// The names of exchanges and queues: `<prefix>.events` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            prefix: "treadle".into(),
        }
    }
}

impl Names {
    /// Names with a prefix.
    ///
    /// # Errors
    /// [`BrokerError::Prefix`] if it is empty, too long, begins with `amq.`, or has other
    /// characters than letters, digits, `.`, `-` and `_`.
    pub fn new(prefix: &str) -> Result<Self, BrokerError> {
        let fails = |cause: &str| {
            Err(BrokerError::Prefix {
                cause: cause.to_owned(),
            })
        };
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
            return fails("use 1 to 100 characters");
        }
        if prefix.starts_with("amq.") {
            return fails("names that begin with amq. are reserved by the broker; choose another");
        }
        let usable = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !prefix.chars().all(usable) {
            return fails("use only letters, digits, '.', '-' and '_'");
        }
        Ok(Self {
            prefix: prefix.to_owned(),
        })
    }

    /// The topic exchange of all events.
    pub fn events_exchange(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// The exchange of dead letters.
    pub fn dead_exchange(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// A queue's name.
    pub fn queue(&self, queue: Queue) -> String {
        format!("{}.{}", self.prefix, queue.word())
    }

    /// Checks that replies may go to a queue. Queues of treadle daemons are refused: otherwise a
    /// client that may only request runs could make the daemon send commands.
    pub(crate) fn check_reply_to(&self, to: &str) -> Result<(), BrokerError> {
        let fails = |cause: String| Err(BrokerError::ReplyTo { cause });
        if to.is_empty() || to.len() > SHORT_BYTES_MAX {
            return fails(format!("it has {} bytes", to.len()));
        }
        if to == DIRECT_REPLIES {
            return fails(format!(
                "{to} was not replaced by the broker with a client's own name"
            ));
        }
        let is_below = to
            .strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.starts_with('.'));
        let last = to.rsplit('.').next().filter(|last| last.len() < to.len());
        let is_like_own = Queue::ALL.iter().any(|queue| last == Some(queue.word()));
        if is_below || is_like_own {
            return fails(format!(
                "{to} is a queue of treadle, or has the name of one"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_prefix() {
        let names = Names::default();
        assert_eq!(names.events_exchange(), "treadle.events");
        assert_eq!(names.dead_exchange(), "treadle.dead");
        let queues = Queue::ALL.map(|queue| names.queue(queue));
        assert_eq!(
            queues,
            [
                "treadle.commands",
                "treadle.actions",
                "treadle.runs",
                "treadle.training",
                "treadle.dead-letters"
            ]
        );
    }

    #[test]
    fn a_prefix_that_can_not_be_used_is_refused() {
        for prefix in ["", "amq.x", "a b", "a#", &"x".repeat(101)] {
            assert!(Names::new(prefix).is_err(), "{prefix}");
        }
        assert!(Names::new("prod.treadle-2_b").is_ok());
    }

    #[test]
    fn replies_go_to_no_queue_of_a_daemon() {
        let names = Names::new("prod.b").unwrap();
        for to in [
            "",
            &"x".repeat(256),
            "amq.rabbitmq.reply-to",
            "prod.b.commands",
            "prod.b.",
            "prod.b.replies",
            // Of the first shard, another shard, and another deployment.
            "prod.commands",
            "prod.c.runs",
            "other.dead-letters",
        ] {
            let error = names.check_reply_to(to).unwrap_err();
            assert!(
                matches!(error, BrokerError::ReplyTo { .. }),
                "{to}: {error}"
            );
        }
        for to in [
            "amq.rabbitmq.reply-to.g1h2AA5yZXBseQ==.key",
            "amq.gen-JzTY20BRgKO-HjmUJj0wLg",
            "prod.bee.replies",
            "prod.b",
            "commands",
            &"x".repeat(255),
        ] {
            assert_eq!(names.check_reply_to(to), Ok(()), "{to}");
        }
    }
}
