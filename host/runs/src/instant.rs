//! Times as RFC 3339, which CloudEvents and clients of E2B require.

/// Microseconds of Unix time as `2026-01-31T12:00:00.000000Z`.
pub fn rfc3339(at_us: u64) -> String {
    let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a number of days after 1 January 1970. Years are counted from March, so
/// that the leap day is the last of its year; 400 years have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // 1 March of the year 0 is 719,468 days before 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000), text);
        }
        assert_eq!(rfc3339(1_500_000), "1970-01-01T00:00:01.500000Z");
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = civil(0);
        for days in 1..80_000 {
            let (year, month, day) = civil(days);
            let is_next = (year, month, day) == (before.0, before.1, before.2 + 1)
                || day == 1 && (year, month) == (before.0, before.1 + 1)
                || (month, day) == (1, 1) && year == before.0 + 1 && before.1 == 12;
            assert!(is_next, "{before:?} {year} {month} {day}");
            assert!(day <= 31 && month <= 12);
            before = (year, month, day);
        }
    }
}
