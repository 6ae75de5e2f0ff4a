//! Listing sandboxes for E2B's clients.

use super::errors::refuse;
use super::view::{self, E2bDetails};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Json, Response};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use treadle_auth::Caller;
use treadle_endpoints::arguments::Query;
use treadle_endpoints::signature::Answer;
use treadle_runs::sandboxes::{Listed, SandboxApp};
use treadle_sandbox::State as Life;
use treadle_wire::ErrorCode;
use utoipa::IntoParams;

/// Default and maximum number of sandboxes per page.
const PAGE_MAX: usize = 100;
const NEXT: HeaderName = HeaderName::from_static("x-next-token");

/// Filters and paging of sandboxes.
#[derive(Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SandboxesQuery {
    /// Only those with these labels: `name=value&...`, with names and values percent-encoded, and
    /// the whole again.
    metadata: Option<String>,
    /// running, paused, or both separated by a comma; default both.
    state: Option<String>,
    /// desc, the default, or asc for oldest first.
    order: Option<String>,
    /// Only those created after this time, RFC 3339.
    started_after: Option<String>,
    /// Only those of this image.
    template: Option<String>,
    /// Sandboxes per page; default and maximum 100.
    limit: Option<usize>,
    /// The header `x-next-token` of the previous page.
    next_token: Option<String>,
}

/// Labels in a query, which clients encode three times; one encoding is already undone.
fn labels(text: &str) -> Result<Vec<(String, String)>, Response> {
    let decode = |text: &str| {
        let once = percent_decode_str(text).decode_utf8();
        once.map(std::borrow::Cow::into_owned).map_err(|_| {
            refuse(
                ErrorCode::InvalidField,
                "`metadata` is not UTF-8; percent-encode it",
            )
        })
    };
    let twice = |text: &str| decode(&text.replace('+', " ")).and_then(|once| decode(&once));
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((twice(name)?, twice(value)?))
        })
        .collect()
}

/// A UTC time without its zone suffix.
fn utc(text: &str) -> Result<&str, Response> {
    let time = text
        .strip_suffix('Z')
        .or_else(|| text.strip_suffix("+00:00"));
    let form = b"dddd-dd-ddTdd:dd:dd";
    let has_form = |time: &&str| {
        let fits = |(byte, wanted): (u8, &u8)| match wanted {
            b'd' => byte.is_ascii_digit(),
            other => byte == *other,
        };
        time.len() >= form.len() && time.bytes().zip(form).all(fits)
    };
    time.filter(has_form).ok_or_else(|| {
        let message = "`startedAfter` is not a UTC time; send one such as 2026-11-27T06:00:00Z";
        refuse(ErrorCode::InvalidField, message)
    })
}

impl SandboxesQuery {
    /// The tenant's sandboxes that match, oldest first.
    fn choose(&self, mut all: Vec<Listed>) -> Result<Vec<Listed>, Response> {
        let wanted = labels(self.metadata.as_deref().unwrap_or_default())?;
        let states = self.state.as_deref().filter(|states| !states.is_empty());
        if let Some(states) = states
            && let Some(other) = states
                .split(',')
                .find(|s| !["running", "paused"].contains(s))
        {
            return Err(refuse(
                ErrorCode::InvalidField,
                format!("`state` has {other}; send running or paused"),
            ));
        }
        let after = self.started_after.as_deref().map(utc).transpose()?;
        let (running, paused) = states.map_or((true, true), |states| {
            (states.contains("running"), states.contains("paused"))
        });
        all.retain(|listed| {
            let sandbox = &listed.status;
            let in_state = if sandbox.state == Life::Paused {
                paused
            } else {
                running
            };
            let of_owner = |(name, value): &(String, String)| {
                !name.starts_with(super::HIDDEN) && sandbox.spec.labels.get(name) == Some(value)
            };
            let of_template = self.template.as_ref().is_none_or(|wanted| {
                view::template(&sandbox.spec.image) == *wanted || sandbox.spec.image == *wanted
            });
            // Times of one zone sort as text, without the suffix.
            let created = treadle_runs::rfc3339(sandbox.created_at_us);
            let in_time = after.is_none_or(|after| created.trim_end_matches('Z') > after);
            let is_there = view::is_there(sandbox) && in_time;
            is_there && in_state && of_template && wanted.iter().all(of_owner)
        });
        match self.order.as_deref() {
            Some("asc") => {}
            None | Some("desc" | "") => all.reverse(),
            Some(other) => {
                return Err(refuse(
                    ErrorCode::InvalidField,
                    format!("`order` is {other}; send asc or desc"),
                ));
            }
        }
        Ok(all)
    }
}

async fn all_of(app: &SandboxApp, caller: &Caller) -> Result<Vec<Listed>, Response> {
    if app.nodes.is_none() {
        super::request::host(app)?;
    }
    Ok(app.list(&caller.principal.tenant.tenant).await)
}

pub(super) async fn running(
    State(app): State<SandboxApp>,
    caller: Caller,
    Query(query): Query<SandboxesQuery>,
) -> Answer<Vec<E2bDetails>> {
    let states = query.state.or_else(|| Some("running".to_owned()));
    let query = SandboxesQuery {
        state: states,
        ..query
    };
    let all = query.choose(all_of(&app, &caller).await?)?;
    Ok(Json(all.into_iter().map(E2bDetails::of).collect()))
}

pub(super) async fn page(
    State(app): State<SandboxApp>,
    caller: Caller,
    Query(query): Query<SandboxesQuery>,
) -> Result<Response, Response> {
    let all = query.choose(all_of(&app, &caller).await?)?;
    let is_rising = query.order.as_deref() == Some("asc");
    let place = |listed: &Listed| (listed.status.created_at_us, listed.status.id.clone());
    let part = Part {
        token: query.next_token.as_deref(),
        limit: query.limit,
    };
    Ok(paged(all, place, is_rising, part, E2bDetails::of))
}

/// Paging of a list.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The header `x-next-token` of the previous page.
    pub(super) token: Option<&'a str>,
    /// Maximum number of rows.
    pub(super) limit: Option<usize>,
}

/// Position of a row in its list: its creation time and its name.
type Place = (u64, String);

/// A page of rows as clients see them, and where the next one begins.
pub(super) fn paged<T, V: Serialize>(
    all: Vec<T>,
    place: impl Fn(&T) -> Place,
    is_rising: bool,
    part: Part<'_>,
    shown: impl Fn(T) -> V,
) -> Response {
    let limit = part.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    let (page, next) = cut(all, place, is_rising, part.token, limit);
    let rows: Vec<V> = page.into_iter().map(shown).collect();
    let mut response = Json(rows).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

/// A page after a token, which is the place of the last row before it, and the next token.
fn cut<T>(
    all: Vec<T>,
    place: impl Fn(&T) -> Place,
    is_rising: bool,
    token: Option<&str>,
    limit: usize,
) -> (Vec<T>, Option<String>) {
    let after = token.filter(|token| !token.is_empty()).and_then(|token| {
        let (at, id) = token.split_once('-')?;
        Some((at.parse::<u64>().ok()?, id.to_owned()))
    });
    let follows = |row: &T| {
        after.as_ref().is_none_or(|after| {
            if is_rising {
                place(row) > *after
            } else {
                place(row) < *after
            }
        })
    };
    let mut rest: Vec<T> = all.into_iter().filter(follows).collect();
    let has_more = rest.len() > limit;
    rest.truncate(limit);
    let last = rest.last().filter(|_| has_more).map(place);
    let next = last.map(|(at, id)| format!("{at}-{id}"));
    (rest, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use treadle_sandbox::{SandboxSpec, Status};

    fn status(id: &str, at: u64, state: Life, label: &str) -> Listed {
        let labels = BTreeMap::from([
            ("sp ace".to_owned(), label.to_owned()),
            ("treadle/e2b_key".to_owned(), "k".to_owned()),
        ]);
        let status = Status {
            id: id.to_owned(),
            spec: SandboxSpec {
                labels,
                image: "system".to_owned(),
                ..SandboxSpec::default()
            },
            state,
            created_at_us: at,
            age: std::time::Duration::ZERO,
            expires_at_us: None,
            memory_bytes: 0,
            disk_bytes: 0,
            commands: 0,
        };
        Listed {
            status,
            node: None,
            cores: 1,
            memory_bytes_max: 0,
            disk_bytes_max: 0,
        }
    }

    fn all() -> Vec<Listed> {
        vec![
            status("s1", 1, Life::Ready, "a&b"),
            status("s2", 2, Life::Paused, "a&b"),
            status("s3", 3, Life::Preparing, "c"),
            status("s4", 4, Life::Failed("x".into()), "a&b"),
        ]
    }

    fn ids(query: &SandboxesQuery) -> Vec<String> {
        let chosen = query.choose(all()).expect("it is fine");
        chosen.into_iter().map(|listed| listed.status.id).collect()
    }

    #[test]
    fn labels_are_encoded_three_times() {
        // `metadata=sp%252520ace%3Da%252526b` on the wire.
        let metadata = Some("sp%2520ace=a%2526b".to_owned());
        let query = SandboxesQuery {
            metadata,
            ..SandboxesQuery::default()
        };
        assert_eq!(ids(&query), ["s2", "s1"]);
        let hidden = Some("treadle/e2b_key=k".to_owned());
        assert!(
            ids(&SandboxesQuery {
                metadata: hidden,
                ..query
            })
            .is_empty()
        );
    }

    #[test]
    fn states_orders_and_images_are_chosen() {
        let of = |state: &str, order: &str, template: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            ids(&SandboxesQuery {
                state: some(state),
                order: some(order),
                template: some(template),
                ..SandboxesQuery::default()
            })
        };
        assert_eq!(of("", "", ""), ["s3", "s2", "s1"]);
        assert_eq!(of("running,paused", "asc", "base"), ["s1", "s2", "s3"]);
        assert_eq!(of("paused", "", ""), ["s2"]);
        assert!(of("", "", "other").is_empty());
        let wrong = SandboxesQuery {
            state: Some("dead".into()),
            ..SandboxesQuery::default()
        };
        assert_eq!(
            wrong.choose(all()).expect_err("no such state").status(),
            400
        );
    }

    #[test]
    fn pages_follow_each_other_whatever_is_made_meanwhile() {
        let newest_first = || all().into_iter().rev().collect::<Vec<_>>();
        let place = |listed: &Listed| (listed.status.created_at_us, listed.status.id.clone());
        let (page, next) = cut(newest_first(), place, false, None, 3);
        assert_eq!((page.len(), next.as_deref()), (3, Some("2-s2")));
        let (page, next) = cut(newest_first(), place, false, next.as_deref(), 3);
        assert_eq!(
            (page[0].status.id.as_str(), page.len(), next),
            ("s1", 1, None)
        );
    }
}
