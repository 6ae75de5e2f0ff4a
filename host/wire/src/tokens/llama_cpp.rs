//! llama.cpp's lists of log-probabilities, which lack tokens: those that end within a character, and
//! those of a stop sequence.

/// Log-probabilities of the tokens by a list that lacks some: NaN for each token that is not on it,
/// or that may not be. `None` if the list is of other tokens.
pub(super) fn aligned(tokens: &[i32], listed: &[i32], scores: &[f32]) -> Option<Vec<f32>> {
    if tokens == listed {
        return Some(scores.to_vec());
    }
    let first = places(tokens.iter(), listed.iter())?;
    let last = places(tokens.iter().rev(), listed.iter().rev())?;
    let last = last.iter().rev().map(|place| tokens.len() - 1 - place);
    let mut aligned = vec![f32::NAN; tokens.len()];
    for ((first, last), score) in first.into_iter().zip(last).zip(scores) {
        if first == last {
            aligned[first] = *score;
        }
    }
    Some(aligned)
}

/// The first place of each listed token, in order.
fn places<'t>(
    tokens: impl Iterator<Item = &'t i32>,
    listed: impl Iterator<Item = &'t i32>,
) -> Option<Vec<usize>> {
    let mut tokens = tokens.enumerate();
    let place = |wanted| Some(tokens.find(|(_, token)| *token == wanted)?.0);
    listed.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An emoji has four tokens here, and only the last is listed; a stop sequence is not.
    #[test]
    fn what_the_list_lacks_has_no_score() {
        let tokens = [175, 256, 249, 225, 67, 175, 256, 249, 225, 507];
        let scores = aligned(&tokens, &[225, 67, 225], &[-1.0, -2.0, -3.0]);
        let scores = scores.expect("they are of these tokens");
        let known = scores.iter().enumerate().filter(|(_, p)| !p.is_nan());
        let known: Vec<(usize, f32)> = known.map(|(at, p)| (at, *p)).collect();
        assert_eq!(known, [(3, -1.0), (4, -2.0), (8, -3.0)]);
        assert_eq!(aligned(&tokens, &[67, 66], &[-1.0, -2.0]), None);
        assert_eq!(
            aligned(&[7, 8], &[7, 8], &[-1.0, -2.0]),
            Some(vec![-1.0, -2.0])
        );
        assert_eq!(aligned(&[7], &[7, 7], &[-1.0, -2.0]), None, "too many");
    }

    /// Either of two equal tokens may be the one that is listed.
    #[test]
    fn what_may_be_another_token_has_no_score() {
        let scores = aligned(&[5, 8, 8, 9], &[8, 9], &[-1.0, -2.0]).expect("they are of these");
        let known: Vec<bool> = scores.iter().map(|p| !p.is_nan()).collect();
        assert_eq!(known, [false, false, false, true]);
    }
}
