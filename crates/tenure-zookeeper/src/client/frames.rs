//! Messages on a connection, each after its length. Reading and writing can be interrupted at any time, and go on later.

use std::collections::VecDeque;
use std::io;

use tenure_endpoint::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};

/// The greatest length of a message from the server.
const MAX_REPLY: usize = 16 << 20;

/// The number of bytes to read at once.
const CHUNK: usize = 16 << 10;

/// Makes a reader and a writer of a connection.
pub(super) fn frames(stream: Box<dyn Stream>) -> (FrameReader, FrameWriter) {
    let (from, to) = split(stream);
    let reader = FrameReader {
        from,
        received: Vec::new(),
        start: 0,
    };
    let writer = FrameWriter {
        to,
        pending: VecDeque::new(),
        needs_flush: false,
    };
    (reader, writer)
}

/// Reads messages.
pub(super) struct FrameReader {
    from: ReadHalf<Box<dyn Stream>>,
    received: Vec<u8>,
    /// The number of bytes at the start of `received` that belong to messages that were returned.
    start: usize,
}

impl FrameReader {
    /// Waits for the next message. Dropping the future loses no byte. Fails if the server has closed the connection, or
    /// if the message is too long.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(length) = complete(&self.received[self.start..])? {
                let start = self.start + 4;
                self.start = start + length;
                return Ok(self.received[start..self.start].to_vec());
            }
            self.received.drain(..self.start);
            self.start = 0;
            self.received.reserve(CHUNK);
            if self.from.read_buf(&mut self.received).await? == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
        }
    }
}

/// The length of the first message, once all of it was received.
fn complete(received: &[u8]) -> io::Result<Option<usize>> {
    let Some((length, rest)) = received.split_first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*length)).ok();
    let length = length.filter(|length| *length <= MAX_REPLY);
    let length = length.ok_or_else(|| io::Error::other("the server sent a message that is too long"))?;
    Ok((rest.len() >= length).then_some(length))
}

/// Writes messages.
pub(super) struct FrameWriter {
    to: WriteHalf<Box<dyn Stream>>,
    /// The bytes that were not written yet.
    pub(super) pending: VecDeque<u8>,
    /// Whether a layer below may still keep bytes back.
    needs_flush: bool,
}

impl FrameWriter {
    /// Adds a message, which `advance` writes.
    pub(super) fn push(&mut self, message: &[u8]) {
        let length = i32::try_from(message.len()).unwrap_or(i32::MAX);
        self.pending.extend(length.to_be_bytes());
        self.pending.extend(message);
    }

    /// Whether `advance` has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.needs_flush
    }

    /// Writes some of the pending bytes, or flushes. Dropping the future loses no byte and writes none twice.
    pub(super) async fn advance(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            self.to.flush().await?;
            self.needs_flush = false;
            return Ok(());
        }
        if self.to.write_buf(&mut self.pending).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.needs_flush = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_whole_in_any_pieces() {
        let (ours, theirs) = tokio::io::duplex(3);
        let (mut reader, _) = frames(Box::new(ours));
        let (_, mut writer) = frames(Box::new(theirs));
        for message in [&b""[..], b"a", b"some bytes"] {
            writer.push(message);
        }
        let write = async {
            while !writer.is_idle() {
                writer.advance().await.expect("it is open");
            }
        };
        let read = async {
            for expected in [&b""[..], b"a", b"some bytes"] {
                assert_eq!(reader.next().await.expect("a message"), expected);
            }
        };
        tokio::join!(write, read);
        drop(writer);
    }

    #[test]
    fn a_length_that_is_not_possible_is_refused() {
        for length in [-1, i32::MIN, MAX_REPLY as i32 + 1] {
            assert!(complete(&length.to_be_bytes()).is_err(), "{length}");
        }
        assert_eq!(complete(&[0, 0, 0]).expect("no length yet"), None);
        assert_eq!(complete(&[0, 0, 0, 1]).expect("a length"), None);
        assert_eq!(complete(&[0, 0, 0, 1, 7, 7]).expect("a message"), Some(1));
    }
}
