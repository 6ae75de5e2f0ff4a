//! The latest output of a command, and its readers' positions.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use treadle_sandbox::End;

/// Most bytes of a command's output that are kept.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;

/// An output of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// By itself or by a signal.
    Ended(End),
    /// At its deadline.
    Late,
    /// Its action was cancelled, or the daemon shuts down.
    Withdrawn,
}

/// A message for a reader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogMessage {
    /// Output of the command.
    Wrote(Way, Bytes),
    /// This many bytes of earlier output were dropped. Only ever the first message.
    LeftOut(u64),
    /// It ended. Nothing follows.
    Finished(Finish),
    /// The reader was too slow and gets no more messages.
    LeftBehind,
}

/// The latest output of a command.
#[derive(Debug)]
pub(super) struct Log {
    /// Most bytes that are kept.
    kept_max: usize,
    pieces: VecDeque<(Way, Bytes)>,
    /// The number of the first piece.
    first: u64,
    bytes: usize,
    /// Bytes that were dropped.
    dropped: u64,
    /// The next piece of each reader, and the dropped bytes to report before it.
    readers: BTreeMap<u64, (u64, Option<u64>)>,
    next_reader: u64,
    finish: Option<Finish>,
}

impl Log {
    /// A log that keeps at most this many bytes, or its newest piece.
    pub(super) fn new(kept_max: usize) -> Self {
        Self {
            kept_max,
            pieces: VecDeque::new(),
            first: 0,
            bytes: 0,
            dropped: 0,
            readers: BTreeMap::new(),
            next_reader: 0,
            finish: None,
        }
    }

    pub(super) fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Adds a reader, of the stored and all later output or only of later output.
    pub(super) fn attach(&mut self, with_before: bool) -> u64 {
        self.next_reader += 1;
        let end = self.first + self.pieces.len() as u64;
        let state = if with_before {
            (self.first, Some(self.dropped).filter(|bytes| *bytes > 0))
        } else {
            (end, None)
        };
        self.readers.insert(self.next_reader, state);
        self.next_reader
    }

    pub(super) fn detach(&mut self, reader: u64) {
        self.readers.remove(&reader);
    }

    /// Stores a piece if there is room that no reader needs. With `is_over`, readers that block it
    /// are dropped.
    pub(super) fn put(&mut self, way: Way, piece: &Bytes, is_over: bool) -> bool {
        while !self.pieces.is_empty() && self.bytes + piece.len() > self.kept_max {
            let first = self.first;
            if is_over {
                self.readers.retain(|_, (at, _)| *at > first);
            } else if self.readers.values().any(|(at, _)| *at <= first) {
                return false;
            }
            if let Some((_, dropped)) = self.pieces.pop_front() {
                self.first += 1;
                self.bytes -= dropped.len();
                self.dropped += dropped.len() as u64;
            }
        }
        self.bytes += piece.len();
        self.pieces.push_back((way, piece.clone()));
        true
    }

    pub(super) fn finish(&mut self, finish: Finish) {
        self.finish = Some(finish);
    }

    /// The next message for a reader, if there is one.
    pub(super) fn next(&mut self, reader: u64) -> Option<LogMessage> {
        let Some((at, left_out)) = self.readers.get_mut(&reader) else {
            return Some(LogMessage::LeftBehind);
        };
        if let Some(bytes) = left_out.take() {
            return Some(LogMessage::LeftOut(bytes));
        }
        let index = usize::try_from(at.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if let Some((way, bytes)) = self.pieces.get(index) {
            *at += 1;
            return Some(LogMessage::Wrote(*way, bytes.clone()));
        }
        self.finish.map(LogMessage::Finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8) -> Bytes {
        vec![byte; KEPT_BYTES_MAX / 4].into()
    }

    #[test]
    fn what_is_written_waits_for_readers_and_only_for_them() {
        let mut log = Log::new(KEPT_BYTES_MAX);
        let reader = log.attach(true);
        for byte in 0..4 {
            assert!(log.put(Way::Output, &piece(byte), false));
        }
        assert!(!log.put(Way::Output, &piece(4), false), "there is no room");
        assert_eq!(
            log.next(reader),
            Some(LogMessage::Wrote(Way::Output, piece(0)))
        );
        assert!(log.put(Way::Output, &piece(4), false), "the first was read");
        log.detach(reader);
        assert!(log.put(Way::Errors, &piece(5), false), "nobody reads");
        assert_eq!(log.bytes, KEPT_BYTES_MAX);

        let all = log.attach(true);
        let bytes = 2 * piece(0).len() as u64;
        assert_eq!(log.next(all), Some(LogMessage::LeftOut(bytes)));
        assert_eq!(
            log.next(all),
            Some(LogMessage::Wrote(Way::Output, piece(2)))
        );
        let late = log.attach(false);
        assert_eq!(log.next(late), None);
        log.finish(Finish::Late);
        assert_eq!(log.next(late), Some(LogMessage::Finished(Finish::Late)));
        assert_eq!(
            log.next(all),
            Some(LogMessage::Wrote(Way::Output, piece(3)))
        );
    }

    #[test]
    fn a_reader_that_takes_nothing_is_left_behind() {
        let mut log = Log::new(KEPT_BYTES_MAX);
        let (slow, quick) = (log.attach(true), log.attach(true));
        for byte in 0..4 {
            assert!(log.put(Way::Output, &piece(byte), false));
            assert!(log.next(quick).is_some());
        }
        assert!(!log.put(Way::Output, &piece(4), false));
        assert!(log.put(Way::Output, &piece(4), true));
        assert_eq!(log.next(slow), Some(LogMessage::LeftBehind));
        assert_eq!(
            log.next(quick),
            Some(LogMessage::Wrote(Way::Output, piece(4)))
        );
        assert_eq!(log.next(quick), None);
    }
    #[test]
    fn a_log_with_little_room_keeps_the_newest_output() {
        let mut log = Log::new(3);
        for byte in 0..9_u8 {
            assert!(log.put(Way::Output, &vec![byte].into(), false));
        }
        assert_eq!(log.bytes, 3);
        let reader = log.attach(true);
        assert_eq!(log.next(reader), Some(LogMessage::LeftOut(6)));
    }
}
