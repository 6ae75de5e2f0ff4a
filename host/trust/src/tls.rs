//! TLS by rustls with ring: trusted authorities for clients, and certificates for servers.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Stream;

/// The protocol that is spoken over TLS.
const HTTP_1: &[u8] = b"http/1.1";

/// Why TLS can't be set up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// Key and certificate do not match.
    #[error("{key} is not the key of {certificate}; use a matching pair")]
    Pair {
        /// The file of the key.
        key: String,
        /// The file of the certificate.
        certificate: String,
    },
    /// No authority is trusted.
    #[error("no certificate authority is available; install ca-certificates or set `tls.ca`")]
    NoRoots,
    /// The library refuses.
    #[error("TLS can't be set up: {0}")]
    Library(String),
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER
        .get_or_init(|| Arc::new(ring::default_provider()))
        .clone()
}

fn library(error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Library(error.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |cause: String| TlsError::File {
        path: path.to_owned(),
        cause,
    };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let list: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(error.to_string()))?;
    if list.is_empty() {
        return Err(wrong("it has no certificate (PEM)".to_owned()));
    }
    Ok(list)
}

/// The trusted authorities: those of the system, and those in a file.
#[derive(Clone, Debug, Default)]
pub struct Trust(Arc<Roots>);

#[derive(Debug, Default)]
struct Roots {
    file: Option<PathBuf>,
    /// Created when first needed: most daemons only have peers without TLS.
    client: OnceLock<Result<Arc<ClientConfig>, TlsError>>,
}

impl Trust {
    /// The system's authorities, and those in a file (PEM).
    pub fn new(file: Option<&Path>) -> Self {
        Self(Arc::new(Roots {
            file: file.map(Path::to_owned),
            client: OnceLock::new(),
        }))
    }

    /// Reads the file, so that a mistake shows before the first connection.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), TlsError> {
        self.0
            .file
            .as_deref()
            .map_or(Ok(()), |path| certificates(path).map(drop))
    }

    /// Encrypts a connection to the server `host`.
    ///
    /// # Errors
    /// The server can't prove that it is `host`, or closes the connection.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let client = self.0.client.get_or_init(|| client(self.0.file.as_deref()));
        let client = client.clone().map_err(io::Error::other)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connected = TlsConnector::from(client).connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(connected.into())))
    }
}

fn client(file: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for error in &add_system(&mut roots) {
        tracing::debug!(error, "a certificate of the system can't be used");
    }
    for certificate in file.map(certificates).transpose()?.unwrap_or_default() {
        roots.add(certificate).map_err(|error| library(&error))?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| library(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn add_system(roots: &mut RootCertStore) -> Vec<String> {
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    native.errors.iter().map(ToString::to_string).collect()
}

/// A server's certificate. The files are checked for each connection and reloaded when they have
/// changed; while they do not match, the previous pair stays in use.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    pair: Arc<Pair>,
}

#[derive(Debug)]
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    held: Mutex<LoadedPair>,
}

#[derive(Debug)]
struct LoadedPair {
    key: Arc<CertifiedKey>,
    /// The state of the files that were last read.
    stamps: [Option<FileStamp>; 2],
}

/// Identifies the state of a file: its modification time, length and inode.
type FileStamp = (SystemTime, u64, u64);

impl Acceptor {
    /// Reads certificate chain and key (PEM).
    ///
    /// # Errors
    /// A file can't be read, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let stamps = [certificate, key].map(file_stamp);
        let key_held = Arc::new(read_pair(certificate, key)?);
        let pair = Arc::new(Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            held: Mutex::new(LoadedPair {
                key: key_held,
                stamps,
            }),
        });
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| library(&error))?
            .with_no_client_auth()
            .with_cert_resolver(pair.clone());
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            pair,
        })
    }

    /// Encrypts an accepted connection. The caller limits the time.
    ///
    /// # Errors
    /// The client closes the connection, or does not speak TLS.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        self.pair.refresh();
        let accepted = TlsAcceptor::from(self.config.clone())
            .accept(stream)
            .await?;
        Ok(Stream::Tls(Box::new(accepted.into())))
    }
}

impl Pair {
    fn refresh(&self) {
        let now = [&self.certificate, &self.key].map(|path| file_stamp(path));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.stamps == now {
            return;
        }
        held.stamps = now;
        match read_pair(&self.certificate, &self.key) {
            Ok(key) => {
                held.key = Arc::new(key);
                tracing::info!(path = %self.certificate.display(), "the certificate was reloaded");
            }
            Err(error) => {
                tracing::warn!(%error, "the certificate could not be reloaded; keeping the previous one");
            }
        }
    }
}

impl ResolvesServerCert for Pair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        Some(held.key.clone())
    }
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let of = |file: Metadata| Some((file.modified().ok()?, file.len(), file.ino()));
    std::fs::metadata(path).ok().and_then(of)
}

fn read_pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let der = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
        path: key.to_owned(),
        cause: error.to_string(),
    })?;
    let pair = CertifiedKey::from_der(chain, der, &provider());
    pair.map_err(|error| match error {
        tokio_rustls::rustls::Error::InconsistentKeys(_) => TlsError::Pair {
            key: key.display().to_string(),
            certificate: certificate.display().to_string(),
        },
        error => library(&error),
    })
}
