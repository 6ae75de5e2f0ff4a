//! Copies between nodes.

use std::time::Duration;

use crate::engines::{Engine, Slots, export, ids, import};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use treadle_model::EngineKind;
use treadle_transfer::{
    Executors, KvCopy, KvExecutor, Limits, Settings, Tier, TierServer, TierSettings, WorkerRef,
    frame,
};

const SECRET: &str = "a secret of the nodes";

/// A node: tier, its server, an engine.
struct Node {
    folder: TempDir,
    tier: Tier,
    server: TierServer,
    slots: Slots,
    engine: Engine,
}

fn limits() -> Limits {
    Limits {
        export: Duration::from_secs(5),
        import: Duration::from_secs(5),
        ..Limits::default()
    }
}

/// Of a server that soon closes silent connections.
fn hasty() -> Limits {
    Limits {
        idle: Duration::from_millis(200),
        ..limits()
    }
}

/// A free address, which the tier has to know before its server is there.
async fn address() -> String {
    let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
    probe.local_addr().unwrap().to_string()
}

async fn node() -> Node {
    node_with(limits()).await
}

async fn node_with(limits: Limits) -> Node {
    node_of(10 << 20, limits).await
}

async fn node_of(bytes_max: u64, limits: Limits) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let address = address().await;
    let tier = Tier::open(&TierSettings {
        folder: folder.path().join("tier"),
        slots_folder: folder.path().join("slots"),
        bytes_max,
        node: address.as_str().into(),
    })
    .unwrap();
    let server = TierServer::bind(&address, tier.clone(), Some(SECRET.into()), limits);
    let slots = Slots::new(folder.path().join("slots"));
    Node {
        tier,
        server: server.await.unwrap(),
        engine: slots.serve().await,
        slots,
        folder,
    }
}

impl Node {
    fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// The engine, as another node names it.
    fn worker(&self) -> WorkerRef {
        WorkerRef {
            node: Some(self.address().into()),
            ..self.engine.worker(EngineKind::Llamacpp)
        }
    }

    fn executors(&self, secret: &str) -> Executors {
        self.executors_with(secret, limits())
    }

    fn executors_with(&self, secret: &str, limits: Limits) -> Executors {
        Executors::new(Settings {
            tier: Some(self.tier.clone()),
            secret: Some(secret.into()),
            limits,
        })
    }

    fn slot_files(&self) -> usize {
        let slots = std::fs::read_dir(self.folder.path().join("slots"));
        slots.unwrap().count()
    }

    /// Waits until nothing is left of a transfer: its room is free after its file is gone.
    async fn rests(&self) {
        let began = std::time::Instant::now();
        let held = || -> u64 { self.tier.copies().iter().map(|copy| copy.bytes).sum() };
        while self.slot_files() > 0
            || self.tier.usage().in_transfer > 0
            || self.tier.usage().bytes > held()
        {
            assert!(began.elapsed() < Duration::from_secs(5));
            tokio::task::yield_now().await;
        }
    }
}

/// Has a program's KV copied from an engine's slot 0.
async fn copy(executors: &Executors, from: &Node, program: u32, tokens: u32) -> KvCopy {
    let held = ids(program, tokens);
    from.slots.put(0, &held);
    let asked = export(from.worker(), program.into(), &held);
    executors.export(asked).await.unwrap()
}

#[tokio::test]
async fn kv_goes_out_and_in_at_other_nodes() {
    let (here, there, third) = (node().await, node().await, node().await);
    let executors = here.executors(SECRET);
    // Large enough for several pieces.
    let tokens = 6_000;
    let held = ids(1, tokens);
    // Out of and into every pair of nodes.
    for from in [&here, &there] {
        let copy = copy(&executors, from, 1, tokens).await;
        assert_eq!(from.tier.copies(), std::slice::from_ref(&copy));
        for to in [&here, &there, &third] {
            to.slots.put(1, &[]);
            let taken = executors.import(import(to.worker(), &copy, &held)).await;
            assert_eq!(taken.unwrap().tokens, u64::from(tokens));
            assert_eq!(to.slots.get(1), held);
            to.rests().await;
        }
        executors.drop(copy).await.unwrap();
        assert_eq!(from.tier.copies(), []);
    }
    for node in [&here, &there, &third] {
        node.rests().await;
        assert_eq!(node.tier.usage().bytes, 0);
    }
}

#[tokio::test]
async fn another_slot_is_no_copy_there_either() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    there.slots.put(0, &ids(2, 50));
    let asked = export(there.worker(), 1, &ids(1, 60));
    let error = executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "other-prefix");
    let began = std::time::Instant::now();
    while !there.tier.copies().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    there.rests().await;
}

#[tokio::test]
async fn every_node_hears_of_what_gave_way_and_strangers_of_nothing() {
    let (here, third) = (node().await, node().await);
    // 50 tokens have some 5,200 bytes, so two copies fit.
    let there = node_of(12_000, limits()).await;
    let executors = here.executors(SECRET);
    let first = copy(&executors, &there, 1, 50).await;
    for program in 2..4 {
        copy(&executors, &there, program, 50).await;
    }
    let stranger = here.executors("b secret of the nodes");
    let error = stranger.hear(&there.address()).await.unwrap_err();
    assert_eq!(error.code(), "node");
    // The peer beside it has received them, and other nodes receive them all the same.
    assert_eq!(there.tier.evictions().next().await.id, first.id);
    for asking in [&here, &third] {
        let executors = asking.executors(SECRET);
        executors.hear(&there.address()).await.unwrap();
        executors.hear(&there.address()).await.unwrap();
        let heard = asking.tier.evictions().take(9);
        assert_eq!(heard.len(), 1, "once");
        assert_eq!(heard[0].id, first.id);
    }
    // It is not reported as this node's own.
    let back = there.executors(SECRET);
    back.hear(&here.address()).await.unwrap();
    assert_eq!(there.tier.evictions().take(9), []);
}

#[tokio::test]
async fn a_refusal_reveals_nothing_to_strangers() {
    let node = node_of(6_000, limits()).await;
    let executors = node.executors(SECRET);
    for program in 1..3 {
        copy(&executors, &node, program, 50).await;
    }
    let mut stream = TcpStream::connect(node.server.address()).await.unwrap();
    let words = br#"{"secret": "wrong", "verb": {"verb": "tell"}}"#;
    let words = frame::encode(words).unwrap();
    stream.write_all(&words).await.unwrap();
    let answer = frame::read(&mut stream).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["said"]["code"], "refused");
    assert_eq!(answer["news"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_scheduler_drops_only_its_own_orphans() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let (kept, orphan) = (
        copy(&executors, &there, 1, 50).await,
        copy(&executors, &there, 2, 50).await,
    );
    let held = ids(3, 50);
    there.slots.put(0, &held);
    let mut asked = export(there.worker(), 3, &held);
    asked.owner = "other".into();
    let others = executors.export(asked).await.unwrap();
    let known = [kept.id].into();
    let address = there.address();
    executors.keep_only(&address, "main", &known).await.unwrap();
    assert_eq!(there.tier.copies(), [kept.clone(), others.clone()]);
    let gone = import(there.worker(), &orphan, &ids(2, 50));
    assert_eq!(executors.import(gone).await.unwrap_err().code(), "gone");
    // The only user of a tier knows all that may be in it.
    assert_eq!(there.tier.keep_only(None, &known).await, 1);
    assert_eq!(there.tier.copies(), [kept]);
}

#[tokio::test]
async fn silent_strangers_keep_no_peer_out() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let mut silent = Vec::new();
    for _ in 0..2 * limits().connections_max {
        silent.push(TcpStream::connect(there.server.address()).await.unwrap());
    }
    let copy = copy(&executors, &there, 1, 50).await;
    assert_eq!(there.tier.copies(), [copy]);
    // The oldest were sent away.
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_node_at_its_limit_reports_it() {
    let here = node().await;
    let there = node_with(Limits {
        connections_max: 1,
        ..limits()
    })
    .await;
    let executors = here.executors(SECRET);
    let copy = copy(&executors, &there, 1, 50).await;
    there.slots.asked.lock().unwrap().clear();
    there.slots.free.forget_permits(usize::MAX);
    let restored = executors.import(import(there.worker(), &copy, &ids(1, 50)));
    let meanwhile = async {
        there.slots.until_asked(1).await;
        let error = executors.drop(copy.clone()).await.unwrap_err();
        assert_eq!(error.code(), "busy");
        there.slots.free.add_permits(10);
    };
    let (restored, ()) = tokio::join!(restored, meanwhile);
    assert_eq!(restored.unwrap().tokens, 50);
    there.rests().await;
    assert_eq!(there.tier.copies(), [copy]);
}

#[tokio::test]
async fn a_copy_is_not_written_over() {
    let node = node().await;
    let copy = copy(&node.executors(SECRET), &node, 1, 50).await;
    let before = node.tier.usage();
    let words = serde_json::json!({
        "secret": SECRET, "verb": { "verb": "save", "id": copy.id },
    });
    let words = frame::encode(words.to_string().as_bytes()).unwrap();
    let mut stream = TcpStream::connect(node.server.address()).await.unwrap();
    stream.write_all(&words).await.unwrap();
    let answer = frame::read(&mut stream).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["said"]["code"], "wrong-handle");
    assert_eq!(node.tier.usage(), before);
    assert_eq!(node.tier.copies(), [copy]);
}

#[tokio::test]
async fn peers_without_the_secret_are_refused() {
    let (here, there) = (node().await, node().await);
    for secret in ["", "b secret of the nodes", "a secret of the nodes!"] {
        let executors = here.executors(secret);
        there.slots.put(0, &ids(1, 50));
        let asked = export(there.worker(), 1, &ids(1, 50));
        let error = executors.export(asked).await.unwrap_err();
        assert_eq!(error.code(), "node", "{error}");
        assert!(error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(there.slots.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn damage_on_the_other_node_is_found() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let copy = copy(&executors, &there, 1, 50).await;
    let path = there.folder.path().join(format!("tier/{}.kv", copy.id));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let asked = import(here.worker(), &copy, &ids(1, 50));
    let error = executors.import(asked.clone()).await.unwrap_err();
    assert_eq!(error.code(), "damaged");
    std::fs::write(&path, &bytes[..600]).unwrap();
    let error = executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable", "{error}");
    assert_eq!(here.slots.get(1), Vec::<u32>::new());
    here.rests().await;
    assert_eq!(here.tier.usage().bytes, 0);
}

/// A relay to a node that ends, or falls silent, after `bytes_max` bytes of its answer.
async fn relay(to: String, bytes_max: u64, silent: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(to).await.unwrap();
        let (from, mut to) = server.into_split();
        let (mut asking, mut answering) = client.split();
        let there = tokio::io::copy(&mut asking, &mut to);
        let back = async {
            let mut from = from.take(bytes_max);
            tokio::io::copy(&mut from, &mut answering).await.unwrap();
            if silent {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! { _ = there => {}, () = back => {} }
    });
    address
}

/// A relay to a node that ends with the answer that comes after `answers` others.
async fn relay_answers(to: String, answers: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(to).await.unwrap();
        let (mut from, mut to) = server.into_split();
        let (mut asking, mut answering) = client.split();
        let back = async {
            for _ in 0..answers {
                let answer = frame::read(&mut from).await.unwrap();
                frame::write(&mut answering, &answer).await.unwrap();
            }
            frame::read(&mut from).await.unwrap();
        };
        tokio::select! { _ = tokio::io::copy(&mut asking, &mut to) => {}, () = back => {} }
    });
    address
}

#[tokio::test]
async fn a_copy_that_goes_unreported_is_not_kept_and_its_slot_is() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let held = ids(1, 50);
    there.slots.put(0, &held);
    // The last answer confirms that the copy stays.
    let worker = WorkerRef {
        node: Some(relay_answers(there.address(), 2).await.into()),
        ..there.worker()
    };
    let error = executors.export(export(worker, 1, &held)).await;
    assert_eq!(error.unwrap_err().code(), "unreachable");
    there.rests().await;
    assert_eq!(there.tier.copies(), []);
    assert_eq!(there.slots.get(0), held);
}

#[tokio::test]
async fn a_source_that_dies_or_stalls_in_mid_transfer_leaves_nothing() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let tokens = 6_000;
    let copy = copy(&executors, &there, 1, tokens).await;
    for (silent, code) in [(false, "unreachable"), (true, "timeout")] {
        let mut told = copy.clone();
        told.place = treadle_transfer::CopyLocation::Tier {
            owner: "main".into(),
            node: relay(there.address(), 300_000, silent).await.into(),
        };
        let asked = import(here.worker(), &told, &ids(1, tokens));
        let limits = if silent { hasty() } else { limits() };
        let executors = here.executors_with(SECRET, limits);
        let error = executors.import(asked).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        here.rests().await;
        assert_eq!(here.tier.usage().bytes, 0);
    }
    assert_eq!(
        here.slots.asked.lock().unwrap().len(),
        0,
        "nothing restored"
    );
    there.rests().await;
    assert_eq!(there.tier.copies(), [copy]);
}

#[tokio::test]
async fn a_peer_that_asks_and_dies_leaves_nothing() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let copy = copy(&executors, &here, 1, 50).await;
    executors.support(there.worker()).await.unwrap();
    there.slots.free.forget_permits(usize::MAX);
    {
        let asked = import(there.worker(), &copy, &ids(1, 50));
        let mut import = std::pin::pin!(executors.import(asked));
        let restoring = async {
            while there.slots.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = restoring => {}
            taken = &mut import => panic!("{taken:?}"),
        }
        assert_eq!(there.slot_files(), 1);
    }
    there.rests().await;
    assert_eq!(there.tier.usage().bytes, 0);
}

#[tokio::test]
async fn a_dead_node_is_reported() {
    let (here, there) = (node().await, node().await);
    let executors = here.executors(SECRET);
    let copy = copy(&executors, &there, 1, 50).await;
    let worker = there.worker();
    drop(there);
    let asked = import(here.worker(), &copy, &ids(1, 50));
    let error = executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    let error = executors.export(export(worker, 1, &ids(1, 50))).await;
    assert_eq!(error.unwrap_err().code(), "unreachable");
    let error = executors.drop(copy).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
}

#[tokio::test]
async fn invalid_messages_end_the_connection() {
    let node = node_with(hasty()).await;
    for words in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        frame::encode(b"{}").unwrap(),
        frame::encode(&[b'['; 10_000]).unwrap(),
    ] {
        let mut stream = TcpStream::connect(node.server.address()).await.unwrap();
        stream.write_all(&words).await.unwrap();
        let mut answer = Vec::new();
        // It may be reset, because not all was read.
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, Vec::<u8>::new(), "{words:?}");
    }
    // A silent one is not waited for.
    let mut silent = TcpStream::connect(node.server.address()).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
}
