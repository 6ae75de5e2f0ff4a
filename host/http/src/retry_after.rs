//! The `Retry-After` header (RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, header};

/// The longest accepted time.
const MAX: Duration = Duration::from_hours(24);

/// How long to wait, from seconds or a date; 0 without the header.
pub fn retry_after(headers: &HeaderMap) -> Duration {
    retry_after_at(headers, SystemTime::now())
}

fn retry_after_at(headers: &HeaderMap, now: SystemTime) -> Duration {
    let told = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let Some(told) = told.map(str::trim) else {
        return Duration::ZERO;
    };
    let wait = match told.parse::<u64>() {
        Ok(s) => Some(Duration::from_secs(s)),
        // A past date means now.
        Err(_) => httpdate::parse_http_date(told)
            .ok()
            .map(|date| date.duration_since(now).unwrap_or_default()),
    };
    wait.unwrap_or_default().min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_says_nothing() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:30 GMT").unwrap();
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after_at(&headers, now).as_millis()
        };
        assert_eq!(read("7"), 7_000);
        assert_eq!(read("0"), 0);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), 7_000);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:00 GMT"), 0);
        assert_eq!(read("99999999999"), 86_400_000);
        assert_eq!(read("-3"), 0);
        assert_eq!(read("soon"), 0);
        assert_eq!(retry_after_at(&HeaderMap::new(), now), Duration::ZERO);
    }
}
