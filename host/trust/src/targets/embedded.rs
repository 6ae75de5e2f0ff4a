//! IPv4 addresses embedded in IPv6 addresses, to which a translator or a tunnel may forward.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, and those to which a connection to it may be forwarded.
pub(super) fn with_embedded(ip: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![ip];
    if let IpAddr::V6(ip) = ip {
        // No translator forwards to the network 0, so such a reading does not count.
        let ends = embedded(ip).into_iter().filter(|end| end.octets()[0] > 0);
        all.extend(ends.map(IpAddr::V4));
    }
    all
}

/// The IPv4 addresses in an IPv6 address, for every possible encoding.
fn embedded(ip: Ipv6Addr) -> Vec<Ipv4Addr> {
    let s = ip.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let last = of(s[6], s[7]);
    // `::` and `::1` are their own.
    let is_compatible = s[..6] == [0; 6] && (s[6] > 0 || s[7] > 1);
    // Mapped, translated (RFC 2765), NAT64 (RFC 6052), ISATAP (RFC 5214), compatible (RFC 4291).
    let ends_with_it = matches!(
        s,
        [0, 0, 0, 0, 0, 0xffff, ..]
            | [0, 0, 0, 0, 0xffff, 0, ..]
            | [0x64, 0xff9b, 0, 0, 0, 0, ..]
            | [_, _, _, _, 0 | 0x200, 0x5efe, ..]
    );
    let mut found = Vec::new();
    if ends_with_it || is_compatible {
        found.push(last);
    }
    match s {
        // NAT64 for networks of one's own (RFC 8215), which choose the length of their prefix.
        [0x64, 0xff9b, 1, ..] => found.extend([48, 56, 64, 96].map(|bits| translated(ip, bits))),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => found.push(of(high, low)),
        // Teredo (RFC 4380): the server, and the client with all bits turned.
        [0x2001, 0, high, low, ..] => found.extend([of(high, low), of(!s[6], !s[7])]),
        _ => {}
    }
    found
}

/// The address after a prefix of this many bits (RFC 6052 §2.2): the ninth byte is skipped.
fn translated(ip: Ipv6Addr, bits: usize) -> Ipv4Addr {
    let bytes = ip.octets();
    let mut rest = bytes.into_iter().enumerate().skip(bits / 8);
    let mut next = || {
        let byte = rest.find(|(at, _)| bits == 96 || *at != 8);
        byte.map_or(0, |(_, byte)| byte)
    };
    Ipv4Addr::new(next(), next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_embedded_address_is_read() {
        let metadata = Ipv4Addr::new(169, 254, 169, 254);
        for form in [
            "::ffff:169.254.169.254",
            "::ffff:0:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:ffa9:fe:a9fe::",
            "64:ff9b:1:ffff:a9:fea9:fe00:0",
            "64:ff9b:1:ffff:ffff:ffff:169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2001:0:a9fe:a9fe::1",
            "2001:0:1:2:3:4:5601:5601",
            "fd00::5efe:169.254.169.254",
            "2001:db8::200:5efe:169.254.169.254",
        ] {
            let ip: Ipv6Addr = form.parse().unwrap();
            assert!(
                embedded(ip).contains(&metadata),
                "{form}: {:?}",
                embedded(ip)
            );
        }
        for own in ["::", "::1", "fd00::a9fe:a9fe", "2001:db8::1", "fe80::1"] {
            assert!(embedded(own.parse().unwrap()).is_empty(), "{own}");
        }
    }
}
