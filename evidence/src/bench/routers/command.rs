//! The command that starts a router, with places for what is known only then.

/// What goes in the places of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// URLs of the engines.
    pub(super) engines: &'a [String],
    /// Where the router listens.
    pub(super) port: u16,
    /// Where it may listen for something else.
    pub(super) spare_port: u16,
    /// What one engine's KV cache holds, in tokens.
    pub(super) capacity_tokens: u64,
    /// Prompt tokens that an engine computes in a scaled second.
    pub(super) prefill_tokens_per_s: f64,
    /// Scaled seconds in a real one.
    pub(super) time_scale: f64,
}

/// A command whose places are known ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommandLine(Vec<Argument>);

#[derive(Clone, Debug, PartialEq)]
enum Argument {
    /// One argument for each engine.
    Engines,
    Text(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    EnginesWithCommas,
    Port,
    SparePort,
    CapacityTokens,
    TimeScale,
    Seconds(f64),
    WholeSeconds(f64),
    /// For this number of tokens of a prompt.
    PromptSeconds(f64),
}

impl CommandLine {
    /// Reads a command. The error says what is wrong with which argument.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, String> {
        let parsed: Result<Vec<_>, _> = arguments.iter().map(|text| argument(text)).collect();
        let parsed = parsed?;
        match parsed.first() {
            Some(Argument::Text(pieces)) if !pieces.is_empty() => Ok(Self(parsed)),
            _ => Err("it has no program; give at least one".to_owned()),
        }
    }

    /// The program and its arguments.
    pub(super) fn fill(&self, places: &Places<'_>) -> Vec<String> {
        let mut filled = Vec::new();
        for argument in &self.0 {
            match argument {
                Argument::Engines => filled.extend(places.engines.iter().cloned()),
                Argument::Text(pieces) => {
                    filled.push(pieces.iter().map(|piece| piece.fill(places)).collect());
                }
            }
        }
        filled
    }
}

impl Piece {
    fn fill(&self, places: &Places<'_>) -> String {
        let real = |seconds: f64| seconds / places.time_scale;
        // Nanoseconds are enough, and routers read no long fractions.
        let short = |seconds: f64| ((real(seconds) * 1e9).round() / 1e9).to_string();
        match self {
            Self::Text(text) => text.clone(),
            Self::EnginesWithCommas => places.engines.join(","),
            Self::Port => places.port.to_string(),
            Self::SparePort => places.spare_port.to_string(),
            Self::CapacityTokens => places.capacity_tokens.to_string(),
            Self::TimeScale => places.time_scale.to_string(),
            Self::Seconds(seconds) => short(*seconds),
            Self::PromptSeconds(tokens) => short(tokens / places.prefill_tokens_per_s),
            Self::WholeSeconds(seconds) => real(*seconds).round().max(1.0).to_string(),
        }
    }

    fn named(name: &str, value: Option<f64>) -> Option<Self> {
        Some(match (name, value) {
            ("engines_csv", None) => Self::EnginesWithCommas,
            ("port", None) => Self::Port,
            ("spare_port", None) => Self::SparePort,
            ("capacity_tokens", None) => Self::CapacityTokens,
            ("time_scale", None) => Self::TimeScale,
            ("seconds", Some(seconds)) => Self::Seconds(seconds),
            ("whole_seconds", Some(seconds)) => Self::WholeSeconds(seconds),
            ("prompt_seconds", Some(tokens)) => Self::PromptSeconds(tokens),
            _ => return None,
        })
    }
}

fn argument(text: &str) -> Result<Argument, String> {
    if text == "{engines}" {
        return Ok(Argument::Engines);
    }
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find('{') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some((inner, value, length)) = place(rest) else {
            // A brace of JSON, for example.
            plain.push('{');
            rest = &rest[1..];
            continue;
        };
        let piece = Piece::named(inner, value).ok_or_else(|| {
            let found = &rest[..length];
            format!("`{text}` has the place {found}, which is not known there; leave it out")
        })?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(piece);
        rest = &rest[length..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(Argument::Text(pieces))
}

/// The place that a text begins with: its name, its number if it has one, its length.
fn place(text: &str) -> Option<(&str, Option<f64>, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let (name, value) = match inner.split_once('=') {
        Some((name, value)) => (name, Some(value.parse::<f64>().ok()?)),
        None => (inner, None),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let is_sound = value.is_none_or(|value| value.is_finite() && value >= 0.0);
    (is_name && is_sound).then_some((name, value, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(arguments: &[&str]) -> Result<Vec<String>, String> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let engines = ["http://a:1".to_owned(), "http://b:2".to_owned()];
        let places = Places {
            engines: &engines,
            port: 4_000,
            spare_port: 4_001,
            capacity_tokens: 9_600,
            prefill_tokens_per_s: 10_000.0,
            time_scale: 20.0,
        };
        Ok(CommandLine::parse(&arguments)?.fill(&places))
    }

    #[test]
    fn places_are_filled_and_other_braces_stay() {
        let filled = fill(&[
            "router",
            "{engines}",
            "--urls={engines_csv}",
            "{port}:{spare_port}",
            r#"{"tokens":{capacity_tokens},"a":{"s":{seconds=0.02}}}"#,
            "{whole_seconds=10}",
            "{whole_seconds=60}",
            "{seconds=600}x{time_scale}",
            "{prompt_seconds=1000}",
        ]);
        let expected = [
            "router",
            "http://a:1",
            "http://b:2",
            "--urls=http://a:1,http://b:2",
            "4000:4001",
            r#"{"tokens":9600,"a":{"s":0.001}}"#,
            "1",
            "3",
            "30x20",
            "0.005",
        ];
        assert_eq!(filled.unwrap(), expected);
    }

    #[test]
    fn unknown_places_are_named() {
        for (text, found) in [
            ("x{host}", "{host}"),
            ("x{engines}", "{engines}"),
            ("{seconds}", "{seconds}"),
            ("{port=1}", "{port=1}"),
        ] {
            let error = fill(&["router", text]).unwrap_err();
            assert!(error.contains(found), "{error}");
        }
        assert!(fill(&[]).unwrap_err().contains("program"));
        assert!(fill(&["{engines}"]).unwrap_err().contains("program"));
    }
}
