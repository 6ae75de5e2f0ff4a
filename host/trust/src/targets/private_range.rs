//! Address ranges that are not globally unique.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is loopback, private or reserved.
pub(super) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => is_private_v6(ip),
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        || a == 0
        || a >= 240
        // Shared behind carriers (RFC 6598), protocols (RFC 6890), benchmarks (RFC 2544).
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xfe == 18)
}

fn is_private_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    ip.is_loopback()
        || ip.is_unique_local()
        // Site-local, and addresses that hold one of IPv4: NAT64, 6to4, Teredo.
        || first & 0xffc0 == 0xfec0
        || (first == 0x64 && second == 0xff9b)
        || first == 0x2002
        || (first == 0x2001 && second == 0)
}
