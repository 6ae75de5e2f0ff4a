//! `[training]`: training runs.

use super::section::section;

section! {
    /// Training runs: groups, samples and batches that are kept until the trainer's checkpoint releases them. docs/training.md describes them.
    TrainingConfig in "training" {
        /// Limit on kept payloads. Tenants have equal shares. Beyond its share, a tenant's next group or sample is refused.
        bytes_max: u64 = 137_438_953_472, "bytes", 1_048_576 ..= 1_125_899_906_842_624_u64;
    }
}
