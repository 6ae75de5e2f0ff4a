//! Cases that the property tests found, as plain tests.

use super::*;

/// A waiting request whose cached prefix is evicted has a longer chunk, which the budget may cut: it
/// then fits where the whole did not.
#[test]
fn a_prefix_that_shrinks_can_make_a_request_fit() {
    let list = [
        (0, 2, 2, 36, 4, 0, None),
        (17365, 0, 0, 1, 4, 0, None),
        (5234, 0, 1, 19, 7, 0, None),
        (12326, 0, 0, 1, 1, 0, None),
        (12114, 0, 1, 13, 6, -1, None),
        (0, 0, 0, 1, 1, 0, Some(0)),
        (10123, 2, 1, 36, 6, 0, None),
        (18287, 0, 0, 1, 1, 0, Some(0)),
        (5314, 0, 0, 9, 1, 0, None),
        (3042, 0, 0, 1, 1, 0, None),
        (16865, 0, 0, 34, 4, -1, None),
        (25830, 0, 0, 1, 1, 0, None),
        (24833, 0, 0, 1, 1, 0, None),
        (6200, 0, 0, 10, 12, -1, None),
        (1361, 0, 0, 1, 1, 0, None),
        (10718, 0, 0, 3, 10, -1, None),
        (10761, 0, 0, 1, 1, 0, None),
        (23380, 0, 0, 1, 1, 0, None),
    ];
    let arrivals: Vec<_> = list
        .into_iter()
        .map(
            |(gap_us, family, shared, prompt_tokens, output_tokens, priority, abort_after_us)| {
                Arrival {
                    gap_us,
                    family,
                    shared,
                    prompt_tokens,
                    output_tokens,
                    priority,
                    abort_after_us,
                }
            },
        )
        .collect();
    let profile = small_profile(16, 8, 3);
    let singly = run(&profile, &arrivals, Drive::Singly);
    assert_eq!(run(&profile, &arrivals, Drive::Remembering), singly);
}
