//! One linear look at a body before anything parses it: how deep it nests, whether an object has a
//! name twice, which names are within fields that engines take settings from, and what media it has
//! its engine fetch.
//!
//! Parsers differ in which of two equal names counts, and some fall over deep nesting. So neither
//! reaches an engine. The look needs memory for open objects only; malformed JSON is left to the
//! parser that comes next.

use super::engine_fields::ForeignFields;
use super::fields::invalid;
use super::media::MediaTargets;
use super::places::Place;
use crate::error::{ErrorCode, RequestError};
use memchr::memchr2;
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64;

/// Levels of lists and objects within each other, at most: as many as the parsers of requests take.
pub const LEVELS_MAX: usize = 127;
/// Names of the objects that are open at one place, at most.
const NAMES_MAX: usize = 1 << 17;
/// Objects up to this size are searched for a name name by name.
const FEW_NAMES: usize = 12;
/// Characters of a name that an error shows, at most.
const SHOWN_CHARS_MAX: usize = 100;

/// What a look at a body found.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Names within fields that engines may be given only if the operator lets them pass.
    pub(super) foreign: ForeignFields,
    /// What its engine is to fetch.
    pub(super) media: MediaTargets,
}

/// A list or an object that is not closed yet.
struct Level {
    is_object: bool,
    /// Its first name among those of all open objects.
    names_from: usize,
    place: Place,
    /// The path to it, if its names are checked.
    path: Cow<'static, str>,
}

/// A name of an open object.
#[derive(Clone, Copy)]
struct Name {
    hash: u64,
    /// Where its text begins, behind the quote.
    at: usize,
}

struct Look<'a> {
    text: &'a str,
    at: usize,
    levels: Vec<Level>,
    names: Vec<Name>,
    /// Whether a text that comes next is a name.
    names_next: bool,
    /// Where the value behind the latest name stands.
    next: (Place, Cow<'static, str>),
    found: Form,
}

/// Looks at a body whose outermost names are those of `place`.
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

    /// The text up to its closing quote, and whether it has escapes; `None` where it has no end.
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
            // What is in a list stands where the list does.
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
        let path = if place.has_path() {
            joined(&level.path, &name).into()
        } else {
            Cow::Borrowed("")
        };
        self.next = (place, path);
        Ok(())
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

/// A text without its escapes.
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
