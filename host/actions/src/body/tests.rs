//! Descriptions that are read, and those that are refused.

use super::*;

fn refusal(json: &str) -> String {
    ActionBody::parse(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn the_four_forms_are_read() {
    let parse = |json: &str| ActionBody::parse(json.as_bytes()).unwrap();
    let all = parse(r#"{"command": ["pytest","-q"], "stdin": "x", "env": {"A":"b"}, "cwd": "/w"}"#);
    let ActionBody::Process(process) = &all else {
        panic!("{all:?}");
    };
    assert_eq!(process.command, ["pytest", "-q"]);
    assert_eq!(
        (process.stdin.as_str(), process.cwd.as_deref()),
        ("x", Some("/w"))
    );
    let shell = parse(r#"{"shell": "echo $A"}"#);
    let ActionBody::Process(process) = &shell else {
        panic!("{shell:?}");
    };
    assert_eq!(process.command, ["sh", "-c", "echo $A"]);
    let request = parse(
        r#"{"http": {"method":"POST","url":"http://h:80/a?b=c","headers":{"X-A":"1"},"timeout_s":3}}"#,
    );
    let ActionBody::Http(http) = &request else {
        panic!("{request:?}");
    };
    assert_eq!(
        (http.base.as_str(), http.path_and_query.as_str()),
        ("http://h:80", "/a?b=c")
    );
    assert_eq!(http.headers["x-a"], "1");
    let service = parse(r#"{"service":"judge-7b","http":{"url":"/score"}}"#);
    assert_eq!(service.kind(), "service");
}

#[test]
fn the_digest_is_of_what_it_means() {
    let digest = |json: &str| ActionBody::parse(json.as_bytes()).unwrap().digest();
    let one = digest(r#"{"command":["a"],"env":{"X":"1","Y":"2"}}"#);
    assert_eq!(one.len(), 64);
    assert_eq!(
        one,
        digest(r#"{ "env": {"Y":"2","X":"1"}, "stdin": "", "command": ["a"] }"#)
    );
    assert_ne!(one, digest(r#"{"command":["a"],"env":{"X":"1"}}"#));
    assert_eq!(
        digest(r#"{"shell":"a"}"#),
        digest(r#"{"command":["sh","-c","a"]}"#)
    );
}

#[test]
fn refusals_name_the_field_and_the_remedy() {
    for (json, told) in [
        ("7", "`body` can't be read"),
        ("{}", "`body` must have exactly one of"),
        (r#"{"command":["a"]} x"#, "`body` is not one JSON object"),
        (r#"{"command":[]}"#, "`command` is empty; name a program"),
        (r#"{"command":[""]}"#, "`command` is empty"),
        (
            r#"{"command":["a\u0000"]}"#,
            "`command[0]` holds a NUL byte",
        ),
        (r#"{"command":["a",7]}"#, "`command[1]` can't be read"),
        (r#"{"shell":" "}"#, "`shell` is empty"),
        (
            r#"{"shell":"a","command":["a"]}"#,
            "`body` must have exactly one",
        ),
        (
            r#"{"shell":"a","colour":1}"#,
            "`colour` is not known; leave it out",
        ),
        (r#"{"shell":"a","env":{"A=":"b"}}"#, "`env.A=` is no name"),
        (
            r#"{"shell":"a","env":{"TREADLE_X":"b"}}"#,
            "`env.TREADLE_X` is set by treadle",
        ),
        (
            r#"{"shell":"a","env":{"A":"\u0000"}}"#,
            "`env.A` holds a NUL byte",
        ),
        (r#"{"shell":"a","cwd":""}"#, "`cwd` is empty"),
        (
            r#"{"shell":"a","service":"s"}"#,
            "`service` goes with `http`",
        ),
        (
            r#"{"http":{"method":"GET"}}"#,
            "`http.url` is missing; send it",
        ),
        (r#"{"http":{"url":"/a"}}"#, "`http.url` can't be used"),
        (
            r#"{"http":{"url":"ftp://h/a"}}"#,
            "`http.url` can't be used",
        ),
        (
            r#"{"http":{"url":"http://u:p@h/a"}}"#,
            "`http.url` can't be used",
        ),
        (
            r#"{"http":{"url":"http://h/","method":"BREW"}}"#,
            "`http.method` is no method",
        ),
        (
            r#"{"http":{"url":"http://h/","hue":1}}"#,
            "`http.hue` is not known",
        ),
        (
            r#"{"http":{"url":"http://h/","timeout_s":0}}"#,
            "`http.timeout_s` is 0",
        ),
        (
            r#"{"http":{"url":"http://h/","headers":{"Host":"x"}}}"#,
            "`http.headers.Host` is set",
        ),
        (
            r#"{"http":{"url":"http://h/","headers":{"a":"\n"}}}"#,
            "`http.headers.a` is no header",
        ),
        (
            r#"{"http":{"url":"http://h/"},"cwd":"/"}"#,
            "`cwd` is of processes",
        ),
        (
            r#"{"service":"s","http":{"url":"http://h/"}}"#,
            "`http.url` is no path",
        ),
        (
            r#"{"service":"s","http":{"url":"//h/"}}"#,
            "`http.url` is no path",
        ),
        (
            r#"{"service":"s /","http":{"url":"/"}}"#,
            "`service` is no name",
        ),
    ] {
        let refused = refusal(json);
        assert!(refused.starts_with(told), "{json}: {refused}");
    }
}

#[test]
fn bounds_hold_at_their_edges() {
    let stdin = |bytes: usize| format!(r#"{{"shell":"a","stdin":"{}"}}"#, "x".repeat(bytes));
    assert!(ActionBody::parse(stdin(STDIN_BYTES_MAX).as_bytes()).is_ok());
    assert_eq!(
        refusal(&stdin(100_000_000)),
        "`stdin` has 100000000 bytes, and may have 1048576; have the action read a file or fetch \
         what it needs"
    );
    let words = |count: usize| {
        let words = vec!["\"a\""; count].join(",");
        format!(r#"{{"command":[{words}]}}"#)
    };
    assert!(ActionBody::parse(words(ARGS_MAX).as_bytes()).is_ok());
    assert!(refusal(&words(ARGS_MAX + 1)).starts_with("`command` has 4097 words"));
    let word = format!(r#"{{"command":["a","{}"]}}"#, "x".repeat(ARG_BYTES_MAX + 1));
    assert!(refusal(&word).starts_with("`command[1]` has 131072 bytes"));
    let env: Vec<String> = (0..=ENV_MAX).map(|n| format!("\"V{n}\":\"\"")).collect();
    let env = format!(r#"{{"shell":"a","env":{{{}}}}}"#, env.join(","));
    assert!(refusal(&env).starts_with("`env` has 257 variables"));
}
