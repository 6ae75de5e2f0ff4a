//! Scanning a stream of server-sent events while its bytes are relayed unchanged.

use crate::elided::Elided;
use memchr::memchr2;

/// Default limit on the bytes of one event.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest line that an observer buffers unchanged; a longer one is buffered without its long
/// strings.
const PLAIN_LINE_BYTES_MAX: usize = 1 << 20;

const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a stream is not one of server-sent events, or can't be scanned further.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SseError {
    /// The first line is neither a field of an event nor a comment.
    #[error("the engine's stream is not a stream of server-sent events")]
    Garbage,
    /// One event is longer than the bound.
    #[error("one event of the engine's stream is longer than {bytes_max} bytes")]
    EventTooLarge {
        /// The bound.
        bytes_max: usize,
    },
}

/// The state of the current event.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum EventState {
    /// Nothing but comments since the last one.
    None,
    /// Only fields other than data.
    Begun,
    /// A line of data, perhaps an empty one.
    WithData,
}

/// Finds the events in a stream that arrives in pieces of any size.
///
/// An event within one piece is passed on in place; one that spans pieces is buffered. After an
/// error every further piece returns the same error.
#[derive(Debug)]
pub struct SseScanner {
    bytes_max: usize,
    /// If set, long events are shortened instead of refused.
    observer: Option<Observer>,
    /// Used instead of `line` once that is long.
    long_line: Option<LongLine>,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    /// The data of the current event from earlier pieces.
    data: Vec<u8>,
    event: EventState,
    is_begun: bool,
    /// Whether the last byte was a carriage return, so that a line feed belongs to it.
    skip_line_feed: bool,
    saw_done: bool,
    failure: Option<SseError>,
}

/// State for events that are too long to be read.
#[derive(Clone, Copy, Debug, Default)]
struct Observer {
    /// Whether the current event is too long and is skipped.
    is_unread: bool,
    saw_unread: bool,
}

/// The beginning of a long line.
#[derive(Debug)]
struct LongLine {
    is_data: bool,
    text: Elided,
}

impl Default for SseScanner {
    fn default() -> Self {
        SseScanner::new(EVENT_BYTES_MAX)
    }
}

impl SseScanner {
    /// A scanner with a limit on the bytes of one event.
    pub fn new(bytes_max: usize) -> Self {
        SseScanner {
            bytes_max,
            observer: None,
            long_line: None,
            line: Vec::new(),
            data: Vec::new(),
            event: EventState::None,
            is_begun: false,
            skip_line_feed: false,
            saw_done: false,
            failure: None,
        }
    }

    /// A scanner that only observes JSON events: an event longer than a mebibyte is passed on
    /// without its long strings, and one that is then still longer than 16 MiB is skipped. No event
    /// is too large for it.
    pub fn observing() -> Self {
        SseScanner {
            observer: Some(Observer::default()),
            ..SseScanner::default()
        }
    }

    /// Feeds the next piece and passes on the data of each event that it completes.
    ///
    /// # Errors
    ///
    /// [`SseError`]; events before the fault have been passed on.
    pub fn feed(&mut self, chunk: &[u8], on_event: &mut dyn FnMut(&[u8])) -> Result<(), SseError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let fed = self.scan(chunk, on_event);
        self.failure = fed.err();
        fed
    }

    /// Whether the stream may end here: not in the middle of a line or an event.
    pub fn ended_cleanly(&self) -> bool {
        let is_between_lines = self.line.is_empty() && self.long_line.is_none();
        self.failure.is_none() && is_between_lines && self.event == EventState::None
    }

    /// Whether an incomplete event already has data.
    pub fn is_within_data(&self) -> bool {
        let is_long = self.long_line.as_ref().is_some_and(|long| long.is_data);
        self.event == EventState::WithData || is_long || self.line.starts_with(b"data")
    }

    /// Whether an event was skipped because it was too long.
    pub fn saw_unread(&self) -> bool {
        self.observer.is_some_and(|observer| observer.saw_unread)
    }

    /// Handles the end of the stream: passes on a last event without terminator, for servers that
    /// omit it. Returns the missing bytes of the terminator, if there is such an event.
    pub fn finish(&mut self, on_event: &mut dyn FnMut(&[u8])) -> Option<&'static [u8]> {
        if self.ended_cleanly() || self.failure.is_some() {
            return None;
        }
        let is_within_line = !self.line.is_empty() || self.long_line.is_some();
        // A line feed after a carriage return ends no line.
        let is_half = is_within_line || self.skip_line_feed;
        let end: &[u8] = if is_half { b"\n\n" } else { b"\n" };
        self.feed(end, on_event).ok()?;
        Some(end)
    }

    /// Whether `[DONE]` was seen, OpenAI's last event.
    pub fn saw_done(&self) -> bool {
        self.saw_done
    }

    fn scan(&mut self, chunk: &[u8], on_event: &mut dyn FnMut(&[u8])) -> Result<(), SseError> {
        // The only line of data of the current event, in place in this piece.
        let mut in_place: Option<&[u8]> = None;
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.skip_line_feed {
                self.skip_line_feed = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                break;
            };
            let (line, tail) = (&rest[..end], &rest[end + 1..]);
            self.skip_line_feed = rest[end] == b'\r';
            rest = tail;
            let is_short = self.long_line.is_none() && !self.is_long(line.len());
            if self.line.is_empty() && is_short {
                // The same limit as for a line that spans pieces.
                self.check_size(line.len())?;
                self.take_line(line, &mut in_place, on_event)?;
                continue;
            }
            self.keep(line)?;
            if self.long_line.is_some() {
                self.take_long_line(&mut in_place, on_event)?;
            } else {
                let whole = std::mem::take(&mut self.line);
                self.take_split_line(&whole, &mut in_place, on_event)?;
                self.line = whole;
                self.line.clear();
            }
        }
        if let Some(value) = in_place {
            self.data.extend_from_slice(value);
        }
        if !rest.is_empty() {
            self.keep(rest)?;
            if self.long_line.is_none() {
                self.check_begin()?;
            }
        }
        Ok(())
    }

    /// Adds to the incomplete line.
    fn keep(&mut self, part: &[u8]) -> Result<(), SseError> {
        if let Some(long) = &mut self.long_line {
            long.text.push(part);
        } else if self.is_long(self.line.len() + part.len()) {
            let mut text = Elided::new(self.bytes_max);
            text.push(&self.line);
            text.push(part);
            let begin = if self.line.is_empty() {
                part
            } else {
                &self.line[..]
            };
            let is_data = begin.starts_with(b"data");
            self.long_line = Some(LongLine { is_data, text });
            self.line = Vec::new();
        } else {
            self.check_size(self.line.len() + part.len())?;
            self.line.extend_from_slice(part);
        }
        Ok(())
    }

    /// Whether a line of this length is buffered without its long strings.
    fn is_long(&self, bytes: usize) -> bool {
        self.observer.is_some() && bytes > PLAIN_LINE_BYTES_MAX
    }

    fn take_long_line(
        &mut self,
        in_place: &mut Option<&[u8]>,
        on_event: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SseError> {
        let Some(long) = self.long_line.take() else {
            return Ok(());
        };
        if let Some(line) = long.text.text() {
            return self.take_split_line(line, in_place, on_event);
        }
        if let Some(observer) = self.observer.as_mut().filter(|_| long.is_data) {
            observer.is_unread = true;
            self.event = EventState::WithData;
        }
        Ok(())
    }

    /// A line that spanned pieces: its data cannot stay in place.
    fn take_split_line<'c>(
        &mut self,
        line: &[u8],
        in_place: &mut Option<&'c [u8]>,
        on_event: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SseError> {
        let mut here = None;
        if let Some(before) = in_place.take() {
            self.data.extend_from_slice(before);
        }
        self.take_line(line, &mut here, on_event)?;
        if let Some(value) = here {
            self.data.extend_from_slice(value);
        }
        Ok(())
    }

    fn take_line<'c>(
        &mut self,
        line: &'c [u8],
        in_place: &mut Option<&'c [u8]>,
        on_event: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SseError> {
        let line = self.without_mark(line);
        if line.is_empty() {
            self.end_event(in_place.take(), on_event);
            return Ok(());
        }
        if !self.is_begun {
            check_first_line(line, true)?;
            self.is_begun = true;
        }
        if line[0] == b':' {
            return Ok(());
        }
        self.event = self.event.max(EventState::Begun);
        if let Some(value) = data_of(line) {
            let before = self.data.len() + in_place.map_or(0, <[u8]>::len);
            let bytes = before + value.len() + 1;
            if let Some(observer) = &mut self.observer
                && (observer.is_unread || bytes > self.bytes_max)
            {
                observer.is_unread = true;
                self.event = EventState::WithData;
                return Ok(());
            }
            self.check_size(bytes)?;
            if self.event == EventState::WithData {
                self.data
                    .extend_from_slice(in_place.take().unwrap_or_default());
                self.data.push(b'\n');
            }
            self.event = EventState::WithData;
            self.saw_done |= value.trim_ascii() == b"[DONE]";
            *in_place = Some(value);
        }
        Ok(())
    }

    fn end_event(&mut self, in_place: Option<&[u8]>, on_event: &mut dyn FnMut(&[u8])) {
        if let Some(observer) = &mut self.observer
            && std::mem::take(&mut observer.is_unread)
        {
            observer.saw_unread = true;
        } else if self.event == EventState::WithData {
            if self.data.is_empty() {
                on_event(in_place.unwrap_or_default());
            } else {
                self.data.extend_from_slice(in_place.unwrap_or_default());
                on_event(&self.data);
            }
        }
        self.data.clear();
        self.event = EventState::None;
    }

    /// The line without the mark that a stream may begin with.
    fn without_mark<'c>(&self, line: &'c [u8]) -> &'c [u8] {
        if self.is_begun {
            return line;
        }
        line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
    }

    /// Reports garbage as early as possible, even if no line ever ends.
    fn check_begin(&self) -> Result<(), SseError> {
        if self.is_begun || BYTE_ORDER_MARK.starts_with(&self.line) {
            return Ok(());
        }
        check_first_line(self.without_mark(&self.line), false)
    }

    fn check_size(&self, bytes: usize) -> Result<(), SseError> {
        if bytes > self.bytes_max {
            return Err(SseError::EventTooLarge {
                bytes_max: self.bytes_max,
            });
        }
        Ok(())
    }
}

/// The value of a line of data.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

fn check_first_line(line: &[u8], is_whole: bool) -> Result<(), SseError> {
    let is_known = line.first().is_none_or(|byte| *byte == b':')
        || FIELDS.iter().any(|field| match line.strip_prefix(*field) {
            Some(rest) => rest.first().is_none_or(|byte| *byte == b':'),
            None => !is_whole && field.starts_with(line),
        });
    if is_known {
        Ok(())
    } else {
        Err(SseError::Garbage)
    }
}

#[cfg(test)]
mod tests;
