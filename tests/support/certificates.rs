//! Certificates made for a test, and servers with them.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use treadle_config::Config;
use treadle_trust::Acceptor;

/// An authority and a certificate of it, by default for this machine.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Creates an authority and a certificate.
    pub fn new() -> Self {
        Self::of(&["localhost", "127.0.0.1"])
    }

    /// Creates an authority and a certificate for other names.
    pub fn of(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let own = params.signed_by(&key, &authority).expect("a certificate");
        for (name, text) in [
            ("ca.pem", authority.pem()),
            ("cert.pem", own.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        Self { folder }
    }

    /// One of `ca.pem`, `cert.pem` and `key.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Configures a daemon to accept certificates of this authority.
    pub fn trusted_by(&self, config: &mut Config) {
        config.tls.ca = self.file("ca.pem").display().to_string();
    }

    /// Configures a daemon also to present this certificate.
    pub fn used_by(&self, config: &mut Config) {
        self.trusted_by(config);
        config.tls.cert = self.file("cert.pem").display().to_string();
        config.tls.key = self.file("key.pem").display().to_string();
    }

    /// A TLS server that forwards everything to the plain one at a URL; returns its own URL.
    pub async fn before(&self, url: &str) -> String {
        let acceptor = Acceptor::load(&self.file("cert.pem"), &self.file("key.pem"));
        let acceptor = acceptor.expect("good files");
        let behind = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    let mut outside = acceptor.accept(stream).await.ok()?;
                    let mut inside = TcpStream::connect(behind).await.ok()?;
                    let copied = tokio::io::copy_bidirectional(&mut outside, &mut inside);
                    copied.await.ok()
                });
            }
        });
        format!("https://localhost:{port}")
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}
