//! Valid and invalid descriptions.

use super::*;

fn parse(json: &str) -> ActionBody {
    ActionBody::parse(json.as_bytes()).unwrap()
}

fn refusal(json: &str) -> String {
    ActionBody::parse(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn the_three_forms_are_read_and_written_alike() {
    let process =
        parse(r#"{"process":{"command":["pytest","-q"],"stdin":"x","env":{"A":"b"},"cwd":"/w"}}"#);
    let ActionBody::Process(body) = &process else {
        panic!("{process:?}");
    };
    assert_eq!(body.command, ["pytest", "-q"]);
    assert_eq!(
        (body.stdin.as_str(), body.cwd.as_deref()),
        ("x", Some("/w"))
    );
    let http = parse(
        r#"{"http":{"method":"POST","url":"http://h:80/a?b=c","headers":{"X-A":"1"},"quota":"q"}}"#,
    );
    let ActionBody::Http(request) = &http else {
        panic!("{http:?}");
    };
    assert_eq!(request.headers["x-a"], "1");
    let split = split_url("http.url", &request.url).unwrap();
    assert_eq!(split, ("http://h:80".to_owned(), "/a?b=c".to_owned()));
    assert_eq!((http.quota(), http.service()), (Some("q"), None));
    let service = parse(r#"{"service":{"name":"judge-7b","path":"/score"}}"#);
    assert_eq!(
        (service.quota(), service.service()),
        (None, Some("judge-7b"))
    );
    for body in [process, http, service] {
        assert_eq!(ActionBody::parse(&body.to_json()), Ok(body));
    }
}

#[test]
fn equal_descriptions_have_equal_digests() {
    let digest = |json: &str| parse(json).digest();
    let one = digest(r#"{"process":{"command":["a"],"env":{"X":"1","Y":"2"}}}"#);
    assert_eq!(one.len(), 64);
    let other = r#"{ "process": {"env":{"Y":"2","X":"1"}, "stdin": "", "command": ["a"]} }"#;
    assert_eq!(one, digest(other));
    assert_ne!(
        one,
        digest(r#"{"process":{"command":["a"],"env":{"X":"1"}}}"#)
    );
    let get = digest(r#"{"http":{"url":"http://h/"}}"#);
    let same = r#"{"http":{"url":"http://h/","method":"GET","headers":{}}}"#;
    assert_eq!(get, digest(same));
}

#[test]
fn refusals_of_a_whole_name_the_field_and_the_remedy() {
    for (json, told) in [
        ("7", "`body` can't be read"),
        ("{}", "`body` can't be read"),
        (r#"{"process":{"command":["a"]}} x"#, "`body` goes on"),
        (
            r#"{"process":{"command":["a"]},"http":{"url":"http://h/"}}"#,
            "`body` can't be read",
        ),
        (
            r#"{"shell":"a"}"#,
            "`shell` is not known; leave it out, or send",
        ),
        (r#"{"process":{}}"#, "`process.command` is missing; send it"),
        (r#"{"http":{"method":"GET"}}"#, "`http.url` is missing"),
        (
            r#"{"http":{"url":"http://h/","hue":1}}"#,
            "`http.hue` is not known; leave it out, or send",
        ),
    ] {
        let refused = refusal(json);
        assert!(refused.starts_with(told), "{json}: {refused}");
    }
    assert!(refusal("[]").ends_with("exactly one of `process`, `sandbox`, `http` and `service`"));
}

#[test]
fn refusals_of_processes_name_the_field_and_the_remedy() {
    for (fields, told) in [
        (
            r#""command":[]"#,
            "`process.command` is empty; name a program",
        ),
        (r#""command":[""]"#, "`process.command` is empty"),
        (
            r#""command":["a\u0000"]"#,
            "`process.command[0]` has a NUL byte",
        ),
        (r#""command":["a",7]"#, "`process.command[1]` can't be read"),
        (
            r#""command":["a"],"colour":1"#,
            "`process.colour` is not known",
        ),
        (
            r#""command":["a"],"env":{"A=":"b"}"#,
            "`process.env.A=` is not a valid variable name",
        ),
        (
            r#""command":["a"],"env":{"TREADLE_X":"b"}"#,
            "`process.env.TREADLE_X` is set by treadle",
        ),
        (
            r#""command":["a"],"env":{"A":"\u0000"}"#,
            "`process.env.A` has a NUL byte",
        ),
        (r#""command":["a"],"cwd":"""#, "`process.cwd` is empty"),
    ] {
        let refused = refusal(&format!("{{\"process\":{{{fields}}}}}"));
        assert!(refused.starts_with(told), "{fields}: {refused}");
    }
}

#[test]
fn refusals_of_requests_name_the_field_and_the_remedy() {
    for (fields, told) in [
        (r#""url":"/a""#, "`http.url` can't be used"),
        (r#""url":"ftp://h/a""#, "`http.url` can't be used"),
        (r#""url":"http://u:p@h/a""#, "`http.url` can't be used"),
        (r#""url":"http://h/#a""#, "`http.url` has a fragment"),
        (
            r#""url":"http://h/","method":"BREW""#,
            "`http.method` is not a supported method",
        ),
        (
            r#""url":"http://h/","quota":"a b""#,
            "`http.quota` is not a valid name",
        ),
        (
            r#""url":"http://h/","headers":{"Host":"x"}"#,
            "`http.headers.Host` is set by treadle",
        ),
        (
            r#""url":"http://h/","headers":{"a":"\n"}"#,
            "`http.headers.a` is not a valid HTTP header",
        ),
        (
            r#""url":"http://h/","headers":{"a":"1","A":"2"}"#,
            "`http.headers.a` is set twice",
        ),
    ] {
        let refused = refusal(&format!("{{\"http\":{{{fields}}}}}"));
        assert!(refused.starts_with(told), "{fields}: {refused}");
    }
    for (name, path, told) in [
        ("s", "http://h/", "`service.path` is not a valid path"),
        ("s", "//h/", "`service.path` is not a valid path"),
        ("s /", "/", "`service.name` is not a valid name"),
    ] {
        let json = format!(r#"{{"service":{{"name":"{name}","path":"{path}"}}}}"#);
        let refused = refusal(&json);
        assert!(refused.starts_with(told), "{json}: {refused}");
    }
}

#[test]
fn bounds_hold_at_their_edges() {
    let process = |fields: &str| format!("{{\"process\":{{\"command\":[\"a\"],{fields}}}}}");
    let stdin = |bytes: usize| process(&format!("\"stdin\":\"{}\"", "x".repeat(bytes)));
    parse(&stdin(STDIN_BYTES_MAX));
    assert_eq!(
        refusal(&stdin(100_000_000)),
        "`process.stdin` has 100000000 bytes, the limit is 1048576; have the action read a file or \
         fetch what it needs"
    );
    let command = |words: &str| format!("{{\"process\":{{\"command\":[{words}]}}}}");
    let words = |count: usize| command(&vec!["\"a\""; count].join(","));
    parse(&words(ARGS_MAX));
    assert!(refusal(&words(ARGS_MAX + 1)).starts_with("`process.command` has 4097 words"));
    let word = command(&format!("\"a\",\"{}\"", "x".repeat(ARG_BYTES_MAX + 1)));
    assert!(refusal(&word).starts_with("`process.command[1]` has 131072 bytes"));
    let env: Vec<String> = (0..=ENV_MAX).map(|n| format!("\"V{n}\":\"\"")).collect();
    let env = process(&format!("\"env\":{{{}}}", env.join(",")));
    assert!(refusal(&env).starts_with("`process.env` has 257 variables"));
}
