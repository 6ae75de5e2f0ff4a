//! Private servers of one test, which it can kill and restart.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::programs::output_of;
use super::{Psql, Service, ServicesError, fresh_name};

/// Where their folders are made: the servers' own users must be able to enter it.
const FOLDER: &str = "/var/tmp";

/// Private servers, with ports and a folder of their own. Dropping this ends and removes them; if
/// this process dies, the script's watch does.
#[derive(Debug)]
pub struct Servers {
    folder: PathBuf,
}

impl Servers {
    /// Starts some and waits until they are ready, which takes seconds.
    ///
    /// # Errors
    /// If they can't be started; the text is the script's.
    pub fn start(services: &[Service]) -> Result<Self, ServicesError> {
        let folder = Path::new(FOLDER).join(fresh_name("treadle-services"));
        let servers = Self { folder };
        for service in services {
            servers.script(&["start", service.as_str()])?;
        }
        Ok(servers)
    }

    /// The servers' data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// URL of one of them; it stays when the server is killed and started again.
    ///
    /// # Errors
    /// If it was never started.
    pub fn url(&self, service: Service) -> Result<String, ServicesError> {
        let url = self.script(&["url", service.as_str()])?;
        Ok(url.trim().to_owned())
    }

    /// `psql` on its database.
    ///
    /// # Errors
    /// If the database was never started.
    pub fn psql(&self) -> Result<Psql, ServicesError> {
        Ok(Psql::new(self.url(Service::Postgres)?))
    }

    /// Kills all processes of one at once (SIGKILL) and waits until they are gone.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self, service: Service) -> Result<(), ServicesError> {
        self.script(&["kill", service.as_str()]).map(drop)
    }

    /// Starts one again on the data that it left, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&self, service: Service) -> Result<(), ServicesError> {
        self.script(&["restart", service.as_str()]).map(drop)
    }

    /// Stops a server cleanly; its data stays.
    ///
    /// # Errors
    /// If the script fails.
    pub fn stop(&self, service: Service) -> Result<(), ServicesError> {
        self.script(&["stop", service.as_str()]).map(drop)
    }

    fn script(&self, arguments: &[&str]) -> Result<String, ServicesError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services.sh");
        let mut command = Command::new(script);
        command
            .arg("--folder")
            .arg(&self.folder)
            .args(["--owner", &std::process::id().to_string()])
            .args(arguments)
            .stdin(Stdio::null());
        output_of(command)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Err(error) = self.script(&["remove"]) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}
