//! The machine's GPUs, as reported by the driver's library (NVML).

use std::ffi::OsStr;
use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use treadle_core::actions::{Chunk, NODE_DEVICES};

/// Stands for all GPUs of the machine.
const ALL: &str = "all";
/// The driver's library; most machines have it only under this versioned name.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Prefix of the ids of whole GPUs, which also have a number in NVML.
const WHOLE: &str = "GPU-";

/// Why the configured GPUs can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// `all` requires NVML.
    #[error("actions.gpus is `all`, but NVML can't list the GPUs: {0}; name them")]
    Library(NvmlError),
    /// NVML does not have this GPU.
    #[error(
        "actions.gpus has `{asked}`, but NVML has no such GPU ({error}); it has {count}, see `nvidia-smi -L`"
    )]
    Unknown {
        /// The configured name.
        asked: String,
        /// NVML's error.
        error: NvmlError,
        /// Number of GPUs.
        count: u32,
    },
    /// A GPU is listed twice, or `all` is not the only entry.
    #[error("actions.gpus has `{0}` twice; name each GPU once, or write only `all`")]
    Twice(String),
}

/// The GPUs that actions share, in the order of the scheduler's numbers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Gpus {
    names: Arc<[String]>,
    /// Memory of the smallest GPU, if NVML reports that of all.
    memory_bytes: Option<u64>,
}

impl Gpus {
    /// Finds GPUs by their names: numbers, ids, or `all`. With NVML, names are checked, and ids of
    /// whole GPUs become numbers; without it, names are used unchanged.
    ///
    /// # Errors
    /// An unknown GPU, one that is listed twice, or `all` without NVML.
    pub fn find(asked: &[String]) -> Result<Self, GpuError> {
        if asked.is_empty() {
            return Ok(Self::default());
        }
        Self::find_with(asked, LIBRARY.as_ref())
    }

    fn find_with(asked: &[String], library: &OsStr) -> Result<Self, GpuError> {
        let nvml = Nvml::builder().lib_path(library).init();
        let is_all = asked == [ALL];
        let mut names = match &nvml {
            Ok(nvml) if is_all => {
                let count = nvml.device_count().map_err(GpuError::Library)?;
                (0..count).map(|number| number.to_string()).collect()
            }
            Ok(nvml) => {
                let names = asked.iter().map(|name| known(nvml, name));
                names.collect::<Result<Vec<_>, _>>()?
            }
            Err(_) if !is_all => asked.iter().map(|name| as_written(name)).collect(),
            Err(_) => Vec::new(),
        };
        let memory_bytes = match nvml {
            Ok(nvml) => smallest_memory(&nvml, &names),
            Err(error) if is_all => return Err(GpuError::Library(error)),
            Err(_) => None,
        };
        let listed = names.clone();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(GpuError::Twice(pair[0].clone())),
            None => Ok(Self {
                names: listed.into(),
                memory_bytes,
            }),
        }
    }

    /// Their names for CUDA.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Memory of the smallest GPU, if known.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// Sets the environment variables that select a process's devices. By default CUDA numbers
    /// devices by speed, so this also selects NVML's order.
    pub(crate) fn announce(&self, chunk: Chunk, set: &mut impl FnMut(&str, String)) {
        let names = self.of(chunk);
        set("TREADLE_DEVICES", names.clone());
        set("CUDA_VISIBLE_DEVICES", names);
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    }

    /// The names of a chunk's devices, as `0,1`.
    pub(crate) fn of(&self, chunk: Chunk) -> String {
        let first = chunk.node as usize * NODE_DEVICES as usize;
        let name = |number: usize| match self.names.get(first + number) {
            Some(name) => name.clone(),
            None => (first + number).to_string(),
        };
        chunk.devices().map(name).collect::<Vec<_>>().join(",")
    }
}

fn smallest_memory(nvml: &Nvml, names: &[String]) -> Option<u64> {
    let memory = names.iter().map(|name| {
        let device = match name.parse() {
            Ok(number) => nvml.device_by_index(number),
            Err(_) => nvml.device_by_uuid(name.as_str()),
        };
        device.ok()?.memory_info().ok().map(|memory| memory.total)
    });
    memory.collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Normalises a name without NVML: a number may be written in several ways.
fn as_written(name: &str) -> String {
    name.parse::<u32>()
        .map_or_else(|_| name.to_owned(), |number| number.to_string())
}

/// NVML's name of a GPU. A MIG partition has no number.
fn known(nvml: &Nvml, asked: &str) -> Result<String, GpuError> {
    let found = match asked.parse() {
        Ok(number) => nvml.device_by_index(number).map(|_| number.to_string()),
        Err(_) => nvml.device_by_uuid(asked).and_then(|device| {
            if asked.starts_with(WHOLE) {
                device.index().map(|number| number.to_string())
            } else {
                Ok(asked.to_owned())
            }
        }),
    };
    found.map_err(|error| GpuError::Unknown {
        asked: asked.to_owned(),
        error,
        count: nvml.device_count().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn find(asked: &[&str], library: &OsStr) -> Result<Vec<String>, String> {
        let found = Gpus::find_with(&names(asked), library);
        found
            .map(|gpus| gpus.names().to_vec())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_nvml_names_are_taken_as_they_are_and_all_is_refused() {
        let none = OsStr::new("no-such-library.so");
        assert_eq!(find(&["1", "0"], none), Ok(names(&["1", "0"])));
        let error = find(&["all"], none).expect_err("it is refused");
        assert!(error.contains("NVML can't list"), "{error}");
        let error = find(&["0", "all", "0"], none).expect_err("it is refused");
        assert!(error.contains("`0` twice"), "{error}");
    }

    /// A stand-in for the driver's library: four GPUs, and a part of one.
    const STAND_IN: &str = r#"
#include <stdio.h>
#include <string.h>
typedef unsigned long device;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) { *found = index; return index < 4 ? 0 : 2; }
int nvmlDeviceGetIndex(device known, unsigned *index) { *index = (unsigned)known; return 0; }
int nvmlDeviceGetHandleByUUID(const char *id, device *found) {
    *found = 0;
    if (!strcmp(id, "MIG-a")) return 0;
    return sscanf(id, "GPU-%lu", found) == 1 && *found < 4 ? 0 : 6;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
int nvmlDeviceGetMemoryInfo_v2(device known, memory *found) { found->total = (40 + known) << 30; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return 0; }
"#;

    #[test]
    fn names_are_checked_with_nvml() {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("nvml.c"), folder.path().join("nvml.so"));
        std::fs::write(&source, STAND_IN).expect("it is written");
        let compiler = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status();
        assert!(compiler.expect("a C compiler").success());
        let library = library.as_os_str();
        assert_eq!(find(&["all"], library), Ok(names(&["0", "1", "2", "3"])));
        let memory =
            |asked| Gpus::find_with(&names(asked), library).map(|gpus| gpus.memory_bytes());
        assert_eq!(memory(&["3", "GPU-1"]).ok(), Some(Some(41 << 30)));
        let mixed = find(&["3", "GPU-1", "MIG-a"], library);
        assert_eq!(mixed, Ok(names(&["3", "1", "MIG-a"])));
        for (asked, told) in [
            (&["4"][..], "`4`"),
            (&["GPU-7"], "`GPU-7`"),
            (&["gpu one"], "`gpu one`"),
            (&["all", "0"], "`all`"),
            (&["1", "GPU-1"], "`1` twice"),
            (&["1", "01"], "`1` twice"),
        ] {
            let error = find(asked, library).expect_err(told);
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_chunk_has_the_names_of_its_devices() {
        let gpus = Gpus {
            names: (0..10).map(|number| format!("g{number}")).collect(),
            memory_bytes: None,
        };
        let chunk = |node, first, size| Chunk { node, first, size };
        assert_eq!(gpus.of(chunk(0, 2, 2)), "g2,g3");
        // A machine with more than a node's devices has several nodes.
        assert_eq!(gpus.of(chunk(1, 0, 2)), "g8,g9");
    }
}
