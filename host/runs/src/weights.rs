//! Brings versions of weights from the store to this machine, and has nodes do it on theirs.

use crate::nodes::Nodes;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, Response, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::sync::Mutex;
use treadle_config::Config;
use treadle_weight_store::{Places, StoreError};

/// Path of the daemon's requests to nodes.
pub const PULL_PATH: &str = "/internal/weights";
/// Largest answer of a node that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A version that a host is to have.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The job, as the core knows it.
    pub job: String,
    /// The lineage.
    pub lineage: u32,
    /// The version.
    pub version: u64,
    /// Where engines will look for it.
    pub folder: PathBuf,
    /// The version of the lineage that is in service: it stays.
    pub serving: Option<u64>,
}

/// Pulls versions to this machine, one after the other.
#[derive(Debug)]
pub struct Pulls {
    places: Option<Places>,
    /// The last one that was proven. Engines of one machine share it.
    proven: Mutex<Option<Proven>>,
}

/// A version that was proven here.
#[derive(Debug, Eq, PartialEq)]
struct Proven {
    folder: PathBuf,
    /// What the store had then. A store that was made anew has other weights by the same name.
    stored: Option<Stored>,
}

/// What tells a folder of the store from another one that comes to its place.
#[derive(Debug, Eq, PartialEq)]
struct Stored {
    device: u64,
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Stored {
    async fn at(folder: &Path) -> Option<Self> {
        let found = tokio::fs::metadata(folder).await.ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            changed_s: found.mtime(),
            changed_ns: found.mtime_nsec(),
        })
    }
}

/// The store of a configuration.
pub fn weight_places(config: &Config) -> Option<Places> {
    let weights = &config.weights;
    weights.has_store().then(|| Places {
        store: PathBuf::from(&weights.store),
        folder: PathBuf::from(&weights.folder),
    })
}

impl Pulls {
    /// Pulls from the store of a configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            places: weight_places(config),
            proven: Mutex::default(),
        }
    }

    /// Whether a folder is one that versions of the store are pulled into, here and elsewhere.
    pub fn is_of_store(&self, wanted: &Wanted) -> bool {
        let local = self.local(wanted);
        local.is_some_and(|places| places.folder == wanted.folder)
    }

    fn local(&self, wanted: &Wanted) -> Option<Places> {
        let places = self.places.as_ref()?.of_job(&wanted.job);
        let folder = places.local(wanted.lineage).folder_of(wanted.version);
        Some(Places {
            store: places.stream(wanted.lineage).folder().to_owned(),
            folder,
        })
    }

    /// Has a version on this machine, and proves all of it.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn pull(&self, wanted: &Wanted) -> Result<(), String> {
        let Some(places) = &self.places else {
            return Err("set `weights.store` and `weights.folder` on this machine".to_owned());
        };
        if !self.is_of_store(wanted) {
            return Err(format!(
                "engines look for {}, but `weights.folder` is {} on this machine; use one path on \
                 all machines",
                wanted.folder.display(),
                places.folder.display()
            ));
        }
        let mut proven = self.proven.lock().await;
        let places = places.of_job(&wanted.job);
        let stored = places.stream(wanted.lineage).folder_of(wanted.version);
        let found = Proven {
            folder: wanted.folder.clone(),
            stored: Stored::at(&stored).await,
        };
        if proven.as_ref() == Some(&found) && found.stored.is_some() && wanted.folder.exists() {
            return Ok(());
        }
        *proven = None;
        let (lineage, version, serving) = (wanted.lineage, wanted.version, wanted.serving);
        let pull = move || {
            let keep: Vec<u64> = serving.into_iter().collect();
            let stream = places.stream(lineage);
            let pulled = places.local(lineage).pull(&stream, version, &keep)?;
            places.forget_lineages_before(lineage)?;
            Ok::<_, StoreError>(pulled)
        };
        let pulled = tokio::task::spawn_blocking(pull).await;
        let pulled = pulled.map_err(|error| error.to_string())?;
        let pulled = pulled.map_err(|error| error.to_string())?;
        tracing::info!(
            job = wanted.job,
            lineage,
            version,
            tensors = pulled.made,
            moved_bytes = pulled.moved_bytes,
            "pulled weights"
        );
        *proven = Some(found);
        Ok(())
    }
}

impl Nodes {
    /// Has a node with this host in its URL pull a version. None if there is no such node.
    pub async fn pull_weights(&self, host: &str, wanted: &Wanted) -> Option<Result<(), String>> {
        let nodes = self.linked().into_iter();
        let (_, url) = nodes
            .into_iter()
            .find(|(_, url)| host_of(url) == Some(host))?;
        let body = serde_json::to_string(wanted).unwrap_or_default();
        let request = Request::builder()
            .method(Method::POST)
            .uri(PULL_PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return Some(Err(error.to_string())),
        };
        Some(match self.send_own(&url, request).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(message(response).await),
            Err(error) => Err(format!("the node's agent: {error}")),
        })
    }
}

async fn message(response: Response<Body>) -> String {
    let status = response.status();
    let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let message = body["error"]["message"].as_str();
    message.map_or_else(|| format!("the node's agent: {status}"), str::to_owned)
}

/// The host in a URL, without its port.
pub fn host_of(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, _)| host),
        None => host.split(':').next(),
    }
}

/// Whether a URL is that of this machine.
pub fn is_here(url: &str) -> bool {
    let Some(host) = host_of(url) else {
        return false;
    };
    let address: Option<std::net::IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_weight_store::{PublishOptions, Stream};

    #[test]
    fn a_url_says_which_machine_it_is_of() {
        for (url, host, here) in [
            ("http://127.0.0.1:8000", "127.0.0.1", true),
            ("http://localhost/x", "localhost", true),
            ("http://[::1]:80/", "::1", true),
            ("https://user@gpu-1:8000/v1", "gpu-1", false),
            ("http://10.0.0.5", "10.0.0.5", false),
        ] {
            assert_eq!((host_of(url), is_here(url)), (Some(host), here), "{url}");
        }
        assert!(!is_here("nonsense"));
    }

    #[tokio::test]
    async fn only_the_folder_of_the_version_is_pulled_into() {
        let mut config = Config::default();
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        (config.weights.store, config.weights.folder) = (path("store"), path("local"));
        let pulls = Pulls::new(&config);
        let mut wanted = Wanted {
            job: "math".to_owned(),
            lineage: 2,
            version: 7,
            folder: folder.path().join("local/math/2/weight_v000007"),
            serving: Some(6),
        };
        assert!(pulls.is_of_store(&wanted));
        let missing = pulls.pull(&wanted).await.expect_err("not published");
        assert!(
            missing.contains("version 7 is not in the store"),
            "{missing}"
        );
        assert!(
            Stream::new(path("store"))
                .versions()
                .expect("readable")
                .is_empty()
        );
        wanted.folder = "/etc".into();
        let elsewhere = pulls.pull(&wanted).await.expect_err("another folder");
        assert!(
            elsewhere.contains("use one path on all machines"),
            "{elsewhere}"
        );
        let none = Pulls::new(&Config::default()).pull(&wanted).await;
        assert!(none.expect_err("no store").contains("weights.store"));
    }

    /// Publishes weights of one tensor as version 1.
    fn publish(pulls: &Pulls, folder: &Path, tensor: [u8; 4]) {
        let header = r#"{"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}"#;
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &tensor].concat();
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(folder.join("model.safetensors"), bytes).expect("it is written");
        let places = pulls.places.as_ref().expect("a store").of_job("math");
        let published = places
            .stream(0)
            .publish(folder, 1, PublishOptions::default());
        published.expect("it is published");
    }

    #[tokio::test]
    async fn weights_of_a_store_that_was_made_anew_are_pulled_again() {
        let mut config = Config::default();
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        config.weights.store = path("store").display().to_string();
        config.weights.folder = path("local").display().to_string();
        let pulls = Pulls::new(&config);
        let wanted = Wanted {
            job: "math".to_owned(),
            lineage: 0,
            version: 1,
            folder: path("local/math/0/weight_v000001"),
            serving: None,
        };
        for tensor in [[1; 4], [2; 4]] {
            publish(&pulls, &path("saved"), tensor);
            pulls.pull(&wanted).await.expect("it is pulled");
            pulls.pull(&wanted).await.expect("it is there");
            let bytes = std::fs::read(wanted.folder.join("model.safetensors"));
            assert!(bytes.expect("a file").ends_with(&tensor));
            // An operator begins the run again, by the same name.
            std::fs::remove_dir_all(path("store")).expect("it is removed");
        }
        // Without the store nothing is proven.
        assert!(pulls.pull(&wanted).await.is_err());
    }
}
