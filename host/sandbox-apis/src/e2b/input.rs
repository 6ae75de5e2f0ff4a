//! Reading bodies of calls to envd, with limits.

use super::connect::{self, Fault};
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::HeaderMap;
use bytes::BytesMut;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::time::timeout;
use treadle_auth::Principal;
use treadle_http::InUse;
use treadle_http::body::{self, BodyLimits};
use treadle_runs::sandboxes::SandboxApp;
use treadle_wire::ErrorBody;

/// Largest message: the input written to a command at once, and its envelope.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The longest pause between messages of a stream that a client sends.
const PAUSE_MAX: Duration = Duration::from_hours(1);

/// The whole body of a call, with the permit for its bytes, which is held as long as they are in
/// memory.
pub(super) async fn whole(
    app: &SandboxApp,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, ErrorBody> {
    let room = &app.bodies;
    let tenant = &principal.tenant;
    let own_max = principal.share(tenant.limits.bodies_bytes, room.1);
    let limits = BodyLimits {
        bytes_max: principal.body_bytes_max(MESSAGE_BYTES_MAX),
        pause_max: app.body_timeout,
        in_use: InUse::new([room.clone(), (tenant.bodies_bytes.clone(), own_max)]),
    };
    let (bytes, in_use) = body::read(&mut headers.clone(), body, limits).await?;
    Ok(in_use.hold(bytes))
}

/// Reads the messages of a client's stream, one after another.
pub(super) struct Messages {
    body: BodyDataStream,
    /// Received bytes of the next messages.
    bytes: BytesMut,
}

impl Messages {
    pub(super) fn of(body: Body) -> Self {
        let body = body.into_data_stream();
        let bytes = BytesMut::new();
        Self { body, bytes }
    }

    /// The next message; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(length) = connect::first_length(&self.bytes) {
                if length > MESSAGE_BYTES_MAX {
                    let message =
                        format!("a message has more than {MESSAGE_BYTES_MAX} bytes; send less");
                    return Err(Fault::invalid(message));
                }
                if self.bytes.len() >= length {
                    return Ok(Some(self.bytes.split_to(length).freeze()));
                }
            }
            let next = timeout(PAUSE_MAX, self.body.next()).await;
            match next.map_err(|_| connect::late())? {
                Some(Ok(bytes)) => self.bytes.extend_from_slice(&bytes),
                Some(Err(error)) => {
                    return Err(Fault::invalid(format!("the body is invalid: {error}")));
                }
                None if self.bytes.is_empty() => return Ok(None),
                None => return Err(Fault::invalid("an envelope is cut short")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::iter;
    use std::convert::Infallible;

    async fn messages(pieces: &[&'static [u8]]) -> Result<Vec<Bytes>, Fault> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, Infallible>(*piece))
            .collect();
        let mut messages = Messages::of(Body::from_stream(iter(pieces)));
        let mut found = Vec::new();
        while let Some(message) = messages.next().await? {
            found.push(message);
        }
        Ok(found)
    }

    #[tokio::test]
    async fn messages_are_cut_out_of_what_comes() {
        let pieces: [&[u8]; 4] = [&[0, 0], &[0, 0, 2, b'{'], &[b'}', 0, 0, 0, 0, 1], b"x"];
        let found = messages(&pieces).await.expect("they are whole");
        assert_eq!(
            found,
            [
                Bytes::from_static(b"\0\0\0\0\x02{}"),
                Bytes::from_static(b"\0\0\0\0\x01x")
            ]
        );
        assert!(messages(&pieces[..2]).await.is_err(), "cut short");
        assert!(messages(&[&[0, 255, 0, 0, 0]]).await.is_err(), "too long");
        assert!(messages(&[]).await.expect("none").is_empty());
    }
}
