//! TLS between the tiers of two nodes.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use treadle_transfer::{Executors, Limits, NodeTls, Settings, Tier, TierServer, TierSettings};
use treadle_trust::{Acceptor, Trust};

const SECRET: &str = "a secret of the nodes";

/// TLS with an authority of its own.
fn tls(folder: &Path) -> NodeTls {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let own = params.signed_by(&key, &authority).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = file("ca.pem", authority.pem());
    let (cert, key) = (file("c.pem", own.pem()), file("k.pem", key.serialize_pem()));
    NodeTls {
        acceptor: Acceptor::load(&cert, &key).unwrap(),
        trust: Trust::new(Some(&ca)),
    }
}

fn tier(folder: &Path) -> Tier {
    Tier::open(&TierSettings {
        folder: folder.join("tier"),
        slots_folder: folder.join("slots"),
        bytes_max: 1 << 20,
        node: "here".into(),
    })
    .unwrap()
}

fn executors(tier: &Tier, secret: &str, tls: Option<NodeTls>) -> Executors {
    Executors::new(Settings {
        tier: Some(tier.clone()),
        secret: Some(secret.into()),
        limits: Limits {
            tls,
            ..Limits::default()
        },
    })
}

#[tokio::test]
async fn nodes_with_tls_answer_nodes_with_tls_alone() {
    let [served_at, asking_at, stranger] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let own = tls(served_at.path());
    let limits = Limits {
        tls: Some(own.clone()),
        ..Limits::default()
    };
    let tier_there = tier(served_at.path());
    let bound = TierServer::bind("127.0.0.1:0", tier_there, Some(SECRET.into()), limits);
    let bound = bound.await.unwrap();
    let node = bound.address().to_string();
    let asking = tier(asking_at.path());
    let ask = async |secret: &str, tls: Option<NodeTls>| {
        executors(&asking, secret, tls).hear(&node).await
    };
    ask(SECRET, Some(own.clone())).await.unwrap();
    // Another secret, another authority, and no TLS at all.
    assert!(ask("b secret of the nodes", Some(own)).await.is_err());
    assert!(ask(SECRET, Some(tls(stranger.path()))).await.is_err());
    assert!(ask(SECRET, None).await.is_err());
}
