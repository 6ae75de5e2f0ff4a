//! Hosts that engines may be told to fetch from: not their machine, their private networks, or
//! their cloud's credentials.

use super::metadata;
use super::never;
use super::private_range::is_private;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Suffixes of names in private networks.
const PRIVATE_ENDS: [&str; 12] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "svc",
    "test",
];
/// Names of clouds' metadata services without such a suffix.
const METADATA_NAMES: [&str; 5] = [
    "metadata.goog",
    "metadata.azure.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
];

/// Checks the host of a URL that somebody else fetches: an address must be public, in any notation,
/// and a name must not mean something private. Names are not resolved.
///
/// # Errors
/// Why the host is not public.
pub fn public_host(host: &str) -> Result<(), &'static str> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or_default();
        let address = address.parse::<Ipv6Addr>();
        return address.map_or(Err("its host is not a valid address"), |ip| {
            public(ip.into())
        });
    }
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.is_empty() || !host.bytes().all(is_named) {
        return Err("its host is not an ASCII name or address");
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        let address = address_of(&host);
        return address.map_or(Err("its host is not a valid address"), |ip| {
            public(ip.into())
        });
    }
    if !host.contains('.') {
        return Err("a name without a dot is local to a network or machine");
    }
    let is_below = |end: &str| {
        host.strip_suffix(end)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    if PRIVATE_ENDS.iter().any(|end| is_below(end)) {
        return Err("the name belongs to a private network");
    }
    if METADATA_NAMES.contains(&host.as_str()) || metadata::is_name(&host) {
        return Err("the name belongs to a cloud's metadata service");
    }
    Ok(())
}

fn public(ip: IpAddr) -> Result<(), &'static str> {
    let ip = ip.to_canonical();
    // Only these assigned addresses are global.
    let is_odd = matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xe000 != 0x2000);
    match never(ip) {
        Some(_) => Err("the address is link-local, multicast or a cloud's metadata service"),
        None if is_private(ip) || is_odd => Err("the address is private"),
        None => Ok(()),
    }
}

/// Parses an address in any notation of C's `inet_aton`: one to four decimal, octal or hexadecimal
/// numbers, the last one for all remaining bytes.
fn address_of(text: &str) -> Option<Ipv4Addr> {
    let numbers: Option<Vec<u32>> = text.split('.').map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() <= 4)?;
    let (last, first) = numbers.split_last()?;
    let mut bits = 0_u32;
    for (at, byte) in first.iter().enumerate() {
        bits |= u32::from(u8::try_from(*byte).ok()?) << (24 - 8 * at);
    }
    let left_max = u32::MAX.checked_shr(8 * first.len() as u32).unwrap_or(0);
    (*last <= left_max).then(|| Ipv4Addr::from_bits(bits | last))
}

fn number(text: &str) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0x") {
        return if digits.is_empty() {
            Some(0)
        } else {
            u32::from_str_radix(digits, 16).ok()
        };
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u32::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_hosts_are_all_others() {
        for good in [
            "images.example.org",
            "8.8.8.8",
            "134744072",
            "[2606:4700::1111]",
            "a.b-c_d.example.",
            "localhost.example.org",
        ] {
            assert_eq!(public_host(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn private_hosts_are_known_in_all_their_forms() {
        for bad in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.5.4",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "1.2.3.4.5",
            "256.1.1.1",
            "09.1.1.1",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "[fc00::1]",
            "[::1%25lo]",
            "metadata",
            "metadata.google.internal",
            "instance-data.ec2.internal",
            "metadata.goog",
            "engine-1",
            "redis.default.svc.cluster.local",
            "redis.default.svc",
            "printer.lan",
            "ⓛocalhost.example",
            "",
            "a b.example",
        ] {
            assert!(public_host(bad).is_err(), "{bad}");
        }
    }
}
