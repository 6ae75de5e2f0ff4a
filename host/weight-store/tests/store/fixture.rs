//! Checkpoints for tests.

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use treadle_weight_store::{Local, Stream};

/// A tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Vec<u8>,
}

/// Weights, by tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Weights {
    pub(crate) tensors: BTreeMap<String, Tensor>,
    /// Files that they are written to.
    pub(crate) shards: usize,
}

/// Numbers that look random.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

impl Weights {
    /// Tensors of three types, one of them without any bytes.
    pub(crate) fn new(noise: &mut Noise, elements: usize, shards: usize) -> Self {
        let types = [Dtype::BF16, Dtype::F8_E4M3, Dtype::F32];
        let mut weights = Self {
            shards,
            ..Self::default()
        };
        for at in 0..9 {
            let dtype = types[at % 3];
            let elements = if at == 8 { 0 } else { elements >> (at % 4) };
            let bytes = noise.bytes(elements * dtype.bitsize() / 8);
            let name = format!("model.layers.{at}.weight");
            weights.tensors.insert(name, Tensor { dtype, bytes });
        }
        // Tied tensors that were saved twice.
        let tied = weights.tensors["model.layers.0.weight"].clone();
        weights.tensors.insert("lm_head.weight".into(), tied);
        weights
    }

    /// Changes some bytes of some tensors.
    pub(crate) fn train(&mut self, noise: &mut Noise) {
        for tensor in self.tensors.values_mut() {
            if noise.next().is_multiple_of(3) {
                continue;
            }
            let length = tensor.bytes.len() as u64;
            for _ in 0..length / 10 {
                let at = noise.next() % length;
                tensor.bytes[at as usize] ^= noise.next() as u8;
            }
        }
    }

    /// Writes them as Hugging Face does.
    pub(crate) fn write(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("config.json"), b"{\"model_type\": \"test\"}").expect("a file");
        let mut map = BTreeMap::new();
        for shard in 0..self.shards {
            let name = match self.shards {
                1 => "model.safetensors".to_owned(),
                of => format!("model-{:05}-of-{of:05}.safetensors", shard + 1),
            };
            let own = self.tensors.iter().skip(shard).step_by(self.shards);
            let views: Vec<_> = own
                .map(|(tensor, of)| {
                    map.insert(tensor.clone(), name.clone());
                    let shape = vec![of.bytes.len() * 8 / of.dtype.bitsize()];
                    let view = TensorView::new(of.dtype, shape, &of.bytes).expect("fits");
                    (tensor.clone(), view)
                })
                .collect();
            let notes = Some([("format".to_owned(), "pt".to_owned())].into());
            serialize_to_file(views, notes, &folder.join(name)).expect("a shard");
        }
        if self.shards > 1 {
            let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
            let path = folder.join("model.safetensors.index.json");
            fs::write(path, index.to_string()).expect("an index");
        }
    }
}

/// A trainer's folder, a store, and a host.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) stream: Stream,
    pub(crate) local: Local,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            stream: Stream::new(folder.path().join("store")),
            local: Local::new(folder.path().join("host")),
            folder,
        }
    }

    /// Where the trainer saves.
    pub(crate) fn saved(&self) -> PathBuf {
        self.folder.path().join("saved")
    }
}

/// Whether two folders have the same visible files.
pub(crate) fn assert_same(left: &Path, right: &Path) {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(left), names(right));
    for name in names(left) {
        let [left, right] = [left, right].map(|f| fs::read(f.join(&name)).expect("a file"));
        assert!(left == right, "{} differs", name.display());
    }
}

/// Flips a bit in the middle of a file's last quarter, where tensors are.
pub(crate) fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    let at = bytes.len() - bytes.len() / 8;
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("writable");
}
