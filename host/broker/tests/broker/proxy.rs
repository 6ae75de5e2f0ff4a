//! A TCP proxy between a client and a broker that a test can cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Forwards connections to a server until it is cut.
pub(crate) struct Proxy {
    port: u16,
    is_cut: Arc<AtomicBool>,
    cut: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Forwards to `host:port`.
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::new(Notify::new());
        let (flag, notify) = (Arc::clone(&is_cut), Arc::clone(&cut));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                if flag.load(Ordering::SeqCst) {
                    continue;
                }
                let (target, notify) = (target.clone(), Arc::clone(&notify));
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = notify.notified() => {}
                    }
                });
            }
        });
        Self {
            port,
            is_cut,
            cut,
            task,
        }
    }

    /// The port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections, and refuses new ones.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    /// Lets new connections through.
    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
