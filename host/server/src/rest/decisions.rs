//! Decisions to place, pause and restore programs, with their reasons.

use super::Endpoint;
use super::plugins::{Visible, failed, visible};
use super::{recorded_first, refuse, store_failed};
use crate::app::App;
use axum::extract::State;
use axum::response::{Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{InPath, Query, optional, page_limit, sorted_by};
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;
use treadle_model::Tenant;
use treadle_policy::evaluator::Scope;
use treadle_store::{DecisionPage, DecisionRow, Order, SCANNED_ROWS_MAX, SeqPage};
use treadle_wire::{ErrorCode, without_tenant};
use utoipa::{IntoParams, ToSchema};

/// Replaces the name of another tenant's policy.
const HIDDEN: &str = "another tenant's";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/programs/{program}/decisions", VIEW, decisions)
            .around(recorded_first)
            .summary(
                "Decisions about a program: placements, pauses and restores, with their reasons",
            ),
        get("/api/v1/decisions", VIEW, all_decisions)
            .around(recorded_first)
            .summary("Decisions about all programs, sorted and filtered")
            .details(
                "A page ends after 50,000 examined decisions: if few match, it has fewer than \
                 `limit` rows, possibly none, and `next` continues from there.",
            ),
    ]
}

/// Filters and paging of a program's decisions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DecisionQuery {
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those about this worker, named as `worker` has it: w and its id, such as w0.
    worker: Option<String>,
    /// Only those at this time or later, in milliseconds on the clock of `at_us`.
    since_ms: Option<u64>,
    /// seq, or -seq for newest first; default seq.
    sort: Option<String>,
    /// Only those after this position: `next` of the previous page, with the same `sort`, or a
    /// `seq`.
    after: Option<String>,
    /// Maximum number of decisions; default 1000.
    limit: Option<u32>,
}

/// Filters and paging of all decisions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AllDecisionsQuery {
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those about this worker, named as `worker` has it: w and its id, such as w0.
    worker: Option<String>,
    /// Only those of this policy, as `policy` has it.
    policy: Option<String>,
    /// Only those about programs of this job.
    job: Option<String>,
    /// Only those at this time or later, in milliseconds on the clock of `at_us`.
    since_ms: Option<u64>,
    /// seq, or -seq for newest first; default -seq.
    sort: Option<String>,
    /// Only those after this position: `next` of the previous page, with the same `sort`, or a
    /// `seq`.
    after: Option<String>,
    /// Maximum number of decisions; default 100.
    limit: Option<u32>,
}

/// A page of decisions.
#[derive(Serialize, ToSchema)]
struct Decisions {
    /// In the order in which they were taken, or the reverse.
    decisions: Vec<DecisionView>,
    /// The `after` of the next page; absent on the last one.
    next: Option<String>,
}

/// A decision and its reasons.
#[derive(Serialize, ToSchema)]
struct DecisionView {
    /// Event that led to it.
    seq: u64,
    /// When it was taken, in microseconds on the journal's clock.
    at_us: u64,
    /// Kind of decision.
    kind: String,
    /// Program that it is about, if any.
    program_id: Option<String>,
    /// Worker that it is about, if any.
    worker: Option<String>,
    /// Policy that took it, with its version.
    policy: String,
    /// Inputs, scores and alternatives.
    #[schema(value_type = Object)]
    why: Value,
}

impl DecisionView {
    /// A decision as a tenant sees it, without the policies that it may not see; `alone` if there
    /// are no other tenants.
    fn of(tenant: &Tenant, alone: bool, policies: &Visible, mut row: DecisionRow) -> Self {
        let mut why: Value = serde_json::from_str(&row.why).unwrap_or(Value::Null);
        if !alone {
            // Alternatives may be other tenants' programs.
            if let Some(others) = why.pointer_mut("/alternatives") {
                *others = json!([]);
            }
            hide(&mut row.policy, policies);
            for who in ["/policy", "/placed_by"] {
                if let Some(Value::String(policy)) = why.pointer_mut(who) {
                    hide(policy, policies);
                }
            }
        }
        Self {
            seq: row.seq,
            at_us: row.at_us,
            kind: row.kind,
            program_id: row
                .program
                .as_deref()
                .and_then(|program| tenant.outside(program))
                .map(str::to_owned),
            worker: row.worker,
            policy: row.policy,
            why: without_tenant(tenant, why),
        }
    }
}

/// Hides the name of another tenant's policy: one question may be about programs of several
/// tenants.
fn hide(policy: &mut String, policies: &Visible) {
    if !policies.sees_ref(policy) {
        HIDDEN.clone_into(policy);
    }
}

/// Where a page ended: within the decisions of an event, which may be several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cursor {
    seq: u64,
    /// Number of that event's decisions already returned; `None` for all.
    seen: Option<usize>,
}

impl Cursor {
    /// Parses the text of `next`.
    fn read(text: &str) -> Result<Self, Response> {
        let (seq, seen) = if let Some((seq, seen)) = text.split_once('.') {
            (seq.parse(), seen.parse().map(Some))
        } else {
            (text.parse(), Ok(None))
        };
        if let (Ok(seq), Ok(seen)) = (seq, seen) {
            return Ok(Self { seq, seen });
        }
        let message = format!("`after` is `{text}`; send `next` of the previous page");
        Err(refuse(ErrorCode::InvalidField, message))
    }

    /// The text for `next`.
    fn text(self) -> String {
        format!("{}.{}", self.seq, self.seen.unwrap_or(0))
    }

    /// The cursor at the end of a page that started at `this`.
    fn moved(this: Option<Self>, rows: &[DecisionRow]) -> Option<Self> {
        let seq = rows.last()?.seq;
        let seen = rows.iter().rev().take_while(|row| row.seq == seq).count();
        let before = this.filter(|cursor| cursor.seq == seq);
        let before = before.and_then(|cursor| cursor.seen).unwrap_or(0);
        Some(Self {
            seq,
            seen: Some(seen.saturating_add(before)),
        })
    }

    /// The range to read: the rest of that event's decisions, and all after it.
    fn range(this: Option<Self>, order: Order) -> SeqPage {
        let range = SeqPage {
            order,
            ..SeqPage::default()
        };
        let Some(cursor) = this else { return range };
        let within = u64::from(cursor.seen.is_some());
        match order {
            Order::OldestFirst => SeqPage {
                after: cursor.seq.checked_sub(within),
                ..range
            },
            Order::NewestFirst => SeqPage {
                before: Some(cursor.seq.saturating_add(within)),
                ..range
            },
        }
    }

    /// How many of the first rows the previous page already had.
    fn seen_of(this: Option<Self>, rows: &[DecisionRow]) -> usize {
        let Some(cursor) = this else { return 0 };
        let seen = rows.iter().take(cursor.seen.unwrap_or(0));
        seen.take_while(|row| row.seq == cursor.seq).count()
    }
}

async fn decisions(
    State(app): State<App>,
    caller: Caller,
    InPath(program): InPath,
    Query(query): Query<DecisionQuery>,
) -> Answer<Decisions> {
    let part = Part {
        sort: query.sort.as_deref().unwrap_or("seq"),
        after: query.after.as_deref(),
        since_ms: query.since_ms,
        limit: query.limit.unwrap_or(1_000),
    };
    let page = DecisionPage {
        program: Some(caller.principal.inside(&program)),
        kind: query.kind,
        worker: query.worker,
        ..DecisionPage::default()
    };
    page_of(&app, &caller, page, &part).await
}

async fn all_decisions(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AllDecisionsQuery>,
) -> Answer<Decisions> {
    let part = Part {
        sort: query.sort.as_deref().unwrap_or("-seq"),
        after: query.after.as_deref(),
        since_ms: query.since_ms,
        limit: query.limit.unwrap_or(100),
    };
    let job = optional("job", query.job)?;
    let page = DecisionPage {
        kind: query.kind,
        worker: query.worker,
        policy: query.policy,
        job: job.map(|job| caller.principal.inside(&job)),
        names: (&caller.principal.tenant.tenant).into(),
        ..DecisionPage::default()
    };
    page_of(&app, &caller, page, &part).await
}

/// Which part of all that match.
struct Part<'q> {
    sort: &'q str,
    after: Option<&'q str>,
    since_ms: Option<u64>,
    limit: u32,
}

/// A part of the decisions that match `page`, as the caller may see them.
async fn page_of(
    app: &App,
    caller: &Caller,
    mut page: DecisionPage,
    part: &Part<'_>,
) -> Answer<Decisions> {
    let ((), ascending) = sorted_by(part.sort, &[("seq", ())])?;
    let limit = page_limit(Some(part.limit));
    let after = part.after.map(Cursor::read).transpose()?;
    let principal = &caller.principal;
    let alone = principal.root || app.auth.has_one_tenant();
    let mut policies = visible(app, caller).await?;
    if !alone {
        let bindings = app.policies.bindings().await;
        let bindings = bindings.map_err(|error| failed(&error))?;
        let everyones = bindings.iter().filter(|view| view.job == Scope::Everyone);
        everyones.for_each(|view| policies.add_ref(&view.policy.0));
    }
    if let Some(policy) = &page.policy
        && !alone
        && !policies.sees_ref(policy)
    {
        // A guessed name of another tenant's policy must not match.
        return Ok(Json(Decisions {
            decisions: Vec::new(),
            next: None,
        }));
    }
    // The event at which the previous page ended is read again.
    let again = after.and_then(|cursor| cursor.seen).unwrap_or(0);
    let asked = page_limit(Some(limit.saturating_add(again.try_into().unwrap_or(0))));
    page.range = SeqPage {
        since_us: part.since_ms.map(|ms| ms.saturating_mul(1_000)),
        limit: asked,
        ..Cursor::range(after, Order::of(ascending))
    };
    let reach = app.store.decisions_reach(&page, SCANNED_ROWS_MAX).await;
    let reach = reach.map_err(|error| store_failed(&error))?;
    if let Some(seq) = reach {
        match page.range.order {
            Order::OldestFirst => page.range.before = Some(seq.saturating_add(1)),
            Order::NewestFirst => page.range.after = Some(seq.saturating_sub(1)),
        }
    }
    let rows = app.store.decisions(&page).await;
    let mut rows = rows.map_err(|error| store_failed(&error))?;
    let is_full = rows.len() == asked as usize;
    rows.drain(..Cursor::seen_of(after, &rows));
    rows.truncate(limit as usize);
    let beyond = reach.map(|seq| seq.to_string());
    let next = Cursor::moved(after, &rows)
        .filter(|_| is_full)
        .map(Cursor::text)
        .or(beyond);
    let shown = |row| DecisionView::of(&principal.tenant.tenant, alone, &policies, row);
    Ok(Json(Decisions {
        decisions: rows.into_iter().map(shown).collect(),
        next,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_other_tenants_are_not_shown() {
        let policies = Visible {
            all: false,
            digests: vec!["abcdef0123456789".to_owned()],
        };
        let why = json!({
            "policy": "theirs@1.0.0+ffff", "placed_by": "own@1.0.0+abcdef", "alternatives": [1],
        });
        let decided = |policy: &str| DecisionRow {
            policy: policy.to_owned(),
            why: why.to_string(),
            ..row(1, "pause")
        };
        let tenant = Tenant::new("acme");
        let shown = DecisionView::of(&tenant, false, &policies, decided("theirs@1.0.0+ffff"));
        assert_eq!(shown.policy, HIDDEN);
        let expected = json!({
            "policy": HIDDEN, "placed_by": "own@1.0.0+abcdef", "alternatives": [],
        });
        assert_eq!(shown.why, expected);
        for own in ["own@1.0.0+abcdef", "lru-eviction@1.0.0+native", "built-in"] {
            let shown = DecisionView::of(&tenant, false, &policies, decided(own));
            assert_eq!(shown.policy, own);
        }
        let shown = DecisionView::of(&tenant, true, &policies, decided("theirs@1.0.0+ffff"));
        assert_eq!(
            (shown.policy.as_str(), shown.why),
            ("theirs@1.0.0+ffff", why)
        );
    }

    fn row(seq: u64, kind: &str) -> DecisionRow {
        DecisionRow {
            seq,
            at_us: seq,
            kind: kind.to_owned(),
            program: Some("p".to_owned()),
            worker: None,
            policy: "native".to_owned(),
            why: "{}".to_owned(),
        }
    }

    /// The rows of a page, from all of them in their order.
    fn read(
        all: &[DecisionRow],
        after: Option<Cursor>,
        order: Order,
        limit: usize,
    ) -> Vec<DecisionRow> {
        let range = Cursor::range(after, order);
        let rows = all
            .iter()
            .filter(|row| range.after.is_none_or(|seq| row.seq > seq));
        let rows = rows.filter(|row| range.before.is_none_or(|seq| row.seq < seq));
        let mut rows: Vec<_> = rows.cloned().collect();
        rows.drain(..Cursor::seen_of(after, &rows));
        rows.truncate(limit);
        rows
    }

    #[test]
    fn paging_gives_every_decision_once_also_those_of_one_event() {
        let seqs = [0, 0, 1, 4, 4, 4, 4, 9];
        let rising: Vec<_> = seqs
            .iter()
            .enumerate()
            .map(|(n, seq)| row(*seq, &n.to_string()))
            .collect();
        let falling: Vec<_> = rising.iter().rev().cloned().collect();
        for (all, order) in [(rising, Order::OldestFirst), (falling, Order::NewestFirst)] {
            for limit in 1..=9 {
                let (mut found, mut cursor) = (Vec::new(), None);
                loop {
                    let rows = read(&all, cursor, order, limit);
                    let Some(next) = Cursor::moved(cursor, &rows) else {
                        break;
                    };
                    cursor = Cursor::read(&next.text()).ok();
                    assert_eq!(cursor, Some(next));
                    found.extend(rows);
                }
                assert_eq!(found, all, "{order:?} {limit}");
            }
        }
        assert!(Cursor::read("4.x").is_err());
        assert_eq!(
            Cursor::range(Cursor::read("4").ok(), Order::OldestFirst).after,
            Some(4)
        );
    }
}
