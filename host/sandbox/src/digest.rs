//! Digests as text.

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    digits.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_have_two_digits() {
        assert_eq!(super::hex(&[0, 1, 0x9a, 0xff]), "00019aff");
    }
}
