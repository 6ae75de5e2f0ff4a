//! Connections to servers of this machine, with certificates made here.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::Acceptor;

const TIMEOUT: Duration = Duration::from_secs(30);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes certificate and key of a server with these names.
fn write_pair(authority: &Authority, folder: &Path, names: &[&str]) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    std::fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn acceptor(folder: &Path) -> Acceptor {
    Acceptor::load(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap()
}

/// A server that sends each client's bytes back, and its port.
async fn echo(acceptor: Acceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut bytes = [0; 4];
                let _ = stream.read_exact(&mut bytes).await;
                let _ = stream.write_all(&bytes).await;
            });
        }
    });
    port
}

fn trusting(file: &Path) -> Connector {
    Connector::new(Targets::all(), Trust::new(Some(file)), TIMEOUT)
}

async fn exchange(connector: &Connector, url: &str) -> Result<[u8; 4], ConnectError> {
    let mut stream = connector.connect(&url.parse().unwrap()).await?;
    let mut bytes = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.flush().await.unwrap();
    stream.read_exact(&mut bytes).await.unwrap();
    Ok(bytes)
}

#[tokio::test]
async fn a_server_proves_its_name_to_those_who_trust_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (authority(), authority());
    write_pair(&own, folder.path(), &["localhost"]);
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, own.pem()).unwrap();
    let port = echo(acceptor(folder.path())).await;
    let url = format!("https://localhost:{port}");
    assert_eq!(exchange(&trusting(&ca), &url).await.unwrap(), *b"ping");
    // The certificate is not one of the address.
    let by_address = format!("https://127.0.0.1:{port}");
    let refused = exchange(&trusting(&ca), &by_address).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Tls { .. }), "{refused}");
    // Another authority, and only the system's.
    std::fs::write(&ca, other.pem()).unwrap();
    for connector in [trusting(&ca), Connector::to_all(TIMEOUT)] {
        let refused = exchange(&connector, &url).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Tls { .. }), "{refused}");
    }
}

#[tokio::test]
async fn certificates_are_read_again_once_both_files_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (own, next) = (authority(), authority());
    let file = |name: &str| folder.path().join(name);
    write_pair(&own, folder.path(), &["localhost"]);
    std::fs::write(file("old.pem"), own.pem()).unwrap();
    std::fs::write(file("new.pem"), next.pem()).unwrap();
    let port = echo(acceptor(folder.path())).await;
    let url = format!("https://localhost:{port}");
    let (old, new) = (trusting(&file("old.pem")), trusting(&file("new.pem")));
    exchange(&old, &url).await.unwrap();
    let aside = tempfile::tempdir().unwrap();
    write_pair(&next, aside.path(), &["localhost"]);
    let replace = |name: &str| std::fs::copy(aside.path().join(name), file(name)).unwrap();
    // Half of the new pair: the old one holds.
    replace("cert.pem");
    exchange(&old, &url).await.unwrap();
    replace("key.pem");
    exchange(&new, &url).await.unwrap();
    // One that was there before may resume its session; a newcomer sees the new pair.
    let late = trusting(&file("old.pem"));
    exchange(&late, &url).await.unwrap_err();
}

#[test]
fn files_that_hold_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let aside = tempfile::tempdir().unwrap();
    let own = authority();
    let file = |name: &str| folder.path().join(name);
    let load = || Acceptor::load(&file("cert.pem"), &file("key.pem"));
    let said = |why: &str| {
        let error = load().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    said("cert.pem");
    write_pair(&own, folder.path(), &["localhost"]);
    load().unwrap();
    write_pair(&own, aside.path(), &["localhost"]);
    std::fs::copy(aside.path().join("key.pem"), file("key.pem")).unwrap();
    said("is not the key of");
    std::fs::write(file("cert.pem"), "nonsense").unwrap();
    said("no certificate");
    assert!(Trust::new(Some(&file("absent"))).check().is_err());
    assert!(Trust::new(Some(&file("cert.pem"))).check().is_err());
}

/// A daemon that listens on the port of this server, and takes it for itself.
fn beside(listener: &TcpListener) -> Connector {
    let targets = Targets::engines(listener.local_addr().unwrap(), []).unwrap();
    Connector::new(targets, Trust::default(), TIMEOUT)
}

#[tokio::test]
async fn names_are_checked_by_the_addresses_that_they_have() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connector = beside(&listener);
    for url in ["http://localhost", "http://127.0.0.1"] {
        let url = format!("{url}:{port}");
        let refused = connector.connect(&url.parse().unwrap()).await.unwrap_err();
        assert!(
            matches!(refused, ConnectError::Refused(_)),
            "{url}: {refused}"
        );
        assert!(connector.admit(&url).await.is_err());
    }
    let metadata = "http://169.254.169.254/latest".parse().unwrap();
    let refused = connector.connect(&metadata).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused(_)), "{refused}");
    // Nothing was connected to.
    let accepted = std::future::poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await;
    assert!(accepted.is_pending());
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://localhost:{}", other.local_addr().unwrap().port());
    let stream = connector.connect(&url.parse().unwrap()).await.unwrap();
    assert!(stream.tcp().nodelay().unwrap());
    connector.admit(&format!("{url}/")).await.unwrap();
}

#[tokio::test]
async fn an_engine_may_register_before_its_name_is_known() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connector = beside(&listener);
    let url = "http://nowhere.invalid:8000";
    connector.admit(url).await.unwrap();
    let refused = connector.connect(&url.parse().unwrap()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Name { .. }), "{refused}");
    drop(listener);
}
