//! Which weights sampled the tokens of a captured step.

use treadle_core::{ServedVersions, UnknownVersion, VersionBounds};
use treadle_samples::Span;
use treadle_wire::NamedSpan;

/// The versions of an output with this number of tokens: what the engine said of them, if it named
/// versions that treadle knows, else what it may have had.
///
/// # Errors
/// It is not known.
pub(super) fn spans(
    served: &ServedVersions,
    named: &[NamedSpan],
    tokens: usize,
) -> Result<Vec<Span>, UnknownVersion> {
    let span = |start: usize, end: usize, bounds: VersionBounds| Span {
        start,
        end,
        version: bounds.oldest,
        newest: bounds.newest,
    };
    let mut known = Some(Vec::new());
    for range in named {
        let bounds = served.named(&range.version)?;
        let bounds = bounds.map(|bounds| span(range.start, range.end, bounds));
        known = known.zip(bounds).map(|(mut spans, next)| {
            spans.push(next);
            spans
        });
    }
    let known = known.filter(|spans: &Vec<Span>| !spans.is_empty());
    let whole = span(0, tokens, served.bounds()?);
    Ok(known.unwrap_or_else(|| vec![whole]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_core::CapturedVersion;

    fn read(version: Option<u64>, held: &[u64], named: &[(&str, u64)]) -> CapturedVersion {
        CapturedVersion {
            version,
            held: held.to_vec(),
            named: named.iter().map(|(name, n)| ((*name).into(), *n)).collect(),
            ..CapturedVersion::default()
        }
    }

    fn rows(
        begun: CapturedVersion,
        ended: CapturedVersion,
        named: &[(usize, &str)],
    ) -> Vec<[u64; 4]> {
        let mut start = 0;
        let named = named.iter().map(|(end, name)| NamedSpan {
            start: std::mem::replace(&mut start, *end),
            end: *end,
            version: (*name).to_owned(),
        });
        let named: Vec<NamedSpan> = named.collect();
        let served = ServedVersions { begun, ended };
        let found = super::spans(&served, &named, 9).expect("it is known");
        let found = found
            .iter()
            .map(|s| [s.start as u64, s.end as u64, s.version, s.newest]);
        found.collect()
    }

    #[test]
    fn a_step_has_the_version_that_was_in_service() {
        let told = |version| read(Some(version), &[], &[]);
        assert_eq!(rows(told(3), told(3), &[]), [[0, 9, 3, 3]]);
        assert_eq!(rows(told(3), told(3), &[(9, "default")]), [[0, 9, 3, 3]]);
        assert_eq!(
            rows(told(3), told(3), &[(9, "7")]),
            [[0, 9, 3, 3]],
            "a counter of its own"
        );
        let back = ServedVersions {
            begun: read(None, &[], &[]),
            ended: told(3),
        };
        assert_eq!(super::spans(&back, &[], 9), Err(UnknownVersion::WentBack));
    }

    #[test]
    fn weights_that_changed_meanwhile_do_not_count_as_one_version() {
        let told = |version| read(Some(version), &[], &[]);
        assert_eq!(rows(told(3), told(5), &[]), [[0, 9, 3, 5]]);
        assert_eq!(rows(told(3), read(None, &[], &[]), &[]), [[0, 9, 3, 3]]);
        let named = [(4, "3"), (9, "4")];
        assert_eq!(rows(told(3), told(4), &named), [[0, 4, 3, 3], [4, 9, 4, 4]]);
        let named = [(4, "4"), (9, "5")];
        assert_eq!(
            rows(told(3), told(4), &named),
            [[0, 9, 3, 4]],
            "a counter of its own"
        );
    }

    #[test]
    fn what_treadle_loaded_is_known_of_each_engine() {
        let begun = || read(Some(3), &[3], &[("0.3", 3)]);
        // Others still serve version 3 when this one has loaded the next.
        let ended = || read(Some(3), &[4], &[("0.4", 4)]);
        assert_eq!(rows(begun(), ended(), &[]), [[0, 9, 3, 4]]);
        let named = [(4, "0.3"), (9, "0.4")];
        assert_eq!(rows(begun(), ended(), &named), [[0, 4, 3, 3], [4, 9, 3, 4]]);
        // It was rolled before the step began.
        assert_eq!(rows(ended(), ended(), &[]), [[0, 9, 3, 4]]);
        // One that was left behind has an older version than the one in service.
        assert_eq!(rows(begun(), read(Some(4), &[3], &[]), &[]), [[0, 9, 3, 3]]);
    }

    #[test]
    fn an_engine_that_names_other_weights_than_it_was_loaded_with_gives_no_sample() {
        let spans = |begun: CapturedVersion, ended: CapturedVersion, name: &str| {
            let version = name.to_owned();
            let (start, end) = (0, 9);
            let named = NamedSpan {
                start,
                end,
                version,
            };
            super::spans(&ServedVersions { begun, ended }, &[named], 9)
        };
        let loaded = || read(Some(3), &[3], &[("0.3", 3)]);
        let other = UnknownVersion::Named("default".into());
        assert_eq!(spans(loaded(), loaded(), "default"), Err(other));
        // What it came with has no name that treadle knows.
        let fresh = read(Some(0), &[], &[("0.3", 3)]);
        assert!(spans(fresh, loaded(), "default").is_ok());
        // Two versions may have come and gone while a step ran.
        let later = read(Some(5), &[5], &[("0.5", 5)]);
        let found = spans(loaded(), later, "0.4").expect("it is known");
        assert_eq!((found[0].version, found[0].newest), (4, 4));
    }

    #[test]
    fn versions_of_one_name_are_not_told_apart() {
        let read = |version| read(Some(version), &[version], &[("default", version)]);
        let found = rows(read(3), read(4), &[(9, "default")]);
        assert_eq!(found, [[0, 9, 3, 4]]);
    }
}
