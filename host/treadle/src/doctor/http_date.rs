//! Parses the times of HTTP's `Date` header.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Unix time, in seconds, of a text such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn seconds_of(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut time = words.next()?.split(':').map(str::parse::<u64>);
    let mut next = || time.next()?.ok();
    let (hour, minute, second) = (next()?, next()?, next()?);
    if words.next() != Some("GMT") || year < 1970 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1 January 1970 to a day. Years are taken to begin in March, so that the leap day is the
/// last of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    // 1 March of the year 0 is 719,468 days before 1970.
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Fri, 01 Jan 2100 00:00:00 GMT", Some(4_102_444_800)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("1994-11-06T08:49:37Z", None),
            ("", None),
        ] {
            assert_eq!(seconds_of(text), seconds, "{text}");
        }
    }
}
