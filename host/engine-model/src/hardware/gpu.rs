//! Classes of GPUs, with the vendors' figures.

/// One class of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name.
    pub name: &'static str,
    /// Dense bf16 compute, in GFLOP/s.
    pub bf16_gflops: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Memory bandwidth, in bytes a second.
    pub memory_bytes_per_s: u64,
    /// NVLink bandwidth, both directions together as vendors state it, in bytes per second.
    pub nvlink_bytes_per_s: u64,
    /// Source of the figures.
    pub source: &'static str,
}

const GB: u64 = 1_000_000_000;
/// Memory is sold in units of this size, whatever they are called.
const GIB: u64 = 1 << 30;

/// H20: much bandwidth, little compute.
pub const H20: Gpu = Gpu {
    name: "H20",
    bf16_gflops: 148_000,
    memory_bytes: 96 * GIB,
    memory_bytes_per_s: 4_000 * GB,
    nvlink_bytes_per_s: 900 * GB,
    source: "RollArt, Table 2",
};

/// H800: an H100 with less NVLink.
pub const H800: Gpu = Gpu {
    name: "H800",
    bf16_gflops: 989_500,
    memory_bytes: 80 * GIB,
    memory_bytes_per_s: 3_350 * GB,
    nvlink_bytes_per_s: 400 * GB,
    source: "RollArt, Table 2",
};

/// H100 SXM.
pub const H100: Gpu = Gpu {
    name: "H100",
    bf16_gflops: 989_500,
    memory_bytes: 80 * GIB,
    memory_bytes_per_s: 3_350 * GB,
    nvlink_bytes_per_s: 900 * GB,
    source: "NVIDIA H100 data sheet, SXM (1,979 TFLOPS with sparsity, half without); NVLink also \
             Heddle §7",
};

/// H200 SXM.
pub const H200: Gpu = Gpu {
    name: "H200",
    bf16_gflops: 989_500,
    memory_bytes: 141 * GIB,
    memory_bytes_per_s: 4_800 * GB,
    nvlink_bytes_per_s: 900 * GB,
    source: "NVIDIA H200 data sheet, SXM",
};

impl Gpu {
    /// All classes.
    pub const ALL: [Self; 4] = [H20, H800, H100, H200];

    /// The class with that name, ignoring case, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|each| each.name.eq_ignore_ascii_case(name))
    }
}
