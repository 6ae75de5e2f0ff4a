//! Parses times on the command line.

use super::runs::unix_us;

const SECOND_US: u64 = 1_000_000;
const DAY_S: u64 = 86_400;
/// Years that a date may have: those of the journal's clock.
const YEARS: std::ops::RangeInclusive<u64> = 1970..=9999;

/// Parses a time into microseconds since 1970: a date in UTC such as `2026-11-22` or
/// `2026-11-22T08:30`, or an age such as `8h`, `30m`, `90s` or `2d`.
pub(super) fn parse_time_us(text: &str) -> Result<u64, String> {
    let us = ago_us(text, unix_us()).or_else(|| date_us(text));
    us.ok_or_else(|| {
        "write a date in UTC such as 2026-11-22 or 2026-11-22T08:30, or an age such as 8h or 30m"
            .to_owned()
    })
}

fn ago_us(text: &str, now_us: u64) -> Option<u64> {
    let unit = text.chars().last()?;
    let unit_s = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => DAY_S,
        _ => return None,
    };
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let ago_us = count.checked_mul(unit_s)?.checked_mul(SECOND_US)?;
    now_us.checked_sub(ago_us)
}

fn date_us(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "0:0"));
    let [year, month, day] = numbers(date, '-')?[..] else {
        return None;
    };
    let (hour, minute, second) = match numbers(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_date = YEARS.contains(&year) && (1..=12).contains(&month) && day >= 1;
    let is_time = hour < 24 && minute < 60 && second < 60;
    if !is_date || !is_time || day > days_of(year, month) {
        return None;
    }
    let years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    let days = years + months + day - 1;
    Some((days * DAY_S + hour * 3_600 + minute * 60 + second) * SECOND_US)
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let parts = text.split(between);
    parts.map(|part| part.parse().ok()).collect()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar_and_spans_count_back() {
        let at = |text: &str| parse_time_us(text).map(|us| us / SECOND_US);
        assert_eq!(at("1970-01-02"), Ok(86_400));
        assert_eq!(at("2026-11-22T08:30"), Ok(1_795_336_200));
        assert_eq!(at("2024-02-29 23:59:59"), Ok(1_709_251_199));
        assert_eq!(at("2024-02-29T23:59:59Z"), Ok(1_709_251_199));
        let now = 1_000_000 * SECOND_US;
        assert_eq!(ago_us("2h", now), Some((1_000_000 - 7_200) * SECOND_US));
        assert_eq!(ago_us("1d", now), Some((1_000_000 - 86_400) * SECOND_US));
        for wrong in [
            "",
            "h",
            "8",
            "8w",
            "2023-02-29",
            "2026-13-01",
            "2026-1-1T24:00",
            "1-1-1",
        ] {
            assert!(parse_time_us(wrong).is_err(), "{wrong}");
        }
    }
}
