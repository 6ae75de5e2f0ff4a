//! What exchanges and queues are called.

use crate::{BrokerError, DELIVERY_LIMIT, RUN_DELIVERY_LIMIT, SHORT_BYTES_MAX};

/// Longest prefix, in bytes; with what follows it, names stay far below AMQP's 255.
const PREFIX_BYTES_MAX: usize = 100;
/// What a client names to get replies without a queue; the broker makes it a name of that client's,
/// `amq.rabbitmq.reply-to.` and more.
pub(crate) const DIRECT_REPLIES: &str = "amq.rabbitmq.reply-to";

/// A queue of the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// What the daemon is asked to do.
    Commands,
    /// What tool runners report about their actions.
    Actions,
    /// Actions that treadle is asked to run; a delivery stays unsettled while its action runs.
    Runs,
    /// What could not be done, with the reason in a header.
    DeadLetters,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Commands, Self::Actions, Self::Runs, Self::DeadLetters];

    /// Whether what can't be done goes to the dead letters.
    pub(crate) const fn has_dead_letters(self) -> bool {
        !matches!(self, Self::DeadLetters)
    }

    /// How often a message comes again before it is a dead letter.
    pub(crate) const fn delivery_limit(self) -> u32 {
        match self {
            Self::Runs => RUN_DELIVERY_LIMIT,
            Self::Commands | Self::Actions | Self::DeadLetters => DELIVERY_LIMIT,
        }
    }

    /// What the queue's name ends in.
    const fn word(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Actions => "actions",
            Self::Runs => "runs",
            Self::DeadLetters => "dead-letters",
        }
    }
}

/// What exchanges and queues are called: `<prefix>.events` and so on.
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
    /// Names that begin with a prefix.
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
            return fails("give 1 to 100 characters");
        }
        if prefix.starts_with("amq.") {
            return fails("names that begin with amq. are the broker's own; choose another");
        }
        let usable = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !prefix.chars().all(usable) {
            return fails("use letters, digits, '.', '-' and '_' alone");
        }
        Ok(Self {
            prefix: prefix.to_owned(),
        })
    }

    /// The topic exchange that all events go through.
    pub fn events_exchange(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// The exchange that dead letters go through.
    pub fn dead_exchange(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// A queue's name.
    pub fn queue(&self, queue: Queue) -> String {
        format!("{}.{}", self.prefix, queue.word())
    }

    /// Whether replies may go to a queue. The queues of the daemon and of others like it are
    /// refused: one that may only ask for runs could have the daemon write commands.
    pub(crate) fn check_reply_to(&self, to: &str) -> Result<(), BrokerError> {
        let fails = |cause: String| Err(BrokerError::ReplyTo { cause });
        if to.is_empty() || to.len() > SHORT_BYTES_MAX {
            return fails(format!("it has {} bytes", to.len()));
        }
        if to == DIRECT_REPLIES {
            return fails(format!(
                "{to} was not made a name of one client by the broker"
            ));
        }
        let is_below = to
            .strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.starts_with('.'));
        let last = to.rsplit('.').next().filter(|last| last.len() < to.len());
        let is_like_own = Queue::ALL.iter().any(|queue| last == Some(queue.word()));
        if is_below || is_like_own {
            return fails(format!("{to} is a queue of treadle, or named like one"));
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
            // Of the first shard, another shard, another deployment.
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
