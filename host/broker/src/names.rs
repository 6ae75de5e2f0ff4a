//! What exchanges and queues are called.

use crate::BrokerError;

/// Longest prefix, in bytes; with what follows it, names stay far below AMQP's 255.
const PREFIX_BYTES_MAX: usize = 100;

/// A queue of the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// What the daemon is asked to do.
    Commands,
    /// What tool runners report about their actions.
    Actions,
    /// What could not be done, with the reason in a header.
    DeadLetters,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Commands, Self::Actions, Self::DeadLetters];

    /// Whether what can't be done goes to the dead letters.
    pub(crate) const fn has_dead_letters(self) -> bool {
        !matches!(self, Self::DeadLetters)
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
        let last = match queue {
            Queue::Commands => "commands",
            Queue::Actions => "actions",
            Queue::DeadLetters => "dead-letters",
        };
        format!("{}.{last}", self.prefix)
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
}
