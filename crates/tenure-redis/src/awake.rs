//! A connection whose next answer is looked for awake, before the thread sleeps, while a lone caller comes again and again:
//! with a server near by, to fall asleep and be woken takes longer than the call itself.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An answer to a lone caller is no longer than that.
const ANSWER: usize = 1024;

/// After looks in vain so many calls are let pass at the most before the next.
const MOST_PASSED: u32 = 1024;

/// A stream that is read from as any, and from which an answer may come without a wake-up.
pub(crate) struct Awake {
    stream: TcpStream,
    /// How many calls are under way on it.
    under_way: Arc<AtomicUsize>,
    patience: Patience,
    /// Whether something was written and not flushed.
    wrote: bool,
    /// Until when the answer to what was flushed is looked for.
    until: Option<Instant>,
    /// When an answer came last.
    answered: Option<Instant>,
    luck: Luck,
}

/// How long is waited for what.
struct Patience {
    /// Who asks so soon after an answer comes again and again.
    at_once: Duration,
    /// For how long an answer is looked for. Other tasks of the thread wait meanwhile.
    look: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            at_once: Duration::from_micros(100),
            look: Duration::from_micros(100),
        }
    }
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

    fn found(&mut self) {
        self.pass = 0;
    }

    fn missed(&mut self) {
        self.passing = self.pass;
        self.pass = (2 * self.pass).clamp(1, MOST_PASSED);
    }
}

impl Awake {
    pub(crate) fn new(stream: TcpStream, under_way: Arc<AtomicUsize>) -> Self {
        Awake {
            stream,
            under_way,
            patience: Patience::default(),
            wrote: false,
            until: None,
            answered: None,
            luck: Luck::default(),
        }
    }

    /// Whether the answer to what was just flushed is looked for: that of a lone caller who was answered a moment ago.
    fn is_looked_for(&mut self, now: Instant) -> bool {
        self.under_way.load(Ordering::Relaxed) == 1
            && self
                .answered
                .is_some_and(|answered| now < answered + self.patience.at_once)
            && self.luck.is_tried()
    }

    /// Looks until then for bytes that have come, past the runtime, which would be told of them later. At every look the
    /// core is offered to whoever else could use it.
    fn look(&self, until: Instant, buffer: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let room = buffer.remaining().min(ANSWER);
        loop {
            match (&*SockRef::from(&self.stream)).read(buffer.initialize_unfilled_to(room)) {
                Ok(count) => {
                    buffer.advance(count);
                    return Some(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Some(Err(error)),
            }
            if until <= Instant::now() {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

impl AsyncRead for Awake {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let until = self.until.take();
        let mut read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let (Poll::Pending, Some(until)) = (&read, until) {
            // Whatever is not found here wakes the task, which is what was just asked for.
            match self.look(until, buffer) {
                Some(found) => {
                    self.luck.found();
                    read = Poll::Ready(found);
                }
                None => self.luck.missed(),
            }
        }
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.wrote) {
            let now = Instant::now();
            if self.is_looked_for(now) {
                self.until = Some(now + self.patience.look);
                // The task reads next, after those that are ready.
                cx.waker().wake_by_ref();
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Peer};

    use tokio::io::AsyncReadExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// A connection with one call under way, whose server is this test. Nothing runs beside it: whatever is read without an
    /// await was found by looking.
    async fn connected() -> (Awake, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().expect("somebody connects");
        let mut awake = Awake::new(stream, Arc::new(AtomicUsize::new(1)));
        (awake.patience.at_once, awake.patience.look) = (LONG, LONG);
        (awake, server)
    }

    /// Waits for an answer as anybody does.
    async fn answered(awake: &mut Awake, server: &mut Peer) {
        server.write_all(b"1").expect("it is connected");
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it is connected"), 1);
    }

    /// Asks, and reads what the server has answered by then.
    fn ask(awake: &mut Awake, server: &mut Peer, answer: &[u8]) -> Option<usize> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut *awake).poll_write(&mut cx, b"?").is_ready());
        assert!(Pin::new(&mut *awake).poll_flush(&mut cx).is_ready());
        server.read_exact(&mut [0]).expect("it was asked");
        server.write_all(answer).expect("it is connected");
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(awake).poll_read(&mut cx, &mut buffer) {
            Poll::Ready(read) => {
                read.expect("it is connected");
                Some(buffer.filled().len())
            }
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn who_comes_again_is_answered_without_a_wake_up() {
        let (mut awake, mut server) = connected().await;
        assert_eq!(
            ask(&mut awake, &mut server, b"first"),
            None,
            "nobody knows whether it comes again"
        );
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it is connected"), 5);
        for _ in 0..100 {
            assert_eq!(ask(&mut awake, &mut server, b"again"), Some(5));
        }
        // What was read past the runtime does not confuse it.
        for _ in 0..3 {
            answered(&mut awake, &mut server).await;
        }
    }

    #[tokio::test]
    async fn nobody_looks_while_others_call_or_after_a_rest() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        awake.under_way.store(2, Ordering::Relaxed);
        assert_eq!(ask(&mut awake, &mut server, b"1"), None);
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it is connected"), 1);
        awake.under_way.store(1, Ordering::Relaxed);
        awake.patience.at_once = Duration::ZERO;
        assert_eq!(ask(&mut awake, &mut server, b"1"), None);
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_at_once_is_left_alone() {
        let (mut awake, mut server) = connected().await;
        awake.patience.look = Duration::from_millis(1);
        let mut looks = Vec::new();
        for call in 0..20 {
            answered(&mut awake, &mut server).await;
            let pass = awake.luck.pass;
            assert_eq!(ask(&mut awake, &mut server, b""), None);
            if awake.luck.pass > pass {
                looks.push(call);
            }
        }
        assert_eq!(looks, [0, 1, 3, 6, 11]);
    }

    #[tokio::test]
    async fn a_server_that_goes_away_is_seen() {
        let (mut awake, mut server) = connected().await;
        answered(&mut awake, &mut server).await;
        assert_eq!(ask(&mut awake, &mut server, b"1"), Some(1));
        drop(server);
        assert_eq!(awake.read(&mut [0; 64]).await.expect("it was closed"), 0);
    }

    #[test]
    fn after_many_looks_in_vain_there_is_one_for_each_thousand_calls() {
        let mut luck = Luck::default();
        let looks = (0..100_000).filter(|_| {
            let looks = luck.is_tried();
            if looks {
                luck.missed();
            }
            looks
        });
        assert!((100..115).contains(&looks.count()));
        luck.found();
        luck.missed();
        assert!(luck.is_tried(), "luck that turns is trusted at once");
    }
}
