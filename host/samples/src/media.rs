//! Where images are in a prompt: an engine puts one placeholder token for each part of an image, so
//! that each shows as a row of equal ids.

use std::collections::BTreeMap;

/// Shorter rows of equal ids are common in text.
const ROW_TOKENS: usize = 4;

/// The first positions of this number of images, in order. `None` if the ids do not show them: another
/// number of rows, rows of several ids, or images that follow each other without a token between.
pub fn places_of_media(prompt: &[i32], images: usize) -> Option<Vec<usize>> {
    let mut rows: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    let mut start = 0;
    for row in prompt.chunk_by(|a, b| a == b) {
        if row.len() >= ROW_TOKENS {
            rows.entry(row[0]).or_default().push(start);
        }
        start += row.len();
    }
    let mut fitting = rows.into_values().filter(|starts| starts.len() == images);
    let places = fitting.next()?;
    fitting.next().is_none().then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: [i32; 6] = [99; 6];

    #[test]
    fn each_image_is_a_row_of_its_placeholder() {
        let prompt = [&[1, 2][..], &IMAGE, &[3], &IMAGE[..4], &[4, 4, 4]].concat();
        assert_eq!(places_of_media(&prompt, 2), Some(vec![2, 9]));
        assert_eq!(places_of_media(&prompt, 1), None, "another number");
        let joined = [&IMAGE[..], &IMAGE].concat();
        assert_eq!(places_of_media(&joined, 2), None, "nothing between them");
    }

    #[test]
    fn rows_of_text_leave_it_open() {
        let prompt = [&[5; 8][..], &IMAGE, &[7]].concat();
        assert_eq!(places_of_media(&prompt, 1), None);
        assert_eq!(places_of_media(&[], 1), None);
    }
}
