//! Which weights sampled the tokens of a captured step.

use treadle_samples::Span;
use treadle_scheduler::CapturedVersion;
use treadle_wire::NamedSpan;

/// What its engine had when a step was sent there, and when its answer was whole.
pub(super) struct Served {
    pub(super) begun: CapturedVersion,
    pub(super) ended: CapturedVersion,
}

impl Served {
    /// The oldest version that may have sampled a token of the step, and the newest.
    ///
    /// # Errors
    /// It is not known.
    pub(super) fn bounds(&self) -> Result<(u64, u64), String> {
        let of = |read: &CapturedVersion| {
            let held = read.held.iter().copied();
            let held = held.clone().min().zip(held.max());
            held.or(read.version.map(|version| (version, version)))
        };
        let begun = of(&self.begun).zip(self.in_service());
        let ((oldest, newest), in_service) =
            begun.ok_or("the trainer went back and has not reported a version since")?;
        let ended = of(&self.ended).map_or(newest, |(_, newest)| newest);
        Ok((oldest.min(in_service), newest.max(ended)))
    }

    /// The newest version that was in service; `None` if none was at the start.
    fn in_service(&self) -> Option<u64> {
        self.begun.version?;
        self.begun.version.max(self.ended.version)
    }

    /// The versions of an output with this number of tokens: what the engine said of them, if it
    /// named versions that treadle knows, else what it may have had.
    ///
    /// # Errors
    /// It is not known.
    pub(super) fn spans(&self, named: &[NamedSpan], tokens: usize) -> Result<Vec<Span>, String> {
        let (oldest, newest) = self.bounds()?;
        let known = named.iter().map(|span| self.named(span, oldest, newest));
        let known: Option<Vec<Span>> = known.collect();
        let known = known.filter(|spans| !spans.is_empty());
        let whole = || Span {
            start: 0,
            end: tokens,
            version: oldest,
            newest,
        };
        Ok(known.unwrap_or_else(|| vec![whole()]))
    }

    /// A name is that of a published version, or the number of one that was in service meanwhile. A
    /// version that is not in service yet counts as the one that is.
    fn named(&self, span: &NamedSpan, oldest: u64, newest: u64) -> Option<Span> {
        let name = &*span.version;
        let published = [&self.begun, &self.ended].map(|read| read.named.get(name).copied());
        let numbered = name.parse().ok();
        let numbered = numbered.filter(|number| (oldest..=newest).contains(number));
        let version = published.into_iter().flatten().next().or(numbered)?;
        Some(Span {
            start: span.start,
            end: span.end,
            version: version.min(self.in_service()?),
            newest: version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: Option<u64>, held: &[u64], named: &[(&str, u64)]) -> CapturedVersion {
        CapturedVersion {
            version,
            held: held.to_vec(),
            named: named.iter().map(|(name, n)| ((*name).into(), *n)).collect(),
            ..CapturedVersion::default()
        }
    }

    fn spans(
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
        let found = Served { begun, ended }
            .spans(&named, 9)
            .expect("it is known");
        let rows = found
            .iter()
            .map(|s| [s.start as u64, s.end as u64, s.version, s.newest]);
        rows.collect()
    }

    #[test]
    fn a_step_has_the_version_that_was_in_service() {
        let told = |version| read(Some(version), &[], &[]);
        assert_eq!(spans(told(3), told(3), &[]), [[0, 9, 3, 3]]);
        assert_eq!(spans(told(3), told(3), &[(9, "default")]), [[0, 9, 3, 3]]);
        assert_eq!(
            spans(told(3), told(3), &[(9, "7")]),
            [[0, 9, 3, 3]],
            "a counter of its own"
        );
        let back = Served {
            begun: read(None, &[], &[]),
            ended: told(3),
        };
        assert!(
            back.spans(&[], 9)
                .is_err_and(|cause| cause.contains("went back"))
        );
    }

    #[test]
    fn weights_that_changed_meanwhile_do_not_count_as_one_version() {
        let told = |version| read(Some(version), &[], &[]);
        assert_eq!(spans(told(3), told(5), &[]), [[0, 9, 3, 5]]);
        assert_eq!(spans(told(3), read(None, &[], &[]), &[]), [[0, 9, 3, 3]]);
        let named = [(4, "3"), (9, "4")];
        assert_eq!(
            spans(told(3), told(4), &named),
            [[0, 4, 3, 3], [4, 9, 4, 4]]
        );
        let named = [(4, "4"), (9, "5")];
        assert_eq!(
            spans(told(3), told(4), &named),
            [[0, 9, 3, 4]],
            "a counter of its own"
        );
    }

    #[test]
    fn what_treadle_loaded_is_known_of_each_engine() {
        let begun = || read(Some(3), &[3], &[("0.3", 3)]);
        // Others still serve version 3 when this one has loaded the next.
        let ended = || read(Some(3), &[4], &[("0.4", 4)]);
        assert_eq!(spans(begun(), ended(), &[]), [[0, 9, 3, 4]]);
        let named = [(4, "0.3"), (9, "0.4")];
        assert_eq!(
            spans(begun(), ended(), &named),
            [[0, 4, 3, 3], [4, 9, 3, 4]]
        );
        // It was rolled before the step began.
        assert_eq!(spans(ended(), ended(), &[]), [[0, 9, 3, 4]]);
        // One that was left behind has an older version than the one in service.
        assert_eq!(
            spans(begun(), read(Some(4), &[3], &[]), &[]),
            [[0, 9, 3, 3]]
        );
    }
}
