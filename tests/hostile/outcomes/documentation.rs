//! Every code of a refusal is documented.

use treadle_hostile::{Outcome, POLICIES};

#[test]
fn all_codes_that_hostile_uploads_meet_are_documented() {
    let page = include_str!("../../../docs/refusals.md");
    let refused = POLICIES
        .iter()
        .filter_map(|policy| match policy.comes_of_it {
            Outcome::Refused(codes) => Some(codes),
            _ => None,
        });
    let unknown: Vec<&str> = refused
        .flatten()
        .copied()
        .filter(|code| !page.contains(&format!("| `{code}` |")))
        .collect();
    assert!(unknown.is_empty(), "docs/refusals.md lacks {unknown:?}");
}
