//! Passes the caller's standard input on to a helper process, whose own standard input is a socket.
//!
//! Without `unsafe` code a child can inherit only the descriptors 0, 1 and 2. So the helper starts with the socket as
//! its standard input, and receives the descriptor of the real standard input over that socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends the descriptor `input` over `socket`, with one byte of data, because a descriptor cannot travel alone.
///
/// # Errors
/// If the system cannot send it, for example because the other end is gone.
pub fn send_stdin(socket: impl AsFd, input: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [input];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(b"i")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Duplicates standard input, which is a socket when a helper process starts.
pub(super) fn own_socket() -> io::Result<UnixStream> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    Ok(UnixStream::from(socket))
}

/// Receives the real standard input and makes it descriptor 0. Returns `None` if the sender is gone.
pub(super) fn receive_stdin(socket: &UnixStream) -> io::Result<Option<()>> {
    let Some(input) = receive(socket)? else {
        return Ok(None);
    };
    rustix::stdio::dup2_stdin(&input)?;
    Ok(Some(()))
}

fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags()) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let whole = !received.flags.contains(ReturnFlags::CTRUNC);
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match fd {
        Some(fd) if whole => Ok(Some(fd)),
        _ => Err(io::Error::other(
            "the standard input did not arrive with its message",
        )),
    }
}

#[cfg(target_os = "linux")]
fn flags() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(not(target_os = "linux"))]
fn flags() -> RecvFlags {
    RecvFlags::empty()
}
