//! Addresses and names of clouds' metadata services, beside the link-local addresses
//! (`169.254.0.0/16`, `fe80::/10`) that most of them use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4: [Ipv4Addr; 5] = [
    // Alibaba.
    Ipv4Addr::new(100, 100, 100, 200),
    // Volcano Engine.
    Ipv4Addr::new(100, 96, 0, 96),
    // UCloud.
    Ipv4Addr::new(100, 80, 80, 80),
    // Azure's host.
    Ipv4Addr::new(168, 63, 129, 16),
    // Oracle, of old.
    Ipv4Addr::new(192, 0, 0, 192),
];
/// Networks by their first segments.
const V6: [&[u16]; 5] = [
    // Amazon: metadata, and the credentials of pods.
    &[0xfd00, 0xec2],
    // Google.
    &[0xfd20, 0xce],
    // Oracle.
    &[0xfd00, 0xc1],
    // Scaleway.
    &[0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
    // Akamai.
    &[0xfd00, 0xa9fe, 0xa9fe],
];
/// Names of metadata services, whatever they resolve to.
const NAMES: [&str; 9] = [
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
];

/// Whether an address belongs to a metadata service.
pub(super) fn is_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => V4.contains(&ip),
        IpAddr::V6(ip) => is_v6(ip),
    }
}

fn is_v6(ip: Ipv6Addr) -> bool {
    V6.iter().any(|network| ip.segments().starts_with(network))
}

/// Whether a name belongs to a metadata service.
pub(super) fn is_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    NAMES.contains(&host.as_str()) || host.ends_with(".metadata.google.internal")
}
