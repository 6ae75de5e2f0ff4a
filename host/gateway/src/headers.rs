//! Filters the headers and queries that reach engines. Engines and routers in front of them accept
//! control headers and parameters from any client: rank, worker, cache, logging. So a header passes
//! only if it is listed here or allowed by the operator, and a parameter only if it is listed.

use axum::http::{HeaderMap, Uri};
use treadle_auth::secret;

/// Headers that pass, in byte order.
const PASSING: &[&str] = &[
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "authorization",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-api-key",
    "x-request-id",
];
/// Parameters of queries that pass: versions of APIs.
const PASSING_IN_QUERY: &[&str] = &["api-version", "beta"];
/// Prefix of headers in `engines.pass_fields`.
const NAMED: &str = "header:";
/// Headers that control engines and routers: with several tenants they never pass.
const STEERING: &[&str] = &[
    "x-data-parallel-",
    "x-disagg-",
    "x-dynamo-",
    "x-gateway-",
    "x-override-",
    "x-routing-",
    "x-sgl-",
    "x-smg-",
    "x-vllm-",
    "x-worker-",
];
/// Suffixes of headers that control engines and routers.
const STEERING_ENDS: &[&str] = &["-rank", "-target-worker", "-routing-key", "-worker-id"];
/// Headers about the request's origin, or meant for treadle only.
const OWN: &[&str] = &[
    "cookie",
    "forwarded",
    "via",
    "x-forwarded",
    "x-real-ip",
    "x-treadle-",
];

/// The headers for engines. `passed` are those that the operator allows; `tenant_is_alone`: no
/// other tenant shares the engines.
pub(crate) fn for_engines(
    headers: &HeaderMap,
    passed: &[String],
    tenant_is_alone: bool,
) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_kept = passes(name.as_str(), passed, tenant_is_alone);
        if is_kept && !secret::is_held_in(value.as_bytes()) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The query for engines, with its question mark; empty if nothing of it passes. Engines read
/// settings from queries, too.
pub(crate) fn query_for_engines(uri: &Uri) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let pairs = uri.query().unwrap_or_default().split('&');
    let passing = pairs.filter(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((*pair, ""));
        let is_good = value.bytes().all(is_plain) && !secret::is_held_in(value.as_bytes());
        is_good && PASSING_IN_QUERY.contains(&name)
    });
    let passing = passing.collect::<Vec<_>>().join("&");
    if passing.is_empty() {
        return passing;
    }
    format!("?{passing}")
}

fn passes(name: &str, passed: &[String], tenant_is_alone: bool) -> bool {
    if PASSING.binary_search(&name).is_ok() {
        return true;
    }
    let named = passed.iter().filter_map(|field| field.strip_prefix(NAMED));
    let is_named = named
        .into_iter()
        .any(|named| named.eq_ignore_ascii_case(name));
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let steers = begins(STEERING) || STEERING_ENDS.iter().any(|end| name.ends_with(end));
    is_named && !begins(OWN) && (tenant_is_alone || !steers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(passed: &[&str], alone: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "content-type",
            "x-request-id",
            "traceparent",
            "x-data-parallel-rank",
            "x-prefill-dp-rank",
            "x-dynamo-target-worker",
            "x-smg-target-worker",
            "x-smg-routing-key",
            "x-routing-hint",
            "x-treadle-job",
            "x-treadle-tenant",
            "cookie",
            "forwarded",
            "x-forwarded-for",
            "x-team",
        ] {
            headers.append(name, "v".parse().unwrap());
        }
        headers.append("accept", "a".parse().unwrap());
        headers.append("accept", "b".parse().unwrap());
        let passed: Vec<String> = passed.iter().map(|&name| name.to_owned()).collect();
        let kept = for_engines(&headers, &passed, alone);
        let mut names: Vec<String> = kept.keys().map(ToString::to_string).collect();
        assert_eq!(kept.get_all("accept").iter().count(), 2);
        names.retain(|name| name != "accept");
        names.sort();
        names
    }

    #[test]
    fn only_listed_headers_reach_engines() {
        assert!(PASSING.is_sorted());
        let listed = [
            "authorization",
            "content-type",
            "traceparent",
            "x-request-id",
        ];
        assert_eq!(kept(&[], true), listed);
        assert_eq!(kept(&["x-team"], true), listed, "that is a field of a body");
    }

    #[test]
    fn only_versions_of_apis_pass_in_a_query() {
        let token = format!("/x?beta=tr_{}", "ab".repeat(32));
        for (uri, kept) in [
            ("/x", ""),
            ("/x?", ""),
            ("/x?beta=true", "?beta=true"),
            (
                "/x?autoload=true&api-version=2024-10-21&chat_template=y&beta=true&api_key=k",
                "?api-version=2024-10-21&beta=true",
            ),
            ("/x?api-version=a%26autoload=1", ""),
            ("/x?Beta=true&b%65ta=true", ""),
            (token.as_str(), ""),
        ] {
            assert_eq!(query_for_engines(&uri.parse().unwrap()), kept, "{uri}");
        }
    }

    #[test]
    fn no_header_with_a_token_of_treadle_passes() {
        let mut headers = HeaderMap::new();
        let value = format!("team tr_{}", "ab".repeat(32));
        for name in ["user-agent", "openai-project", "x-team"] {
            headers.append(name, value.parse().unwrap());
        }
        let kept = for_engines(&headers, &["header:x-team".to_owned()], true);
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn the_operator_lets_more_pass_and_what_steers_for_one_tenant_only() {
        let passed = [
            "header:X-Team",
            "header:x-data-parallel-rank",
            "header:x-smg-target-worker",
            "header:cookie",
            "header:x-treadle-job",
        ];
        let listed = vec![
            "authorization",
            "content-type",
            "traceparent",
            "x-request-id",
            "x-team",
        ];
        assert_eq!(kept(&passed, false), listed);
        let mut alone = listed;
        alone.extend(["x-data-parallel-rank", "x-smg-target-worker"]);
        alone.sort_unstable();
        assert_eq!(kept(&passed, true), alone);
    }
}
