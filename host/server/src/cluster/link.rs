//! The scheduler's end of gateways' connections.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use treadle_core::Origin;
use treadle_model::GatewayId;
use treadle_runs::links::{upgraded, write_lines};
use treadle_scheduler::link::FromGateway;
use treadle_scheduler::link::{LineError, PROTOCOL, read_line};
use treadle_scheduler::{ConnectionId, DriverHandle, DriverStopped, LinkInput};

/// Time that a gateway has for its first line.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts gateways' connections for a scheduler.
#[derive(Clone)]
pub(crate) struct LinkServer {
    /// The scheduler.
    pub(crate) driver: DriverHandle,
    /// Time that a gateway has to reconnect before its steps end.
    pub(crate) timeout: Duration,
}

/// Turns a request into a gateway's connection.
pub(crate) fn serve_link(server: LinkServer, request: Request) -> Response<Body> {
    upgraded(PROTOCOL, request, move |stream| async move {
        run(&server, stream).await;
    })
}

async fn run(server: &LinkServer, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let mut line = Vec::new();
    let hello = tokio::time::timeout(HELLO_TIMEOUT, read_line(&mut reader, &mut line));
    let Ok(Ok(FromGateway::Hello { gateway, name })) = hello.await else {
        tracing::warn!("a gateway's connection did not begin with its name");
        return;
    };
    let (sender, said) = unbounded_channel();
    // The driver holds the only sender, so that the writer ends with the driver, and with another
    // connection of the same gateway.
    let Ok(connection) = server.driver.join(gateway, sender) else {
        return;
    };
    tracing::info!(%gateway, name, "a gateway connected");
    let writing = write_lines(writer, said);
    let reading = async {
        loop {
            let said = match read_line(&mut reader, &mut line).await {
                Ok(said) => said,
                Err(error) => break error,
            };
            if take(&server.driver, gateway, connection, said).is_err() {
                break LineError::Closed;
            }
        }
    };
    let ended = tokio::select! {
        error = reading => error,
        error = writing => error,
        () = server.driver.stopped() => LineError::Closed,
    };
    tracing::warn!(%gateway, name, error = %ended, "a gateway's connection ended");
    leave(server, gateway, connection).await;
}

fn take(
    driver: &DriverHandle,
    gateway: GatewayId,
    connection: ConnectionId,
    said: FromGateway,
) -> Result<(), DriverStopped> {
    match said {
        FromGateway::Event {
            number,
            event,
            live,
        } => driver.link(LinkInput::Relayed {
            origin: Origin { gateway, number },
            event: Box::new(event),
            live: live.map(Into::into),
        }),
        FromGateway::Open { steps } => driver.link(LinkInput::Open {
            gateway,
            connection,
            steps,
        }),
        // Sent once already.
        FromGateway::Hello { .. } => Ok(()),
    }
}

/// Gives a disconnected gateway time to reconnect.
async fn leave(server: &LinkServer, gateway: GatewayId, connection: ConnectionId) {
    let at = Instant::now();
    let _ = server.driver.link(LinkInput::Left {
        gateway,
        connection,
        at,
    });
    expect_back(server, gateway).await;
}

/// Ends a gateway's steps unless it reconnects in time.
pub(crate) async fn expect_back(server: &LinkServer, gateway: GatewayId) {
    let timeout = server.timeout;
    tokio::time::sleep(timeout).await;
    let at = Instant::now();
    let _ = server.driver.link(LinkInput::Overdue {
        gateway,
        timeout,
        at,
    });
}
