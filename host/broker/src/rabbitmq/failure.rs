//! The meaning of lapin's errors.

use std::io;

use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};

use crate::{Address, BrokerError};

/// Why no connection could be made.
pub(super) fn connecting(address: &Address, error: &Error) -> BrokerError {
    let shown = address.to_string();
    match error.kind() {
        ErrorKind::ProtocolError(said) => match said.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                BrokerError::Credentials { address: shown }
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH) => {
                BrokerError::VirtualHost {
                    address: shown,
                    cause: text(said),
                }
            }
            _ => BrokerError::Unreachable {
                address: shown,
                cause: text(said),
            },
        },
        ErrorKind::IOError(error) => no_stream(address, shown, error),
        ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
            BrokerError::Protocol {
                address: shown,
                cause: error.to_string(),
            }
        }
        _ => BrokerError::Unreachable {
            address: shown,
            cause: error.to_string(),
        },
    }
}

/// Why no stream could be opened, or why it ended at once.
fn no_stream(address: &Address, shown: String, error: &io::Error) -> BrokerError {
    use io::ErrorKind as Kind;
    let cause = error.to_string();
    let is_cut = matches!(
        error.kind(),
        Kind::UnexpectedEof
            | Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::InvalidData
            | Kind::BrokenPipe
    );
    let is_tls_word = cause.contains("certificate") || cause.contains("TLS");
    if address.is_tls() && (is_cut || is_tls_word) {
        BrokerError::Tls {
            address: shown,
            cause,
        }
    } else if matches!(error.kind(), Kind::InvalidData | Kind::ConnectionAborted) {
        BrokerError::Protocol {
            address: shown,
            cause,
        }
    } else {
        BrokerError::Unreachable {
            address: shown,
            cause,
        }
    }
}

/// Why a queue or exchange could not be declared.
pub(super) fn declaring(name: &str, is_quorum: bool, error: &Error) -> BrokerError {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return lost(error);
    };
    let cause = text(said);
    match said.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED)
            if is_quorum && cause.contains("queue-type") && !cause.contains("inequivalent") =>
        {
            BrokerError::Quorum {
                name: name.to_owned(),
                cause,
            }
        }
        AMQPErrorKind::Hard(AMQPHardError::NOTIMPLEMENTED) if is_quorum => BrokerError::Quorum {
            name: name.to_owned(),
            cause,
        },
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::RESOURCELOCKED) => {
            BrokerError::Mismatch {
                name: name.to_owned(),
                cause,
            }
        }
        _ => lost(error),
    }
}

/// Why an operation on an open connection failed.
pub(super) fn lost(error: &Error) -> BrokerError {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return BrokerError::Lost {
            cause: error.to_string(),
        };
    };
    let cause = text(said);
    match said.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => BrokerError::Permission { cause },
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => BrokerError::Absent { cause },
        _ => BrokerError::Lost { cause },
    }
}

/// Whether the broker reported that something does not exist.
pub(super) fn is_absent(error: &Error) -> bool {
    matches!(lost(error), BrokerError::Absent { .. })
}

fn text(said: &AMQPError) -> String {
    said.get_message().to_string()
}
