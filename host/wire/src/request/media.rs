//! Media that a request references by URL, which the engine fetches. References to the engine's own
//! files and private network are refused.

use super::fields::invalid;
use super::places::Place;
use crate::error::RequestError;

/// Most hosts in one request.
const HOSTS_MAX: usize = 64;
/// A text of this length is too long for a path.
const PATH_BYTES_MAX: usize = 4_096;
/// Beginnings of files in base64: JPEG, PNG, GIF, RIFF (WebP, WAV, AVI), BMP, TIFF, MP4 and its
/// kin, Matroska, Ogg, MP3, FLAC, PDF. No path begins like this.
const MAGIC: &[&str] = &[
    "/9j/",
    "iVBORw0KGgo",
    "R0lGOD",
    "UklGR",
    "Qk0",
    "SUkqA",
    "TU0AK",
    "AAAA",
    "GkXfo",
    "T2dnUw",
    "SUQz",
    "//uQ",
    "//vQ",
    "//uU",
    "//tQ",
    "ZkxhQ",
    "JVBERi0",
];

/// How an engine handles a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Media {
    /// It fetches a URL, or decodes the data in the field.
    Fetched(&'static str),
    /// Anthropic's `source`: of its fields only the URL is fetched.
    Source,
    /// It only decodes the data in the field.
    Held(&'static str),
    /// It calls a tool server.
    Server,
    /// It reads a file.
    Path,
}

/// A host that one field would have the engine contact.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Target {
    field: &'static str,
    host: Result<Box<str>, &'static str>,
}

/// URLs that a request would have its engine fetch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MediaTargets {
    targets: Vec<Target>,
}

impl Media {
    /// The kind of media of a field in a prompt's part.
    pub(super) fn named(field: &str) -> Option<Self> {
        const FETCHED: [&str; 13] = [
            "image_url",
            "video_url",
            "audio_url",
            "file_url",
            "image",
            "video",
            "audio",
            "images",
            "videos",
            "audios",
            "image_data",
            "video_data",
            "audio_data",
        ];
        match field {
            "source" => Some(Self::Source),
            "path" => Some(Self::Path),
            "input_audio" => Some(Self::Held("input_audio")),
            "file" | "input_file" => Some(Self::Held("file")),
            _ => {
                let known = FETCHED.iter().find(|known| **known == field);
                let known = known.map(|known| Self::Fetched(known));
                known.or_else(|| is_url(field).then_some(Self::Fetched("url")))
            }
        }
    }

    /// The place of a field's value within it.
    pub(super) fn within(self, field: &str) -> Place {
        let is_url = is_url(field);
        let is_fetched = is_url || matches!(field, "image" | "video" | "audio" | "path" | "file");
        match (self, field) {
            (Self::Source, "url") => Place::Media(Self::Fetched("source.url")),
            (Self::Source, "content") => Place::Prompt,
            (Self::Server, "url") | (Self::Held(_), "data" | "file_data") => Place::Media(self),
            (Self::Held(_), "path") => Place::Media(Self::Path),
            (Self::Held(name), _) if is_url => Place::Media(Self::Fetched(name)),
            (Self::Fetched(name), "data" | "base64") => Place::Media(Self::Held(name)),
            (Self::Fetched(_), _) if is_fetched => Place::Media(self),
            _ => Place::Data,
        }
    }
}

impl MediaTargets {
    /// Records the target of a text in this place.
    pub(super) fn add(&mut self, media: Media, text: &str) -> Result<(), RequestError> {
        let (field, host) = match media {
            Media::Source => return Ok(()),
            Media::Held(field) => (field, held(text)),
            Media::Fetched(field) => (field, host_of(text)),
            Media::Server => ("server_url", host_of(text)),
            Media::Path => ("path", Err("it is a path")),
        };
        let Some(host) = host.transpose() else {
            return Ok(());
        };
        let target = Target { field, host };
        if self.targets.contains(&target) {
            return Ok(());
        }
        if self.targets.len() == HOSTS_MAX {
            let expected = format!("from at most {HOSTS_MAX} hosts in one request");
            return Err(invalid(field, &expected));
        }
        self.targets.push(target);
        Ok(())
    }

    /// Checks that an engine may fetch all of them. `is_public` returns why a host is refused.
    /// Fields in `passed`, which the operator allows, are not checked with a single tenant.
    ///
    /// # Errors
    ///
    /// `invalid_field` with the first that it may not.
    pub fn check(
        &self,
        passed: &[String],
        tenant_is_alone: bool,
        is_public: impl Fn(&str) -> Result<(), &'static str>,
    ) -> Result<(), RequestError> {
        for Target { field, host } in &self.targets {
            if tenant_is_alone && passed.iter().any(|name| name == field) {
                continue;
            }
            let refused = match host {
                Ok(host) => is_public(host).err(),
                Err(why) => Some(*why),
            };
            if let Some(why) = refused {
                let mut error = invalid(field, "");
                error.message = format!(
                    "`{field}` could make the engine read from its own machine or network: {why}; \
                     send the data itself or a public URL (with a single tenant, an operator can \
                     allow it in engines.pass_fields)"
                );
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether a field of this name holds a URL.
fn is_url(field: &str) -> bool {
    field == "url" || field.ends_with("_url")
}

/// Checks a text that must be data: a URL is refused even though engines should only decode it.
fn held(text: &str) -> Result<Option<Box<str>>, &'static str> {
    let is_data = scheme(text).is_none_or(|(scheme, _)| scheme.eq_ignore_ascii_case("data"));
    if is_data {
        Ok(None)
    } else {
        Err("it is a URL instead of data")
    }
}

/// The host that an engine would contact for a text; `None` if the text is the data itself.
fn host_of(text: &str) -> Result<Option<Box<str>>, &'static str> {
    // Python's parser of URLs drops these.
    let text = text.trim_start_matches(|c: char| c <= ' ');
    if text.is_empty() {
        return Ok(None);
    }
    let Some((scheme, rest)) = scheme(text) else {
        let is_known = || MAGIC.iter().any(|magic| text.starts_with(magic));
        let mut head = text.bytes().take(PATH_BYTES_MAX);
        return if head.all(is_base64) && (text.len() > PATH_BYTES_MAX || is_known()) {
            Ok(None)
        } else {
            Err("it is neither data nor a URL, so it may be a path")
        };
    };
    if scheme.eq_ignore_ascii_case("data") {
        return Ok(None);
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err("its scheme is not data, http or https");
    }
    let rest = rest.strip_prefix("//").ok_or("it is not a complete URL")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let is_plain = |c: char| c > ' ' && c != '\\' && c != '@' && c != '%' && c != '\u{7f}';
    if !authority.chars().all(is_plain) {
        return Err("its host is ambiguous");
    }
    let host = match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
        _ => authority,
    };
    if host.is_empty() {
        return Err("it has no host");
    }
    Ok(Some(host.to_ascii_lowercase().into()))
}

/// The scheme of a URL, and what follows its colon.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
        // Some readers drop these.
        || byte <= b' '
    };
    let is_short = (1..=32).contains(&scheme.len());
    (is_short && scheme.bytes().all(is_scheme)).then_some((scheme, rest))
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_every_reader_of_urls_takes_for_it() {
        for (text, host) in [
            ("https://Images.example/a.png?b#c", Some("images.example")),
            ("http://127.0.0.1:8000/x", Some("127.0.0.1")),
            ("\n http://[::1]:80/x", Some("[::1]")),
            ("http://[::1]", Some("[::1]")),
            ("HTTP://h", Some("h")),
            ("data:image/png;base64,AAAA", None),
            ("DATA:,x", None),
            ("iVBORw0KGgoAAAANSUhEUg==", None),
            ("/9j/4AAQSkZJRg", None),
            ("", None),
        ] {
            assert_eq!(host_of(text), Ok(host.map(Box::from)), "{text}");
        }
        for bad in [
            "file:///etc/passwd",
            "FILE:/etc/passwd",
            "fi\nle:///etc/passwd",
            "/etc/passwd",
            "/dev/zero",
            "x.png",
            "../x.png",
            "/9j/../../etc/passwd",
            "~/x.jpg",
            "ftp://h/x",
            "s3://bucket/x",
            "c:\\x.png",
            "http:/h/x",
            "http:h",
            "http:\\\\h",
            "http:///x",
            "http://a@127.0.0.1/",
            "http://a\\@b/",
            "http://127.0.0.1%2f@b/",
            "http://a\tb/",
        ] {
            assert!(host_of(bad).is_err(), "{bad}");
        }
        let long = "/dev/zero".to_owned() + &"/".repeat(PATH_BYTES_MAX);
        assert_eq!(host_of(&long), Ok(None), "no path is so long");
    }

    #[test]
    fn data_are_no_urls() {
        for good in ["UklGRg==", "data:audio/wav;base64,AA", "plain"] {
            assert_eq!(held(good), Ok(None), "{good}");
        }
        for bad in ["file:///etc/passwd", "http://127.0.0.1/", " https://h"] {
            assert!(held(bad).is_err(), "{bad}");
        }
    }
}
