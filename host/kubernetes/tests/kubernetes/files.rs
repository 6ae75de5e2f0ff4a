//! Access to files of pods from outside.

use std::io::{self, Read, Write};

use treadle_sandbox::{Entry, FileKind, SandboxError, UserIds};

use crate::stage::{Stage, run, script};

/// The kind of the error of a file operation.
fn kind<T: std::fmt::Debug>(told: Result<T, SandboxError>) -> io::ErrorKind {
    match told.expect_err("it can't be reached") {
        SandboxError::File { error, .. } => error.kind(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn files_are_written_and_read() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let path = format!("{}/it's a $folder/a file", stage.stand_in.inside());
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let write = |bytes: &[u8]| sandbox.write(&path, bytes.to_vec());
    write(&bytes).await.expect("written");
    assert!(sandbox.read(&path, 300_000).await.expect("read") == bytes);
    let too_long = kind(sandbox.read(&path, 299_999).await);
    assert_eq!(too_long, io::ErrorKind::FileTooLarge);
    write(b"").await.expect("an empty file");
    assert_eq!(sandbox.read(&path, 0).await.expect("read"), b"");

    let (file, owner) = (sandbox.create(&path, 0o600).await, UserIds::ROOT);
    let mut file = file.expect("a file");
    file.write_all(b"pieces").expect("written");
    let finished = sandbox.finish(owner, &path, 0o600, file).await;
    finished.expect("finished");
    let (mut file, mut text) = (sandbox.open(&path).await.expect("open"), String::new());
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "pieces");
    let told = sandbox.stat(&path).await.expect("it is there");
    assert_eq!(told.mode, 0o644, "it was there before, with these");
}

#[tokio::test]
async fn files_are_listed_moved_and_removed() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let folder = format!("{}/a $folder", stage.stand_in.inside());
    let path = format!("{folder}/below/a file");
    let written = sandbox.write(&path, b"pieces".to_vec()).await;
    written.expect("written");
    let link = format!("ln -s 'a file' '{folder}/below/link'");
    run(&sandbox, script(&link)).await.expect("it runs");
    let told = sandbox.stat(&path).await.expect("it is there");
    let told = (told.kind, told.size, told.name);
    assert_eq!(told, (FileKind::File, 6, "a file".to_owned()));
    let link = sandbox.stat(&format!("{folder}/below/link")).await;
    let link = link.expect("it is there");
    let target = Some("a file".to_owned());
    assert_eq!((link.kind, &link.target), (FileKind::Link, &target));

    let listed = sandbox.list(&folder, 2).await.expect("listed");
    let inside = |entry: &Entry| entry.path[folder.len()..].to_owned();
    let paths: Vec<String> = listed.iter().map(inside).collect();
    assert_eq!(paths, ["/below", "/below/a file", "/below/link"]);
    assert_eq!(listed[2].target, target);
    assert_eq!(sandbox.list(&folder, 1).await.expect("listed").len(), 1);

    let moved = format!("{folder}/new/place");
    sandbox.rename(&path, &moved).await.expect("moved");
    assert_eq!(kind(sandbox.stat(&path).await), io::ErrorKind::NotFound);
    assert!(!sandbox.make_folder(&folder).await.expect("it is there"));
    let new = sandbox.make_folder(&format!("{folder}/x/y")).await;
    assert!(new.expect("made"));
    sandbox.remove_file(&folder).await.expect("removed");
    assert_eq!(kind(sandbox.stat(&moved).await), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn file_errors_are_those_of_a_local_sandbox() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let inside = stage.stand_in.inside();
    let (folder, file) = (format!("{inside}/folder"), format!("{inside}/file"));
    sandbox.make_folder(&folder).await.expect("made");
    sandbox.write(&file, b"x".to_vec()).await.expect("written");
    let missing = format!("{inside}/missing");
    for told in [
        kind(sandbox.read(&missing, 1).await),
        kind(sandbox.list(&missing, 1).await),
        kind(sandbox.rename(&missing, &file).await),
        kind(sandbox.remove_file(&missing).await),
    ] {
        assert_eq!(told, io::ErrorKind::NotFound);
    }
    assert_eq!(
        kind(sandbox.read(&folder, 1).await),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(sandbox.read("/dev/zero", 1).await),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(sandbox.write(&folder, b"x".to_vec()).await),
        io::ErrorKind::IsADirectory
    );
    assert_eq!(
        kind(sandbox.list(&file, 1).await),
        io::ErrorKind::NotADirectory
    );
    assert_eq!(
        kind(sandbox.make_folder(&file).await),
        io::ErrorKind::NotADirectory
    );
    assert_eq!(
        kind(sandbox.remove_file("/").await),
        io::ErrorKind::InvalidInput
    );
    // The sandbox's disk limit also limits copies.
    let long = format!("head -c {} /dev/zero >{file}", (8 << 20) + 1);
    run(&sandbox, script(&long)).await.expect("it runs");
    assert_eq!(kind(sandbox.open(&file).await), io::ErrorKind::FileTooLarge);
    let much = vec![0; (8 << 20) + 1];
    assert_eq!(
        kind(sandbox.write(&file, much).await),
        io::ErrorKind::StorageFull
    );
}

#[tokio::test]
async fn transfers_stay_within_the_limit_on_local_disk() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let path = format!("{}/file", stage.stand_in.inside());
    let write = || sandbox.write(&path, b"bytes".to_vec());
    write().await.expect("written");
    let sent = sandbox.create(&path, 0o600).await.expect("a file");
    sent.set_len(1 << 30).expect("it is sparse");
    assert_eq!(kind(sandbox.open(&path).await), io::ErrorKind::StorageFull);
    assert_eq!(kind(write().await), io::ErrorKind::StorageFull);
    assert_eq!(sandbox.room(), 0);
    let sent = sandbox.finish(UserIds::ROOT, &path, 0o600, sent).await;
    assert!(
        sent.expect_err("too long").to_string().contains("split -b"),
        "the remedy is named"
    );
    assert_eq!(sandbox.read(&path, 5).await.expect("read"), b"bytes");
    write().await.expect("there is room again");
    let long = format!("truncate -s {} '{path}'", (8 << 20) + 1);
    run(&sandbox, script(&long)).await.expect("it runs");
    assert_eq!(kind(sandbox.open(&path).await), io::ErrorKind::FileTooLarge);
}
