//! A connection whose next answer is looked for awake, before the thread sleeps, while a lone caller comes again and again:
//! with a server near by, to fall asleep and be woken takes longer than the call itself.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Who asks so soon after an answer comes again and again.
const AT_ONCE: Duration = Duration::from_micros(100);

/// For how long an answer is looked for. Other tasks of the thread wait meanwhile.
const LOOK_FOR: Duration = Duration::from_micros(100);

/// After looks in vain so many calls are let pass at the most before the next.
const MOST_PASSED: u32 = 1024;

/// A stream whose flush ends when the answer has come, if that is soon.
pub(crate) struct Awake {
    stream: TcpStream,
    /// How many callers wait for an answer on it.
    under_way: Arc<AtomicUsize>,
    /// `AT_ONCE` and `LOOK_FOR`, which tests change.
    at_once: Duration,
    look_for: Duration,
    /// Whether something was written and not flushed.
    wrote: bool,
    /// When an answer came last.
    answered: Option<Instant>,
    luck: Luck,
}

/// Whether looking was worth it lately: a server that is far, or too busy to answer at once, is soon left alone.
#[derive(Debug, Default)]
struct Luck {
    /// How many calls are let pass after the next look in vain.
    pass: u32,
    /// How many of them are still to come.
    passing: u32,
}

impl Luck {
    /// Whether to look for the answer to this call.
    fn is_tried(&mut self) -> bool {
        let passed = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        !passed
    }

    /// One miss weighs as much as more than two answers that are found.
    fn found(&mut self) {
        self.pass -= self.pass.div_ceil(4);
    }

    fn missed(&mut self) {
        self.passing = self.pass;
        self.pass = MOST_PASSED.min(2 * self.pass + 2);
    }
}

impl Awake {
    pub(crate) fn new(stream: TcpStream, under_way: Arc<AtomicUsize>) -> Self {
        Awake {
            stream,
            under_way,
            at_once: AT_ONCE,
            look_for: LOOK_FOR,
            wrote: false,
            answered: None,
            luck: Luck::default(),
        }
    }

    /// Whether the answer to what was just flushed is looked for: that of a lone caller who was answered a moment ago.
    fn is_looked_for(&mut self, now: Instant) -> bool {
        self.is_lone()
            && self
                .answered
                .is_some_and(|answered| now < answered + self.at_once)
            && self.luck.is_tried()
    }

    fn is_lone(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 1
    }

    /// Looks for the answer to what was just flushed, if that is worth it. It is then read as any: the runtime is told of it
    /// before the thread sleeps.
    fn look(&mut self) -> Look {
        let now = Instant::now();
        if !self.is_looked_for(now) {
            return Look::Left;
        }
        let until = now + self.look_for;
        while self.is_lone() {
            match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Or the connection has ended: whoever reads is told.
                _ => {
                    self.luck.found();
                    return Look::Found;
                }
            }
            if until <= Instant::now() {
                self.luck.missed();
                return Look::InVain;
            }
            // Whoever else could use the core may have it.
            std::thread::yield_now();
        }
        Look::Left
    }
}

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Found,
    InVain,
    /// It was not worth it, or is not any more: others call, too, or nobody does.
    Left,
}

impl AsyncRead for Awake {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.answered = Some(Instant::now());
        }
        read
    }
}

impl AsyncWrite for Awake {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.wrote = true;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wrote = true;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if std::mem::take(&mut self.wrote) {
            self.look();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream as Peer};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// A connection with one call under way, whose server is this test.
    async fn connected() -> (Awake, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().expect("somebody connects");
        let mut awake = Awake::new(stream, Arc::new(AtomicUsize::new(1)));
        (awake.at_once, awake.look_for) = (LONG, LONG);
        (awake, server)
    }

    /// Reads an answer that has come, or that comes, as anybody does.
    async fn read(awake: &mut Awake) {
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it is connected"), 1);
    }

    async fn answered(awake: &mut Awake, server: &mut Peer) {
        server.write_all(b"!").expect("it is connected");
        read(awake).await;
    }

    /// Waits for a question, and answers it.
    fn answer(mut server: Peer) -> Peer {
        server.read_exact(&mut [0]).expect("it is asked");
        server.write_all(b"!").expect("it is connected");
        server
    }

    #[tokio::test]
    async fn the_flush_of_who_comes_again_ends_when_the_answer_has_come() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        for _ in 0..100 {
            awake.luck.pass = 4;
            let answers = std::thread::spawn(|| answer(server));
            awake.write_all(b"?").await.expect("it is connected");
            awake.flush().await.expect("it is connected");
            assert_eq!(awake.luck.pass, 3, "it was found");
            server = answers.join().expect("it is asked");
            read(&mut awake).await;
        }
    }

    #[tokio::test]
    async fn nobody_looks_for_the_first_answer_nor_while_others_call_nor_after_a_rest() {
        let (mut awake, mut server) = connected().await;
        assert_eq!(awake.look(), Look::Left, "nobody knows whether it comes again");
        answered(&mut awake, &mut server).await;
        awake.under_way.store(2, Ordering::Relaxed);
        assert_eq!(awake.look(), Look::Left);
        awake.under_way.store(1, Ordering::Relaxed);
        awake.at_once = Duration::ZERO;
        assert_eq!(awake.look(), Look::Left);
        awake.at_once = LONG;
        server.write_all(b"!").expect("it is connected");
        assert_eq!(awake.look(), Look::Found);
    }

    #[tokio::test]
    async fn a_look_ends_when_another_calls() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        let under_way = awake.under_way.clone();
        let calls = std::thread::spawn(move || {
            server.read_exact(&mut [0]).expect("it is asked");
            under_way.store(2, Ordering::Relaxed);
            server
        });
        awake.write_all(b"?").await.expect("it is connected");
        let begun = Instant::now();
        awake.flush().await.expect("it is connected");
        assert!(begun.elapsed() < LONG, "the other's call waits");
        assert_eq!(awake.luck.pass, 0, "it was not in vain");
        calls.join().expect("it is asked");
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_at_once_is_left_alone() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        awake.look_for = Duration::from_micros(1);
        let looks: Vec<_> = (0..20).map(|_| awake.look()).collect();
        let in_vain = (0..20).filter(|call| looks[*call] == Look::InVain);
        assert_eq!(in_vain.collect::<Vec<_>>(), [0, 1, 4, 11]);
        assert!(!looks.contains(&Look::Found));
    }

    #[tokio::test]
    async fn a_server_that_goes_away_is_seen() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        drop(server);
        assert_eq!(awake.look(), Look::Found);
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it was closed"), 0);
    }

    /// How many of so many calls an answer is looked for in vain, if it would be found for each that is lucky.
    fn in_vain(calls: u32, lucky: impl Fn(u32) -> bool) -> usize {
        let mut luck = Luck::default();
        let in_vain = (0..calls).filter(|call| {
            let (tried, lucky) = (luck.is_tried(), lucky(*call));
            match (tried, lucky) {
                (true, true) => luck.found(),
                (true, false) => luck.missed(),
                (false, _) => {}
            }
            tried && !lucky
        });
        in_vain.count()
    }

    #[test]
    fn looks_in_vain_become_rare_also_if_every_second_is_not() {
        assert!(in_vain(100_000, |_| false) < 120);
        assert!(in_vain(100_000, |call| call % 2 == 0) < 2000);
    }

    #[test]
    fn luck_that_turns_is_trusted_again() {
        let mut luck = Luck::default();
        for _ in 0..100 {
            luck.missed();
        }
        let calls_to = |luck: &mut Luck| (0..).find(|_| luck.is_tried()).expect("it is tried again");
        assert_eq!(calls_to(&mut luck), MOST_PASSED);
        for _ in 0..30 {
            luck.found();
        }
        luck.missed();
        assert_eq!(calls_to(&mut luck), 0);
    }
}
