//! Seeded mutations of uploads and messages.

/// Numbers that look random and repeat with their seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Bytes with special meaning in the format: ends, sections, long numbers, prefixes.
const MEANINGFUL: [u8; 12] = [
    0x00, 0x01, 0x0b, 0x7f, 0x80, 0xff, 0x40, 0x60, 0x70, 0xfc, 0xfd, 0x0d,
];

/// One in this many words is repeated, up to this many bytes.
const LONG_ONE_IN: usize = 100;
const LONG_BYTES: usize = 32 << 10;

/// An upload of a corpus with one to four mutations.
pub fn mutate(corpus: &[Vec<u8>], draws: &mut Draws) -> Vec<u8> {
    let mut upload = corpus[draws.below(corpus.len())].clone();
    for _ in 0..=draws.below(4) {
        damage(&mut upload, corpus, draws);
    }
    upload
}

/// A message of a corpus with mutations, and words of its format inserted or written over it.
pub fn mutate_message(corpus: &[Vec<u8>], words: &[&[u8]], draws: &mut Draws) -> Vec<u8> {
    let mut message = corpus[draws.below(corpus.len())].clone();
    for _ in 0..=draws.below(4) {
        if draws.below(2) == 0 {
            damage(&mut message, corpus, draws);
            continue;
        }
        let at = draws.below(message.len() + 1);
        let over = draws.below(3) * draws.below(8);
        let end = (at + over).min(message.len());
        let word = words[draws.below(words.len())];
        // Sometimes very often: deep or long input must not take much longer per byte.
        let times = match draws.below(LONG_ONE_IN) {
            0 => LONG_BYTES / word.len().max(1),
            _ => 1,
        };
        message.splice(at..end, word.repeat(times));
    }
    message
}

fn damage(upload: &mut Vec<u8>, corpus: &[Vec<u8>], draws: &mut Draws) {
    if upload.is_empty() {
        return;
    }
    let at = draws.below(upload.len());
    let end = at + draws.below((upload.len() - at).min(64));
    match draws.below(8) {
        0 => upload[at] ^= 1 << draws.below(8),
        1 => upload[at] = draws.below(256) as u8,
        2 | 3 => upload[at] = MEANINGFUL[draws.below(MEANINGFUL.len())],
        4 => upload.truncate(at),
        5 => drop(upload.drain(at..end)),
        6 => {
            let copy = upload[at..end].to_vec();
            let to = draws.below(upload.len());
            upload.splice(to..to, copy);
        }
        _ => {
            let other = &corpus[draws.below(corpus.len())];
            let from = draws.below(other.len());
            let until = from + draws.below((other.len() - from).min(256));
            upload.splice(at..end, other[from..until].iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_damage() {
        let corpus = [vec![7; 100], vec![9; 50]];
        let of = |seed| {
            let mut draws = Draws::new(seed);
            (0..20)
                .map(|_| mutate(&corpus, &mut draws))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(3).iter().any(|upload| !corpus.contains(upload)));
    }
}
