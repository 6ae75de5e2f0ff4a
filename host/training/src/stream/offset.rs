//! Positions in a stream: events of the journal, and messages that one of them became.

use std::fmt;

/// What a client has seen: all messages of an event of the journal, or the first ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Offset {
    /// The event.
    pub(super) seq: u64,
    /// The message of it, from 0; `None` for the last one.
    pub(super) part: Option<u32>,
}

impl Offset {
    /// All messages of an event.
    pub(super) fn whole(seq: u64) -> Self {
        Self { seq, part: None }
    }

    /// Reads the id of a message.
    pub(super) fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then_some(());
        let (seq, part) = match text.split_once('.') {
            Some((seq, part)) => (seq, Some(part)),
            None => (text, None),
        };
        number(seq)?;
        number(part.unwrap_or("0"))?;
        Some(Self {
            seq: seq.parse().ok()?,
            part: part.map(str::parse).transpose().ok()?,
        })
    }

    /// The last event of the journal that is not read again.
    pub(super) fn after(self) -> u64 {
        self.seq.saturating_sub(u64::from(self.part.is_some()))
    }

    /// Whether a message comes up to here.
    pub(super) fn has(self, message: Self) -> bool {
        let place = |offset: Self| (offset.seq, offset.part.map_or(u64::MAX, u64::from));
        place(message) <= place(self)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(f, "{}.{part}", self.seq),
            None => write!(f, "{}", self.seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_they_are_written() {
        for text in ["0", "7", "18446744073709551615", "7.0", "7.4294967295"] {
            let read = Offset::read(text).map(|offset| offset.to_string());
            assert_eq!(read.as_deref(), Some(text));
        }
        for text in [
            "",
            ".",
            "7.",
            ".7",
            "+7",
            "7.+1",
            "-1",
            "7.1.1",
            "x",
            "99999999999999999999",
        ] {
            assert_eq!(Offset::read(text), None, "{text}");
        }
    }

    #[test]
    fn messages_are_in_order() {
        let offset = |text| Offset::read(text).expect("an offset");
        let order = ["6.9", "6", "7.0", "7.1", "7", "8.0"].map(offset);
        for (at, seen) in order.iter().enumerate() {
            for (other, message) in order.iter().enumerate() {
                assert_eq!(seen.has(*message), other <= at, "{seen} {message}");
            }
        }
        assert_eq!((offset("7.1").after(), offset("7").after()), (6, 7));
    }
}
