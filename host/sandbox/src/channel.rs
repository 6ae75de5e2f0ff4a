//! The socket between an agent and the first process of a sandbox. A message is a datagram with
//! file descriptors. Long messages (orders) are memory files, passed as descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a datagram.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 8 << 10;
/// Maximum size of an order: its command, its environment and the overhead of JSON.
const ORDER_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of descriptors of a message.
const DESCRIPTORS_MAX: usize = 4;

/// Both ends, with close-on-exec.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends a short message.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    message: &impl Serialize,
    beside: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(io::Error::other("a message exceeds the size limit"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(io::Error::other("a message has too many file descriptors"));
    }
    let buffers = [IoSlice::new(&bytes)];
    retry_on_intr(|| sendmsg(to, &buffers, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a short message; `None` when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    from: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = [0; DATAGRAM_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    // Processes inside may send the first process signals that it handles.
    let received =
        retry_on_intr(|| recvmsg(from, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let mut beside = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            beside.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..received.bytes])?;
    Ok(Some((message, beside)))
}

/// Writes a long message to a memory file.
pub(crate) fn long(message: &impl Serialize) -> io::Result<OwnedFd> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() as u64 > ORDER_BYTES_MAX {
        let problem = format!(
            "the command and its variables take {} bytes to be told, and may take \
             {ORDER_BYTES_MAX}; write them to a file, or send them as input",
            bytes.len()
        );
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, problem));
    }
    let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads a long message.
pub(crate) fn read_long<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let mut file = File::from(file);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(ORDER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// A memory file with these bytes, positioned at its beginning.
pub(crate) fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Sends a long message with further descriptors.
pub(crate) fn send_long(
    to: BorrowedFd<'_>,
    message: &impl Serialize,
    beside: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let file = long(message)?;
    let mut all = vec![file.as_fd()];
    all.extend(beside);
    send(to, &(), &all)
}

/// Receives a long message; `None` when the other end is closed.
pub(crate) fn receive_long<T: DeserializeOwned>(
    from: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some(((), mut beside)) = receive(from)? else {
        return Ok(None);
    };
    if beside.is_empty() {
        return Err(io::Error::other("an order came without its file"));
    }
    let order = read_long(beside.remove(0))?;
    Ok(Some((order, beside)))
}
