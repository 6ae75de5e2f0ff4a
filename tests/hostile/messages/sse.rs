//! Streams of server-sent events, from engines and to clients.

use treadle_wire::SseScanner;

use super::{Target, cuts, ensure, pieces};

/// A bound that inputs reach, so that it is tried too.
const BYTES_MAX: usize = 512;

pub(super) const TARGET: Target = Target {
    name: "sse",
    words: &[
        b"data: ",
        b"data:",
        b"data",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b": ",
        b"event: ",
        b"id: 1",
        b"retry: 3",
        b"[DONE]",
        b"\xef\xbb\xbf",
        b" ",
        b"{\"",
        b"data: [DONE]\n\n",
    ],
    check,
    accepts,
};

/// The result of scanning a stream.
#[derive(Debug, PartialEq)]
struct ScanResult {
    events: Vec<Vec<u8>>,
    failed: bool,
    ended_cleanly: bool,
    saw_done: bool,
}

impl ScanResult {
    fn text(&self) -> String {
        let texts = self
            .events
            .iter()
            .map(|event| String::from_utf8_lossy(event));
        let texts: Vec<_> = texts.collect();
        format!(
            "{texts:?} (failed: {}, ended cleanly: {}, done: {})",
            self.failed, self.ended_cleanly, self.saw_done
        )
    }
}

fn scan(pieces: &[&[u8]], bytes_max: usize) -> ScanResult {
    let mut scanner = SseScanner::new(bytes_max);
    let mut events = Vec::new();
    let mut failed = false;
    for piece in pieces {
        let fed = scanner.feed(piece, &mut |event| events.push(event.to_vec()));
        failed |= fed.is_err();
    }
    ScanResult {
        events,
        failed,
        ended_cleanly: scanner.ended_cleanly(),
        saw_done: scanner.saw_done(),
    }
}

fn accepts(stream: &[u8]) -> bool {
    let seen = scan(&[stream], usize::MAX);
    seen.ended_cleanly && !seen.events.is_empty()
}

fn check(stream: &[u8]) -> Result<(), String> {
    for bytes_max in [BYTES_MAX, usize::MAX] {
        let whole = scan(&[stream], bytes_max);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        let places = [stream.len() / 3, stream.len() / 2];
        for cut in [single, pieces(stream, &places)] {
            same(&whole, &scan(&cut, bytes_max), "in pieces")?;
        }
        for at in cuts(stream.len()) {
            let cut = scan(&pieces(stream, &[at]), bytes_max);
            same(&whole, &cut, &format!("cut at {at}"))?;
            let begun = scan(&[&stream[..at]], bytes_max);
            ensure(whole.events.starts_with(&begun.events), || {
                format!(
                    "the first {at} bytes have events that the whole has not: {}",
                    begun.text()
                )
            })?;
        }
        let longest = whole.events.iter().map(Vec::len).max().unwrap_or(0);
        ensure(longest <= bytes_max, || {
            format!("an event of {longest} bytes, where {bytes_max} are the most")
        })?;
        if bytes_max == usize::MAX && !whole.failed {
            let expected = reference(stream);
            ensure(whole.events == expected, || {
                format!("{:?} instead of {expected:?}", whole.events)
            })?;
        }
    }
    written(stream)
}

fn same(whole: &ScanResult, cut: &ScanResult, how: &str) -> Result<(), String> {
    ensure(whole == cut, || {
        format!("{how} it gives {}, as a whole {}", cut.text(), whole.text())
    })
}

/// The events of a whole stream, line by line as in the standard.
fn reference(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    while at < stream.len() {
        match stream[at] {
            b'\r' | b'\n' => {
                at += usize::from(stream[at..].starts_with(b"\r\n"));
                lines.push(Vec::new());
            }
            byte => lines
                .last_mut()
                .into_iter()
                .for_each(|line| line.push(byte)),
        }
        at += 1;
    }
    // The last one has no end.
    lines.pop();
    let (mut events, mut data) = (Vec::new(), None::<Vec<u8>>);
    for line in lines {
        if line.is_empty() {
            events.extend(data.take());
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if field == b"data" {
            data = Some(match data {
                None => value.to_vec(),
                Some(before) => [&before[..], b"\n", value].concat(),
            });
        }
    }
    events
}

/// A written event reads back equal.
fn written(bytes: &[u8]) -> Result<(), String> {
    // A carriage return can't be written in data.
    let data: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| *byte != b'\r')
        .collect();
    let lines = data.split(|byte| *byte == b'\n');
    let mut stream: Vec<u8> = lines
        .flat_map(|line| [b"data: ", line, b"\n"].concat())
        .collect();
    stream.push(b'\n');
    let read = scan(&[&stream], usize::MAX);
    ensure(read.events == [data] && read.ended_cleanly, || {
        format!("what was written as one event reads as {}", read.text())
    })
}
