//! A linear scan of a body before it is parsed: nesting depth, duplicate names, names within fields
//! of settings, and media that the engine would fetch.
//!
//! Parsers differ in which of two equal names counts, and some crash on deep nesting, so neither
//! may reach an engine. The scan only needs memory for open objects; malformed JSON is left to the
//! parser.

use super::engine_fields::ForeignFields;
use super::fields::invalid;
use super::media::MediaTargets;
use super::places::Place;
use crate::error::{ErrorCode, RequestError};
use memchr::memchr2;
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64;

/// Deepest nesting of lists and objects, which is the limit of the parsers of requests.
pub const LEVELS_MAX: usize = 127;
/// Most names of all open objects.
const NAMES_MAX: usize = 1 << 17;
/// Objects up to this size are searched linearly for a name.
const FEW_NAMES: usize = 12;
/// Most outputs of one request.
const OUTPUTS_MAX: u64 = 128;
/// Characters of a name that an error shows, at most.
const SHOWN_CHARS_MAX: usize = 100;

/// The result of the scan.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Names within fields that are only sent to engines if the operator allows them.
    pub(super) foreign: ForeignFields,
    /// URLs that its engine would fetch.
    pub(super) media: MediaTargets,
}

/// A list or an object that is not closed yet.
struct Level {
    is_object: bool,
    /// Index of its first name among those of all open objects.
    names_from: usize,
    place: Place,
    /// The path to it, if its names are checked.
    path: Cow<'static, str>,
}

/// A name of an open object.
#[derive(Clone, Copy)]
struct Name {
    hash: u64,
    /// Where its text begins, after the quote.
    at: usize,
}

struct Look<'a> {
    text: &'a str,
    at: usize,
    levels: Vec<Level>,
    names: Vec<Name>,
    /// Whether a following string is a name.
    names_next: bool,
    /// The place of the value of the latest name.
    next: (Place, Cow<'static, str>),
    found: Form,
}

/// Scans a body whose outermost names are those of `place`.
pub(super) fn look_at(text: &str, place: Place) -> Result<Form, RequestError> {
    let mut look = Look {
        text,
        at: 0,
        levels: Vec::new(),
        names: Vec::new(),
        names_next: false,
        next: (place, Cow::Borrowed("")),
        found: Form::default(),
    };
    look.through()?;
    Ok(look.found)
}

impl<'a> Look<'a> {
    fn through(&mut self) -> Result<(), RequestError> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'"' => {
                    let Some((raw, has_escapes)) = self.rest_of_text() else {
                        return Ok(());
                    };
                    if self.names_next {
                        self.name(raw, has_escapes)?;
                    } else {
                        self.value(raw, has_escapes)?;
                    }
                }
                b'{' => self.open(true)?,
                b'[' => self.open(false)?,
                b'}' | b']' => self.close()?,
                b',' => self.names_next = self.levels.last().is_some_and(|level| level.is_object),
                _ => {}
            }
        }
        Ok(())
    }

    /// The string up to its closing quote, and whether it has escapes; `None` if it is
    /// unterminated.
    fn rest_of_text(&mut self) -> Option<(&'a str, bool)> {
        let bytes = self.text.as_bytes();
        let begin = self.at;
        let mut has_escapes = false;
        loop {
            let found = memchr2(b'"', b'\\', bytes.get(self.at..)?)?;
            self.at += found + 1;
            if bytes[self.at - 1] == b'"' {
                return Some((&self.text[begin..self.at - 1], has_escapes));
            }
            has_escapes = true;
            self.at += 1;
        }
    }

    fn open(&mut self, is_object: bool) -> Result<(), RequestError> {
        if self.levels.len() == LEVELS_MAX {
            let message = format!(
                "the body nests lists and objects more than {LEVELS_MAX} levels deep; send it flatter"
            );
            return Err(malformed(message));
        }
        let (place, path) = match self.levels.last() {
            // Elements of a list have the place of the list.
            Some(list) if !list.is_object => (list.place, list.path.clone()),
            _ => (self.next.0, std::mem::take(&mut self.next.1)),
        };
        self.names_next = is_object;
        self.levels.push(Level {
            is_object,
            names_from: self.names.len(),
            place,
            path,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), RequestError> {
        self.names_next = false;
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        let own = &mut self.names[level.names_from..];
        let twice = if own.len() <= FEW_NAMES {
            let is_before = |at: usize| own[..at].iter().any(|name| name.hash == own[at].hash);
            (1..own.len()).find(|at| is_before(*at)).map(|at| own[at])
        } else {
            own.sort_unstable_by_key(|name| name.hash);
            let mut pairs = own.windows(2);
            let twice = pairs.find(|pair| pair[0].hash == pair[1].hash);
            twice.map(|pair| pair[1])
        };
        self.names.truncate(level.names_from);
        match twice {
            None => Ok(()),
            Some(name) => {
                self.at = name.at;
                let (raw, has_escapes) = self.rest_of_text().unwrap_or_default();
                let name = decoded(raw, has_escapes)?;
                let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
                let mut error = invalid(&shown, "");
                error.message =
                    format!("an object of the body has `{shown}` twice; send each name once");
                Err(error)
            }
        }
    }

    fn name(&mut self, raw: &'a str, has_escapes: bool) -> Result<(), RequestError> {
        self.names_next = false;
        let name = decoded(raw, has_escapes)?;
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        if self.names.len() == NAMES_MAX {
            let message =
                format!("the body has objects of more than {NAMES_MAX} names; send fewer");
            return Err(malformed(message));
        }
        self.names.push(Name {
            hash: xxh3_64(name.as_bytes()),
            at: raw.as_ptr().addr() - self.text.as_ptr().addr(),
        });
        if !level.place.takes(&name) {
            self.found.foreign.add(&level.path, &name);
        }
        let place = level.place.within(&name);
        self.check_shape(level, place, &name)?;
        let path = if place.has_path() {
            joined(&level.path, &name).into()
        } else {
            Cow::Borrowed("")
        };
        self.next = (place, path);
        Ok(())
    }

    /// Checks the value of the name that was just read, if it must be an object or a number of
    /// outputs: an engine may parse a text as one.
    fn check_shape(&self, level: &Level, place: Place, name: &str) -> Result<(), RequestError> {
        let is_object = matches!(place, Place::Settings(_) | Place::MediaSettings);
        let is_outputs = matches!(name, "n" | "best_of")
            && matches!(
                level.place,
                Place::Body | Place::ExtraBody | Place::Sampling
            );
        if !is_object && !is_outputs {
            return Ok(());
        }
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\n', '\r', ':']);
        let value = rest.split([',', '}', ' ', '\t', '\n', '\r']).next();
        let value = value.unwrap_or_default();
        let is_good = match value.bytes().next() {
            Some(b'{') => is_object,
            Some(b'[' | b'"' | b'-' | b't' | b'f' | b'0'..=b'9') => {
                let count = value.parse::<u64>();
                is_outputs && count.is_ok_and(|count| (1..=OUTPUTS_MAX).contains(&count))
            }
            // `null`, or left to the parser.
            _ => true,
        };
        if is_good {
            return Ok(());
        }
        let param = joined(&level.path, name);
        let outputs = format!("a whole number from 1 to {OUTPUTS_MAX}");
        let expected = if is_object {
            "an object"
        } else {
            outputs.as_str()
        };
        Err(invalid(&param, expected))
    }

    fn value(&mut self, raw: &'a str, has_escapes: bool) -> Result<(), RequestError> {
        let place = match self.levels.last() {
            Some(list) if !list.is_object => list.place,
            _ => self.next.0,
        };
        if let Place::Media(media) = place {
            let text = decoded(raw, has_escapes)?;
            self.found.media.add(media, &text)?;
        }
        Ok(())
    }
}

/// Resolves a string's escapes.
fn decoded(raw: &str, has_escapes: bool) -> Result<Cow<'_, str>, RequestError> {
    if !has_escapes {
        return Ok(Cow::Borrowed(raw));
    }
    let text = serde_json::from_str::<String>(&format!("\"{raw}\""));
    let text = text.map_err(|error| malformed(format!("the body is not JSON: {error}")))?;
    Ok(Cow::Owned(text))
}

fn joined(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    [path, dot, name].concat()
}

fn malformed(message: String) -> RequestError {
    RequestError {
        code: ErrorCode::InvalidJson,
        param: None,
        message,
    }
}
