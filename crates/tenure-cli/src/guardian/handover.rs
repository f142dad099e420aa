//! Gives a helper process our standard input, while its own input is the socket it is spoken to through.
//!
//! A child can be given three descriptors by number without `unsafe` code. The helper's input is therefore
//! the socket, and the real standard input follows over it as a descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends `input` over `socket`, with one byte to carry it.
///
/// # Errors
/// When the other end is gone.
pub fn give_stdin(socket: impl AsFd, input: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [input];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(b"i")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The socket that this process was started with as its standard input, under another number.
pub(super) fn own_socket() -> io::Result<UnixStream> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    Ok(UnixStream::from(socket))
}

/// Waits for the real standard input and puts it in its place. `None` if the giver went away.
pub(super) fn take_stdin(socket: &UnixStream) -> io::Result<Option<()>> {
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
