//! A client that writes raw bytes, for requests that no library sends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::TIMEOUT;

/// A connection that sends raw bytes.
pub struct RawClient(TcpStream);

impl RawClient {
    /// Connects to a base URL.
    pub async fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("http://");
        Self(TcpStream::connect(address).await.expect("a connection"))
    }

    /// Writes raw bytes.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.0.write_all(bytes.as_ref()).await
    }

    /// The bytes that the server sends until it closes the connection.
    pub async fn until_closed(&mut self) -> String {
        let mut answer = Vec::new();
        let reading = async {
            let mut piece = [0; 4096];
            // A reset is a close too.
            while let Ok(count @ 1..) = self.0.read(&mut piece).await {
                answer.extend_from_slice(&piece[..count]);
            }
        };
        let closed = tokio::time::timeout(TIMEOUT, reading).await.is_ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(closed, "still open; so far: {answer}");
        answer
    }

    /// The bytes that the server sends, up to and including a text.
    pub async fn until_text(&mut self, text: &str) -> String {
        let mut answer = Vec::new();
        let reading = async {
            let mut piece = [0; 4096];
            loop {
                let count = self.0.read(&mut piece).await.unwrap_or(0);
                answer.extend_from_slice(&piece[..count]);
                let seen = String::from_utf8_lossy(&answer).into_owned();
                if seen.contains(text) || count == 0 {
                    return seen;
                }
            }
        };
        let seen = tokio::time::timeout(TIMEOUT, reading).await;
        let seen = seen.unwrap_or_else(|_| panic!("`{text}` did not come"));
        assert!(seen.contains(text), "closed before `{text}`: {seen}");
        seen
    }
}
