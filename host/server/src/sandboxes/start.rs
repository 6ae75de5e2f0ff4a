//! Bringing up sandboxes.

use crate::start_error::StartError;
use std::path::PathBuf;
use std::time::Duration;
use treadle_config::Config;
use treadle_sandbox::{SandboxConfig, Sandboxes};
use treadle_store::Location;

/// What makes the daemon's binary keep a sandbox.
pub const KEEP_SUBCOMMAND: &str = "keep-sandbox";
/// Where sandboxes are without a store in a file.
const FOLDER: &str = "/var/lib/treadle";

/// Starts them. Their names end with the mark.
pub(crate) async fn start(config: &Config, mark: &str) -> Result<Sandboxes, StartError> {
    let section = &config.sandboxes;
    let given = |text: &String| (!text.is_empty()).then(|| PathBuf::from(text));
    let own = || std::env::current_exe().unwrap_or_else(|_| "treadle".into());
    let folder = given(&section.folder).unwrap_or_else(|| match config.store.location() {
        Location::File(path) => {
            let mut name = path.into_os_string();
            name.push(".sandboxes");
            name.into()
        }
        Location::Memory | Location::Postgres(_) => {
            PathBuf::from(FOLDER).join(format!("sandboxes-{}", config.server.listen.port()))
        }
    });
    let program = given(&section.keeper).unwrap_or_else(own);
    let cores = treadle_actions::cores();
    let defaults = SandboxConfig::new((program, vec![KEEP_SUBCOMMAND.into()]), folder, cores);
    let settings = SandboxConfig {
        cgroup: given(&config.actions.cgroup),
        sandboxes_max: section.sandboxes_max,
        memory_bytes: section.memory_bytes,
        processes_max: section.processes_max,
        disk_bytes_max: section.disk_bytes_max,
        images_bytes_max: section.images_bytes_max,
        uid: section.uid,
        ttl: Duration::from_secs(section.ttl_s),
        mark: mark.to_owned(),
        ..defaults
    };
    Ok(Sandboxes::start(settings).await?)
}
