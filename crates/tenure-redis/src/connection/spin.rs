//! A stream that spins for replies: before the thread of a lone caller sleeps, it polls the socket for up to 100 µs.
//!
//! If the server runs on the same machine, sleeping and waking takes longer than the call itself. But a spinning
//! thread keeps its core busy, and its other tasks wait. So a caller spins only if it is alone on the connection and
//! received its last reply a moment ago. Spins that miss the reply make further ones rare.

use std::io;
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::connection::traffic::Traffic;

/// A lone caller spins if its last reply came within this time, and it spins for up to this time.
const SPIN: Duration = Duration::from_micros(100);

/// The most calls in a row that do not spin, after spins that missed the reply.
const MOST_SKIPPED: u32 = 1024;

/// A TCP stream whose flush spins: it polls the socket until the reply can be read, or time is up.
pub(crate) struct SpinStream {
    stream: TcpStream,
    traffic: Arc<Traffic>,
    /// A call spins only if the last reply is at most this old: [`SPIN`], or zero if no call may spin.
    recent: Duration,
    longest: Duration,
    /// Bytes were written since the last flush.
    has_written: bool,
    /// Time of the last reply.
    answered: Option<Instant>,
    budget: SpinBudget,
}

/// Lets fewer calls spin after spins that missed the reply.
#[derive(Debug, Default)]
struct SpinBudget {
    /// Number of calls that will not spin after the next spin that misses its reply.
    penalty: u32,
    /// Number of coming calls that will not spin.
    skip: u32,
}

impl SpinBudget {
    fn may_spin(&mut self) -> bool {
        let may = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        may
    }

    /// Lowers the penalty by a quarter. A miss about doubles it, so it takes about three successful spins to make up
    /// for a miss.
    fn found(&mut self) {
        self.penalty -= self.penalty.div_ceil(4);
    }

    fn missed(&mut self) {
        self.skip = self.penalty;
        self.penalty = MOST_SKIPPED.min(2 * self.penalty + 2);
    }
}

impl SpinStream {
    pub(crate) fn new(stream: TcpStream, traffic: Arc<Traffic>, may_spin: bool) -> Self {
        SpinStream {
            stream,
            traffic,
            recent: if may_spin { SPIN } else { Duration::ZERO },
            longest: SPIN,
            has_written: false,
            answered: None,
            budget: SpinBudget::default(),
        }
    }

    fn is_alone(&self) -> bool {
        self.traffic.calls_in_flight() == 1
    }

    /// Polls the socket until the reply or the end of the connection can be read. Gives up when another caller comes,
    /// or time is up. Does not poll at all if another call is in flight, if the last reply is too old or there was
    /// none, or if the budget forbids it after spins that missed.
    fn spin(&mut self) {
        let now = Instant::now();
        let is_recent = self.answered.is_some_and(|answered| now < answered + self.recent);
        if !(self.is_alone() && is_recent && self.budget.may_spin()) {
            return;
        }
        while self.is_alone() {
            match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return self.budget.found(),
            }
            if now + self.longest <= Instant::now() {
                return self.budget.missed();
            }
            std::thread::yield_now();
        }
    }
}

impl AsyncRead for SpinStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            let now = Instant::now();
            self.answered = Some(now);
            self.traffic.heard(now);
        }
        read
    }
}

impl AsyncWrite for SpinStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if mem::take(&mut self.has_written) {
            self.spin();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may panic")]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream as Peer};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// The `SpinBudget::penalty` after a call. Before the call, `penalty_after_spin` sets the penalty to 4. A call
    /// that does not spin leaves it at 4; a spin that finds the reply lowers it to 3.
    const SKIPPED: u32 = 4;
    const FOUND: u32 = 3;

    fn penalty_after_spin(stream: &mut SpinStream) -> u32 {
        stream.budget = SpinBudget { penalty: 4, skip: 0 };
        stream.spin();
        stream.budget.penalty
    }

    /// A stream with one call in flight, and the server's end, which the test plays.
    async fn connected() -> (SpinStream, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().expect("a client connects");
        let traffic = Arc::new(Traffic::default());
        traffic.call_begins();
        let mut stream = SpinStream::new(stream, traffic, true);
        (stream.recent, stream.longest) = (LONG, LONG);
        (stream, server)
    }

    async fn read(stream: &mut SpinStream) {
        assert_eq!(stream.read(&mut [0; 64]).await.expect("it is connected"), 1);
    }

    async fn answered(stream: &mut SpinStream, server: &mut Peer) {
        server.write_all(b"!").expect("it is connected");
        read(stream).await;
    }

    fn answer(mut server: Peer) -> Peer {
        server.read_exact(&mut [0]).expect("it is asked");
        server.write_all(b"!").expect("it is connected");
        server
    }

    #[tokio::test]
    async fn the_flush_of_a_repeated_call_ends_with_its_answer() {
        let (mut stream, mut server) = connected().await;
        answered(&mut stream, &mut server).await;
        for _ in 0..100 {
            stream.budget.penalty = 4;
            let answers = std::thread::spawn(|| answer(server));
            stream.write_all(b"?").await.expect("it is connected");
            stream.flush().await.expect("it is connected");
            assert_eq!(stream.budget.penalty, 3, "it was found");
            server = answers.join().expect("it is asked");
            read(&mut stream).await;
        }
    }

    #[tokio::test]
    async fn only_a_lone_repeated_call_spins() {
        let (mut stream, mut server) = connected().await;
        assert_eq!(penalty_after_spin(&mut stream), SKIPPED, "the first call");
        answered(&mut stream, &mut server).await;
        stream.traffic.call_begins();
        assert_eq!(penalty_after_spin(&mut stream), SKIPPED);
        stream.traffic.call_ends();
        stream.recent = Duration::ZERO;
        assert_eq!(penalty_after_spin(&mut stream), SKIPPED);
        stream.recent = LONG;
        server.write_all(b"!").expect("it is connected");
        assert_eq!(penalty_after_spin(&mut stream), FOUND);
    }

    #[tokio::test]
    async fn a_spin_ends_when_another_caller_comes() {
        let (mut stream, mut server) = connected().await;
        answered(&mut stream, &mut server).await;
        let traffic = stream.traffic.clone();
        let calls = std::thread::spawn(move || {
            server.read_exact(&mut [0]).expect("it is asked");
            traffic.call_begins();
            server
        });
        stream.write_all(b"?").await.expect("it is connected");
        let begun = Instant::now();
        stream.flush().await.expect("it is connected");
        assert!(begun.elapsed() < LONG, "the other call waits");
        assert_eq!(stream.budget.penalty, 0, "no miss was counted");
        calls.join().expect("it is asked");
    }

    #[tokio::test]
    async fn spins_become_rare_when_the_server_is_slow() {
        let (mut stream, mut server) = connected().await;
        answered(&mut stream, &mut server).await;
        stream.longest = Duration::from_micros(1);
        let missed = (0..20).filter(|_| {
            let before = stream.budget.penalty;
            stream.spin();
            assert!(before <= stream.budget.penalty, "nothing was found");
            before < stream.budget.penalty
        });
        assert_eq!(missed.collect::<Vec<_>>(), [0, 1, 4, 11]);
    }

    #[tokio::test]
    async fn the_end_of_the_connection_ends_a_spin() {
        let (mut stream, mut server) = connected().await;
        answered(&mut stream, &mut server).await;
        drop(server);
        assert_eq!(penalty_after_spin(&mut stream), FOUND);
        assert_eq!(stream.read(&mut [0; 64]).await.expect("it was closed"), 0);
    }

    /// Makes `calls` calls, and counts the spins that miss the reply. The spin of a call finds the reply if `finds`
    /// is true for the call's number.
    fn misses(calls: u32, finds: impl Fn(u32) -> bool) -> usize {
        let mut budget = SpinBudget::default();
        let missed = (0..calls).filter(|call| {
            let (tried, finds) = (budget.may_spin(), finds(*call));
            match (tried, finds) {
                (true, true) => budget.found(),
                (true, false) => budget.missed(),
                (false, _) => {}
            }
            tried && !finds
        });
        missed.count()
    }

    #[test]
    fn misses_become_rare_even_if_every_second_call_finds_its_answer() {
        assert!(misses(100_000, |_| false) < 120);
        assert!(misses(100_000, |call| call % 2 == 0) < 2000);
    }

    #[test]
    fn answers_that_are_found_restore_the_budget() {
        let mut budget = SpinBudget::default();
        for _ in 0..100 {
            budget.missed();
        }
        let calls_to =
            |budget: &mut SpinBudget| (0..).find(|_| budget.may_spin()).expect("it is tried again");
        assert_eq!(calls_to(&mut budget), MOST_SKIPPED);
        for _ in 0..30 {
            budget.found();
        }
        budget.missed();
        assert_eq!(calls_to(&mut budget), 0);
    }
}
