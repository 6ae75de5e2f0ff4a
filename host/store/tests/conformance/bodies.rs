//! Bodies outside of the table: in a folder and in S3.

use std::sync::Arc;

use treadle_store::{BodiesAt, BodyRow, Location, Options, Store, open_with};

use super::cluster::bodies_come_back_as_they_were;
use super::surroundings::file;

async fn opened(at: &Location, bodies: BodiesAt) -> Arc<dyn Store> {
    let options = Options {
        bodies,
        ..Options::default()
    };
    open_with(at, &options).await.unwrap()
}

fn body(step: u64) -> BodyRow {
    BodyRow {
        program: "p".into(),
        step,
        kind: "prompt".into(),
        at_us: step,
        body: vec![step as u8; 100_000],
    }
}

#[tokio::test]
async fn bodies_are_files_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("new/bodies");
    let scratch = file();
    let store = opened(&scratch.at, BodiesAt::Folder(at.clone())).await;
    bodies_come_back_as_they_were(&*store).await;
    let rows: Vec<BodyRow> = (0..20).map(body).collect();
    store.put_bodies(&rows).await.unwrap();
    assert_eq!(store.bodies("p", 7).await.unwrap(), [body(7)]);
    let files = || std::fs::read_dir(&at).unwrap().count();
    assert_eq!(files(), 21, "none is left over");
    assert_eq!(store.prune_bodies(100).await.unwrap(), 21);
    assert_eq!(files(), 0);

    store.put_bodies(&[body(1)]).await.unwrap();
    store.close().await.unwrap();
    let store = opened(&scratch.at, BodiesAt::Table).await;
    let error = store.bodies("p", 1).await.unwrap_err();
    assert!(error.to_string().contains("not opened with"), "{error}");
    store.put_bodies(&[body(2)]).await.unwrap();
    store.close().await.unwrap();
    let store = opened(&scratch.at, BodiesAt::Folder(at)).await;
    for step in [1, 2] {
        let found = store.bodies("p", step).await.unwrap();
        assert_eq!(found, [body(step)], "those of the table are found too");
    }
}

#[cfg(not(feature = "s3"))]
#[tokio::test]
async fn a_build_without_s3_says_so() {
    let options = Options {
        bodies: BodiesAt::S3(treadle_store::S3Location::default()),
        ..Options::default()
    };
    let error = open_with(&Location::Memory, &options).await.err().unwrap();
    assert!(error.to_string().contains("feature `s3`"), "{error}");
}

#[cfg(feature = "s3")]
mod in_s3 {
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use treadle_store::{BodiesAt, Location, S3Location};

    type Objects = Arc<Mutex<HashMap<String, Vec<u8>>>>;

    /// Speaks as much of S3 as is needed; signatures are not looked at.
    fn serve(objects: Objects) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Ends with the process, which in `cargo nextest` is the test's.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = Arc::clone(&objects);
                std::thread::spawn(move || while answer(&stream, &objects).is_some() {});
            }
        });
        format!("http://127.0.0.1:{port}")
    }

    fn answer(mut stream: &TcpStream, objects: &Objects) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let mut objects = objects.lock().unwrap();
        let (status, body) = match method.as_str() {
            "PUT" => {
                objects.insert(path, body);
                ("200 OK", Vec::new())
            }
            "DELETE" => {
                objects.remove(&path);
                ("204 No Content", Vec::new())
            }
            _ => match objects.get(&path) {
                Some(body) => ("200 OK", body.clone()),
                None => ("404 Not Found", Vec::new()),
            },
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"e\"\r\n\
             Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()
    }

    /// Credentials come from the environment, so the test runs in a process of its own.
    #[test]
    fn bodies_are_objects_of_a_bucket() {
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "bodies::in_s3::child_keeps_bodies"])
            .env("AWS_ACCESS_KEY_ID", "k")
            .env("AWS_SECRET_ACCESS_KEY", "s")
            .env("AWS_REGION", "us-east-1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[tokio::test]
    #[ignore = "runs as the child of another test"]
    async fn child_keeps_bodies() {
        let objects = Objects::default();
        let at = BodiesAt::S3(S3Location {
            url: "s3://bucket/some/where".into(),
            endpoint: Some(serve(Arc::clone(&objects))),
        });
        let store = super::opened(&Location::Memory, at).await;
        super::bodies_come_back_as_they_were(&*store).await;
        store.put_bodies(&[super::body(4)]).await.unwrap();
        let names: Vec<String> = objects.lock().unwrap().keys().cloned().collect();
        assert!(
            names
                .iter()
                .any(|name| name == "/bucket/some/where/p_00prompt-4.zst"),
            "{names:?}"
        );
        assert_eq!(store.bodies("p", 4).await.unwrap(), [super::body(4)]);
        store.prune_bodies(1_000).await.unwrap();
        assert!(objects.lock().unwrap().is_empty());
    }
}
