//! Reading Prometheus' text format.

/// One line of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The text between the braces, empty where there are none.
    labels: &'a str,
    /// The value; finite.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label, its escapes resolved.
    pub fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
            if key.trim_matches([' ', '\t', ',']) == name {
                return Some(value);
            }
            rest = after;
        }
    }
}

/// The samples of one metric, in their order. Non-finite values are skipped.
pub fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = Sample<'a>> {
    text.lines().filter_map(move |line| sample(line, name))
}

/// The lines of one rank of data parallelism, whose number is in this label, and those without it.
pub fn of_rank(text: &str, label: &str, rank: u32) -> String {
    let (any, own) = (format!("{label}=\""), format!("{label}=\"{rank}\""));
    let lines = text.lines();
    let kept = lines.filter(|line| !line.contains(&any) || line.contains(&own));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// A metric summed over its label sets; `None` where it is absent.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    samples(text, name)
        .map(|sample| sample.value)
        .reduce(|a, b| a + b)
}

/// The mean of a metric over its label sets, for shares; `None` where it is absent.
pub fn mean(text: &str, name: &str) -> Option<f64> {
    let count = samples(text, name).count();
    metric(text, name).map(|sum| sum / count as f64)
}

/// A label of the first sample of a metric that has it.
pub fn label(text: &str, name: &str, label: &str) -> Option<String> {
    samples(text, name).find_map(|sample| sample.label(label))
}

/// A metric as a count; `None` where it is absent or negative.
pub(super) fn count(text: &str, name: &str) -> Option<u64> {
    metric(text, name)
        .filter(|value| *value >= 0.0)
        .map(|value| value.round() as u64)
}

fn sample<'a>(line: &'a str, name: &str) -> Option<Sample<'a>> {
    let rest = line.trim_start().strip_prefix(name)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end = end_of_labels(inner)?;
            (&inner[..end], &inner[end + 1..])
        }
        None => ("", rest.strip_prefix([' ', '\t'])?),
    };
    // A timestamp may follow the value.
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(Sample { labels, value })
}

/// The position of the closing brace, ignoring those within quoted values.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The text up to the closing quote with its escapes resolved, and what follows the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = r#"# HELP a:b_total Something {x="1"} 5
# TYPE a:b_total counter
a:b_total{engine="0",model="m}\"x, y=\\"} 2.5
a:b_total{ engine = "1" , note="é" } 1e1 1700000000
a:b_total_created{engine="0"} 99
a:b 7
a:nan{x="1"} NaN
a:inf +Inf
a:broken{x="1" 5
a:empty{} 3
"#;

    #[test]
    fn metrics_are_summed() {
        assert_eq!(metric(TEXT, "a:b_total"), Some(12.5));
        assert_eq!(mean(TEXT, "a:b_total"), Some(6.25));
        assert_eq!(metric(TEXT, "a:b"), Some(7.0));
        assert_eq!(metric(TEXT, "a:empty"), Some(3.0));
        for absent in ["a:nan", "a:inf", "a:broken", "a:", "b_total", "a:b_tot"] {
            assert_eq!(metric(TEXT, absent), None, "{absent}");
        }
    }

    #[test]
    fn labels_are_found() {
        let of = |name: &str| label(TEXT, "a:b_total", name);
        assert_eq!(of("engine").as_deref(), Some("0"));
        assert_eq!(of("model").as_deref(), Some("m}\"x, y=\\"));
        assert_eq!(of("note").as_deref(), Some("é"));
        assert_eq!(of("y"), None);
        assert_eq!(of("odel"), None);
    }

    proptest! {
        #[test]
        fn any_label_value_comes_back(value in "\\PC{0,20}|[\"\\\\\n{}=,]{0,8}", number in -1e6_f64..1e6) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let text = format!("m{{a=\"1\",b=\"{escaped}\",c=\"2\"}} {number}\n");
            prop_assert_eq!(label(&text, "m", "b"), Some(value));
            prop_assert_eq!(label(&text, "m", "c"), Some("2".to_owned()));
            prop_assert_eq!(metric(&text, "m"), Some(number));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(m|\\{|\\}|\"|\\\\|=|,| |a|é|1|\n){0,30}") {
            let _ = metric(&text, "m");
            let _ = label(&text, "m", "a");
        }
    }
}
