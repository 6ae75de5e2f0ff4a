//! A server with configured responses that records its requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server of this machine.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// A server that always returns `answer`, a complete HTTP response, or never answers if it is
    /// empty.
    pub(crate) async fn new(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (answer, heard) = (answer.to_owned(), asked.clone());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, answer.clone(), heard.clone()));
            }
        });
        Self { address, asked }
    }

    /// A server that returns a status, headers and a body.
    pub(crate) async fn answering(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::new(&format!(
            "HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its requests, each with head and body.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut connection: TcpStream, answer: String, heard: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    heard.lock().unwrap().push(text);
    if answer.is_empty() {
        // Until the client closes the connection.
        let _ = connection.read_buf(&mut request).await;
    }
    let _ = connection.write_all(answer.as_bytes()).await;
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().unwrap())
    });
    body.len() >= length.unwrap_or(0)
}
