//! Streams cut anywhere, against a reading of the whole.

use super::*;
use proptest::prelude::*;

/// Feeds the stream cut at these positions and gives the events.
fn events(stream: &[u8], cuts: &[usize]) -> (SseScanner, Vec<Vec<u8>>) {
    let mut scanner = SseScanner::default();
    let mut events = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.push(0);
    cuts.push(stream.len());
    cuts.sort_unstable();
    for pair in cuts.windows(2) {
        let fed = scanner.feed(&stream[pair[0]..pair[1]], &mut |event| {
            events.push(event.to_vec());
        });
        fed.unwrap();
    }
    (scanner, events)
}

fn texts(stream: &str) -> Vec<String> {
    let (_, events) = events(stream.as_bytes(), &[]);
    events
        .into_iter()
        .map(|event| String::from_utf8(event).unwrap())
        .collect()
}

#[test]
fn events_are_found() {
    assert_eq!(texts("data: {\"a\":1}\n\ndata:b\n\n"), ["{\"a\":1}", "b"]);
    assert_eq!(
        texts(": ping\n\nevent: x\r\ndata:  a\r\ndata\r\ndata: b\r\nid: 7\r\n\r\n"),
        [" a\n\nb"]
    );
    assert_eq!(texts("data: a\r\rdata: b\r\r"), ["a", "b"]);
    assert_eq!(texts("\u{feff}data: a\n\n"), ["a"]);
    assert_eq!(texts("\n\nretry: 3\n\ndatabase: x\ndata: y\n\n"), ["y"]);
    assert_eq!(texts("data:\n\n"), [""]);
    assert_eq!(texts("data: unfinished\n"), Vec::<String>::new());
}

#[test]
fn the_end_is_clean_only_between_events() {
    let clean = |stream: &str| events(stream.as_bytes(), &[]).0.ended_cleanly();
    for stream in [
        "",
        "data: a\n\n",
        ": c\n",
        "data: a\r\n\r\n",
        "data: a\r\n\r",
    ] {
        assert!(clean(stream), "{stream:?}");
    }
    for stream in [
        "d",
        "data: a",
        "data: a\n",
        "event: a\n",
        "data: a\n\ndata",
        ": c",
    ] {
        assert!(!clean(stream), "{stream:?}");
    }
}

#[test]
fn done_is_seen() {
    assert!(
        events(b"data: a\n\ndata: [DONE]\n\n", &[14, 18])
            .0
            .saw_done()
    );
    assert!(!events(b"data: \"[DONE]\"\n\n", &[]).0.saw_done());
}

#[test]
fn garbage_is_reported_at_once_and_for_good() {
    for stream in [
        "{\"error\":1}",
        "<html>",
        "datum: 1\n",
        "da\n",
        "idx",
        "HTTP/1.1",
        "\u{feff}{",
    ] {
        for size in [1, 2, 100] {
            let mut scanner = SseScanner::default();
            let fed = stream.as_bytes().chunks(size).try_for_each(|chunk| {
                scanner.feed(chunk, &mut |_| unreachable!("no event in {stream}"))
            });
            assert_eq!(fed, Err(SseError::Garbage), "{stream:?} in {size}");
            assert_eq!(
                scanner.feed(b"data: a\n\n", &mut |_| {}),
                Err(SseError::Garbage)
            );
            assert!(!scanner.ended_cleanly());
        }
    }
}

#[test]
fn an_event_has_a_bound_however_it_comes() {
    let long_line = [b"data: ".as_slice(), &[b'x'; 100], b"\n\n"].concat();
    let many_lines = b"data: xxxxxxxxx\n".repeat(10);
    for stream in [long_line, many_lines] {
        for size in [1, 7, 1000] {
            let mut scanner = SseScanner::new(64);
            let fed = stream
                .chunks(size)
                .try_for_each(|chunk| scanner.feed(chunk, &mut |_| {}));
            assert_eq!(fed, Err(SseError::EventTooLarge { bytes_max: 64 }));
        }
    }
    // A line has the same bound in one piece as in many.
    for line in [
        format!("data: {}", "x".repeat(60)),
        format!(":{}", "x".repeat(64)),
    ] {
        let stream = format!("{line}\n\n");
        for size in [1, 7, 1000] {
            let mut scanner = SseScanner::new(64);
            let fed = stream
                .as_bytes()
                .chunks(size)
                .try_for_each(|chunk| scanner.feed(chunk, &mut |_| {}));
            let expected = Err(SseError::EventTooLarge { bytes_max: 64 });
            assert_eq!(fed, expected, "{line} in pieces of {size}");
        }
    }
    let mut scanner = SseScanner::new(64);
    let many_events = b"data: xxxxxxxxx\n\n".repeat(100);
    assert_eq!(scanner.feed(&many_events, &mut |_| {}), Ok(()));
}

/// The events of a whole stream, line by line as in the standard.
fn reference(stream: &str) -> Vec<String> {
    let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut data: Option<String> = None;
    let whole_lines = stream.rfind('\n').map_or("", |end| &stream[..end]);
    for line in whole_lines
        .split('\n')
        .take(if stream.contains('\n') { usize::MAX } else { 0 })
    {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if line.is_empty() {
            events.extend(data.take());
        } else if field == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            data = Some(data.map_or(value.to_owned(), |data| format!("{data}\n{value}")));
        }
    }
    events
}

proptest! {
    #[test]
    fn it_agrees_with_a_reading_of_the_whole(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("\n"), Just("\r\n"), Just("\r"), Just("data: "), Just("data:"), Just("data"),
                Just("event: e"), Just(": c"), Just("x"), Just("\u{e9}y"), Just(" "), Just("[DONE]"),
            ], 0..40),
        cuts in proptest::collection::vec(0_usize..300, 0..12),
    ) {
        // The first line is a comment, so that nothing after it is garbage.
        let stream = format!(":\n{}", parts.concat());
        let (_, found) = events(stream.as_bytes(), &cuts);
        let found: Vec<String> = found.into_iter().map(|event| String::from_utf8(event).unwrap()).collect();
        prop_assert_eq!(found, reference(&stream));
    }
}

#[test]
fn a_stream_that_ends_early_is_ended_as_if_in_order() {
    for (stream, end, event) in [
        ("data: a", Some("\n\n"), Some("a")),
        ("data: a\n", Some("\n"), Some("a")),
        ("data: a\r\n", Some("\n"), Some("a")),
        ("data: a\r", Some("\n\n"), Some("a")),
        ("data: a\ndata: b", Some("\n\n"), Some("a\nb")),
        ("data: a\n\n", None, None),
        ("data: a\r\r", None, None),
        (": c", Some("\n\n"), None),
        ("event: e\n", Some("\n"), None),
        ("", None, None),
    ] {
        for mut scanner in [SseScanner::default(), SseScanner::observing()] {
            scanner.feed(stream.as_bytes(), &mut |_| {}).unwrap();
            let mut last = None;
            let ended = scanner.finish(&mut |event| last = Some(event.to_vec()));
            assert_eq!(ended, end.map(str::as_bytes), "{stream:?}");
            assert_eq!(last.as_deref(), event.map(str::as_bytes), "{stream:?}");
            assert!(scanner.ended_cleanly(), "{stream:?}");
            // Who reads on sees the same.
            let whole = format!("{stream}{}", end.unwrap_or_default());
            let expected = reference(&whole).last().cloned();
            let before = reference(stream).last().cloned();
            assert_eq!(expected, event.map(str::to_owned).or(before), "{stream:?}");
        }
    }
}

#[test]
fn an_observer_takes_events_of_any_size() {
    let long = "A".repeat(20 << 20);
    let first = "data: {\"a\":1}\n\n";
    let stream = format!("{first}data: {{\"b\":\"{long}\",\"c\":2}}\n\ndata: {{\"d\":3}}\n\n");
    for size in [60_000, stream.len()] {
        let (mut scanner, mut seen) = (SseScanner::observing(), Vec::new());
        for piece in stream.as_bytes().chunks(size) {
            let mut on_event = |event: &[u8]| seen.push(event.to_vec());
            scanner.feed(piece, &mut on_event).unwrap();
        }
        assert_eq!(seen.len(), 3);
        let long: serde_json::Value = serde_json::from_slice(&seen[1]).expect("it is JSON");
        assert_eq!(long["c"], 2);
        assert!(seen[1].len() < 100_000 && scanner.ended_cleanly() && !scanner.saw_unread());
    }
}

#[test]
fn an_observer_passes_over_what_it_can_not_shorten() {
    let numbers = "1,".repeat(9 << 20);
    let in_lines = "data: 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1\n".repeat(500_000);
    for long in [format!("data: [{numbers}1]\n\n"), format!("{in_lines}\n")] {
        let stream = format!("{long}data: {{\"d\":3}}\n\n");
        for size in [60_000, stream.len()] {
            let (mut scanner, mut seen) = (SseScanner::observing(), Vec::new());
            for piece in stream.as_bytes().chunks(size) {
                let mut on_event = |event: &[u8]| seen.push(event.to_vec());
                scanner.feed(piece, &mut on_event).unwrap();
            }
            assert_eq!(seen, [b"{\"d\":3}"]);
            assert!(scanner.ended_cleanly() && scanner.saw_unread());
        }
    }
}

#[test]
fn done_may_have_space_around_it() {
    let mut scanner = SseScanner::default();
    scanner.feed(b"data:  [DONE] \n\n", &mut |_| {}).unwrap();
    assert!(scanner.saw_done());
}
