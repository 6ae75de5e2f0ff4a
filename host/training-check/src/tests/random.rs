//! Random changes of what a member trains are judged as by brute force.

use super::steps::{Case, shown};
use std::collections::BTreeMap;

impl Case {
    /// Whether each token is trained where it was sampled, by comparing all with all.
    fn is_right(&self) -> bool {
        type Token = (Vec<i32>, u32, Option<[u64; 2]>);
        let mut balance: BTreeMap<Token, i64> = BTreeMap::new();
        for step in &self.steps {
            let ids = [&*step.prompt, &step.output].concat();
            let is_trained = !self.excluded.contains(&step.number);
            for (at, score) in step.logprobs.iter().enumerate().filter(|_| is_trained) {
                let context = ids[..=step.prompt.len() + at].to_vec();
                let token = (context, score.to_bits(), Some([step.version; 2]));
                *balance.entry(token).or_default() += 1;
            }
        }
        for sequence in &self.sequences {
            let trained = sequence.sampled.iter().cloned().flatten();
            for (at, score) in trained.zip(&sequence.logprobs) {
                let mut spans = sequence.versions.iter();
                let span = spans.find(|span| span.positions.contains(&at));
                let version = span.map(|span| [span.version, span.newest]);
                let token = (sequence.ids[..=at].to_vec(), score.to_bits(), version);
                *balance.entry(token).or_default() -= 1;
            }
        }
        let known = |number: &u64| self.steps.iter().any(|step| step.number == *number);
        balance.values().all(|count| *count == 0) && self.excluded.iter().all(known)
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn token(&mut self) -> i32 {
        i32::try_from(self.below(3)).expect("a small number")
    }

    fn tokens(&mut self, least: usize, bound: usize) -> Vec<i32> {
        let count = least + self.below(bound);
        (0..count).map(|_| self.token()).collect()
    }

    /// A tree of steps with retries, and a sequence for each leaf.
    fn case(&mut self) -> Case {
        let mut case = Case::default();
        let mut parents: Vec<Option<usize>> = Vec::new();
        for number in 0..=self.below(6) {
            let is_excluded = |at: &usize| case.excluded.contains(&(*at as u64));
            let parent = Some(self.below(number + 1)).filter(|at| *at < number);
            let parent = parent.filter(|at| !is_excluded(at));
            let mut prompt = parent.map_or(Vec::new(), |at| {
                [&*case.steps[at].prompt, &case.steps[at].output].concat()
            });
            prompt.extend(self.tokens(usize::from(parent.is_none()), 3));
            let output = self.tokens(1, 3);
            case.step(&prompt, &output, self.below(2) as u64);
            parents.push(parent);
            if self.below(5) == 0 {
                case.excluded.push(number as u64);
            }
        }
        let mut known = vec![false; parents.len()];
        for leaf in 0..parents.len() {
            let is_excluded = |at: usize| case.excluded.contains(&(at as u64));
            let mut children = (0..parents.len()).filter(|at| parents[*at] == Some(leaf));
            if is_excluded(leaf) || children.any(|at| !is_excluded(at)) {
                continue;
            }
            let path = std::iter::successors(Some(leaf), |at| parents[*at]);
            let mut path: Vec<usize> = path.collect();
            path.reverse();
            path.retain(|at| !std::mem::replace(&mut known[*at], true));
            case.sequence(leaf, &path);
        }
        case
    }

    /// Changes something, if there is such a thing.
    fn change(&mut self, case: &mut Case) {
        let kind = self.below(9);
        if kind < 2 {
            let number = self.below(case.steps.len()) as u64;
            match case.excluded.iter().position(|of| *of == number) {
                Some(at) => drop(case.excluded.remove(at)),
                None => case.excluded.push(number),
            }
            return;
        }
        if case.sequences.is_empty() {
            return;
        }
        let at = self.below(case.sequences.len());
        let sequence = &mut case.sequences[at];
        let (range, length) = (self.below(sequence.sampled.len()), sequence.ids.len());
        let score = self.below(sequence.logprobs.len());
        let next = sequence.sampled.get(range + 1).map_or(length, |r| r.start);
        match kind {
            2 | 3 => sequence.ids[self.below(length)] = self.token(),
            4 => sequence.logprobs[score] = -0.1 - self.below(60) as f32,
            5 => {
                let (version, newest) = (self.below(2) as u64, self.below(2) as u64);
                let span = &mut sequence.versions[range];
                (span.version, span.newest) = (version, version.max(newest));
            }
            6 if sequence.sampled[range].end < next => {
                sequence.sampled[range].end += 1;
                let before = sequence.sampled[..=range]
                    .iter()
                    .map(ExactSizeIterator::len);
                let before = before.sum::<usize>() - 1;
                sequence.logprobs.insert(before, -0.5);
            }
            7 => drop(case.sequences.remove(at)),
            _ => {
                let again = sequence.clone();
                case.sequences.push(again);
            }
        }
    }
}

#[test]
fn changes_are_judged_as_by_brute_force() {
    let mut random = Random(7);
    let (mut right, mut wrong) = (0, 0);
    for round in 0..8_000 {
        let mut case = random.case();
        assert_eq!(shown(&case.findings()), [""; 0], "{}", case.json());
        for _ in 0..random.below(3) {
            random.change(&mut case);
        }
        let is_right = case.is_right();
        let findings = case.findings();
        let found = shown(&findings);
        let (json, sequences) = (case.json(), &case.sequences);
        assert_eq!(
            found.is_empty(),
            is_right,
            "{round}: {json}\n{sequences:?}\n{found:?}"
        );
        *(if is_right { &mut right } else { &mut wrong }) += 1;
    }
    assert!(right > 1_000 && wrong > 1_000, "{right} and {wrong}");
}
