//! Others read what this crate writes, and it reads what they write.

use crate::fixture::{Noise, Place, Weights, assert_same};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use treadle_weight_store::{Algorithm, Encoding, PublishOptions, Stream};

/// CRC-32 as zlib has it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn listed(weights: &Weights) -> String {
    let mut text = String::new();
    for (name, tensor) in &weights.tensors {
        let _ = writeln!(
            text,
            "{name} {} {}",
            tensor.bytes.len(),
            crc32(&tensor.bytes)
        );
    }
    text
}

#[test]
fn a_reader_in_python_reads_every_version() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/reader.py");
    let check = "import ctypes, ctypes.util; ctypes.CDLL(ctypes.util.find_library('zstd') or 'libzstd.so.1')";
    let can_run = Command::new("python3").args(["-c", check]).output();
    if !can_run.is_ok_and(|run| run.status.success()) {
        eprintln!("left out: there is no python3, or no libzstd");
        return;
    }
    for encoding in [Encoding::Xor, Encoding::Overwrite] {
        let (place, mut noise) = (Place::new(), Noise(31));
        let mut weights = Weights::new(&mut noise, 5_000, 2);
        let options = PublishOptions {
            encoding,
            checksum: Algorithm::Adler32,
        };
        for version in 1..=4_u64 {
            weights.write(&place.saved());
            place
                .stream
                .publish(&place.saved(), version, options)
                .expect("published");
            let read = Command::new("python3")
                .arg(&script)
                .arg(place.stream.folder())
                .arg(version.to_string())
                .output()
                .expect("python3");
            let errors = String::from_utf8_lossy(&read.stderr);
            assert_eq!(
                String::from_utf8_lossy(&read.stdout),
                listed(&weights),
                "{errors}"
            );
            weights.train(&mut noise);
        }
    }
}

/// As slime's trainer leaves it: the first delta is to the checkpoint that engines started with,
/// which is elsewhere, and whole versions have no checksums beside them.
#[test]
fn a_stream_that_slime_wrote_is_read() {
    let (place, mut noise) = (Place::new(), Noise(37));
    let mut weights = Weights::new(&mut noise, 5_000, 2);
    let base = place.folder.path().join("base");
    weights.write(&base);
    for version in 0..=2 {
        weights.write(&place.saved());
        let options = PublishOptions::default();
        place
            .stream
            .publish(&place.saved(), version, options)
            .expect("published");
        if version < 2 {
            weights.train(&mut noise);
        }
    }
    let first = place.stream.folder().join("weight_v000000");
    fs::remove_dir_all(first).expect("removed");
    let error = place.stream.verify(1).expect_err("no base");
    assert!(error.to_string().contains("version 0"), "{error}");
    let stream = Stream::new(place.stream.folder()).with_base(&base);
    for version in [1, 2] {
        stream.verify(version).expect("whole");
        place.local.pull(&stream, version, &[]).expect("pulled");
    }
    assert_same(&place.local.folder_of(2), &place.saved());
    // A whole version without checksums.
    weights.train(&mut noise);
    weights.write(&stream.folder().join("weight_v000003"));
    let pulled = place.local.pull(&stream, 3, &[2]).expect("pulled");
    assert_same(&pulled.folder, &stream.folder().join("weight_v000003"));
    let again = place.local.pull(&stream, 3, &[2]).expect("pulled");
    assert_eq!(again.made, 0);
}
