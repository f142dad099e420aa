//! Tests of the state machine, without a server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenure_backend::{BackendError, Effect};
use tokio::sync::oneshot;

use super::super::frames::frames;
use super::super::jute::Writer;
use super::super::watch::Event;
use super::*;
use crate::client::watch::Registration;

const TIMEOUT: Duration = Duration::from_secs(9);

/// An exchange, and what it notes elsewhere.
struct Fixture {
    exchange: Exchange,
    registry: Registry,
    last_zxid: i64,
    start: Instant,
}

type Answer = oneshot::Receiver<Result<Reply, BackendError>>;

impl Fixture {
    fn new() -> Self {
        let start = Instant::now();
        let (_, writer) = frames(Box::new(tokio::io::empty()));
        Fixture {
            exchange: Exchange::new(writer, TIMEOUT, start),
            registry: Registry::default(),
            last_zxid: 0,
            start,
        }
    }

    fn order(opcode: i32, effect: Effect, watch: Option<Registration>) -> (Order, Answer) {
        let (reply, answer) = oneshot::channel();
        let order = Order {
            opcode,
            body: Vec::new(),
            effect,
            watch,
            is_settled: Arc::new(AtomicBool::default()),
            reply,
        };
        (order, answer)
    }

    fn send(&mut self, opcode: i32, effect: Effect, watch: Option<Registration>) -> Answer {
        let (order, answer) = Self::order(opcode, effect, watch);
        self.exchange.send(order, self.start);
        answer
    }

    /// Receives a message after this number of seconds.
    fn receive(
        &mut self,
        seconds: u64,
        xid: i32,
        zxid: i64,
        code: i32,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let mut message = Writer::default().int(xid).long(zxid).int(code).into_bytes();
        message.extend(body);
        let now = self.start + Duration::from_secs(seconds);
        self.exchange
            .receive(&message, &mut self.registry, &mut self.last_zxid, now)
    }

    fn tick(&mut self, seconds: u64) -> Result<usize, &'static str> {
        let before = self.exchange.writer.pending.len();
        self.exchange.tick(self.start + Duration::from_secs(seconds))?;
        Ok(self.exchange.writer.pending.len() - before)
    }

    fn deadline(&self) -> Duration {
        self.exchange.deadline() - self.start
    }
}

#[tokio::test]
async fn replies_go_to_their_requests_in_order() {
    let mut fixture = Fixture::new();
    let mut first = fixture.send(opcode::DELETE, Effect::Unknown, None);
    let mut second = fixture.send(opcode::DELETE, Effect::Unknown, None);
    assert_eq!(fixture.receive(0, 1, 7, -101, b""), Ok(()));
    let reply = first.try_recv().expect("a reply").expect("no error");
    assert_eq!((reply.code, reply.zxid), (Code::NO_NODE, 7));
    assert!(fixture.receive(0, 3, 8, 0, b"").is_err(), "the second is next");
    assert!(second.try_recv().is_err());
    let mut idle = Fixture::new();
    assert!(idle.receive(0, 1, 8, 0, b"").is_err(), "there was no request");
}

#[tokio::test]
async fn the_newest_change_is_remembered() {
    let mut fixture = Fixture::new();
    for (zxid, newest) in [(7, 7), (3, 7), (-1, 7), (9, 9)] {
        fixture.receive(0, xid::PING, zxid, 0, b"").expect("a reply");
        assert_eq!(fixture.last_zxid, newest);
    }
}

#[tokio::test]
async fn a_ping_goes_out_after_a_third_of_the_timeout() {
    let mut fixture = Fixture::new();
    assert_eq!((fixture.deadline(), fixture.tick(2)), (TIMEOUT / 3, Ok(0)));
    assert_eq!(fixture.tick(3), Ok(12));
    assert_eq!((fixture.deadline(), fixture.tick(4)), (TIMEOUT / 2, Ok(0)));
    fixture.receive(4, xid::PING, 1, 0, b"").expect("a reply");
    assert_eq!((fixture.deadline(), fixture.tick(6)), (TIMEOUT * 2 / 3, Ok(12)));
}

#[tokio::test]
async fn a_server_is_left_that_owes_an_answer() {
    let mut fixture = Fixture::new();
    let _answers = [1, 2].map(|_| fixture.send(opcode::SYNC, Effect::None, None));
    assert_eq!((fixture.deadline(), fixture.tick(1)), (TIMEOUT / 6, Ok(0)));
    // The server is slow, but it answers.
    fixture.receive(1, 1, 1, 0, b"").expect("a reply");
    assert_eq!(
        (fixture.tick(2), fixture.deadline()),
        (Ok(0), Duration::from_millis(2500))
    );
    assert!(fixture.tick(3).is_err());
    let mut idle = Fixture::new();
    assert_eq!(idle.tick(4), Ok(12));
    assert!(idle.tick(6).is_err(), "the ping is not answered");
    // However short or long the session.
    for (timeout, silence) in [(1, MIN_SILENCE), (3_600, MAX_SILENCE)] {
        let mut fixture = Fixture::new();
        fixture.exchange.timeout = Duration::from_secs(timeout);
        let _answer = fixture.send(opcode::SYNC, Effect::None, None);
        assert_eq!(fixture.exchange.dead_at(), Some(fixture.start + silence));
    }
}

#[tokio::test]
async fn a_lost_connection_leaves_the_effect_of_changes_open() {
    let mut fixture = Fixture::new();
    let effects = [Effect::Unknown, Effect::None];
    let answers = effects.map(|effect| fixture.send(opcode::SYNC, effect, None));
    fixture.exchange.fail("a test");
    for (mut answer, expected) in answers.into_iter().zip(effects) {
        let error = answer
            .try_recv()
            .expect("an answer")
            .map(|_| ())
            .expect_err("an error");
        assert_eq!(error.effect(), expected);
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_withdrawn_request_is_not_sent() {
    let mut fixture = Fixture::new();
    let (order, _answer) = Fixture::order(opcode::DELETE, Effect::Unknown, None);
    order.is_settled.store(true, Ordering::Release);
    fixture.exchange.send(order, fixture.start);
    let (order, answer) = Fixture::order(opcode::DELETE, Effect::Unknown, None);
    drop(answer);
    fixture.exchange.send(order, fixture.start);
    assert_eq!(fixture.exchange.writer.pending.len(), 0);
    let (order, _answer) = Fixture::order(opcode::DELETE, Effect::Unknown, None);
    let is_settled = order.is_settled.clone();
    fixture.exchange.send(order, fixture.start);
    assert!(is_settled.load(Ordering::Acquire), "it was sent");
}

#[tokio::test]
async fn requests_without_a_reply_are_limited() {
    let mut fixture = Fixture::new();
    let answers: Vec<Answer> = (0..MAX_IN_FLIGHT)
        .map(|_| {
            assert!(fixture.exchange.has_room());
            fixture.send(opcode::SYNC, Effect::None, None)
        })
        .collect();
    assert!(!fixture.exchange.has_room());
    fixture.receive(0, 1, 1, 0, b"").expect("a reply");
    assert!(fixture.exchange.has_room());
    drop(answers);
}

#[tokio::test]
async fn only_a_watch_that_the_server_has_is_registered() {
    let event = Writer::default().int(2).int(3).text("/a").into_bytes();
    for (opcode, code, fires) in [
        (opcode::GET_CHILDREN, 0, true),
        (opcode::GET_CHILDREN, -101, false),
        (opcode::GET_DATA, -101, false),
        (opcode::EXISTS, -101, true),
        (opcode::EXISTS, -102, false),
    ] {
        let mut fixture = Fixture::new();
        let (registration, mut watch) = Registration::new(Subject::Node, "/a");
        let _answer = fixture.send(opcode, Effect::None, Some(registration));
        fixture.receive(0, 1, 7, code, b"").expect("a reply");
        fixture.receive(0, xid::EVENT, -1, 0, &event).expect("an event");
        let expected = if fires {
            Event::Deleted
        } else {
            Event::SessionEnded
        };
        assert_eq!(watch.fired().await, expected, "{opcode} {code}");
    }
}

#[tokio::test]
async fn the_reply_to_a_close_ends_the_exchange() {
    for (code, expected) in [(0, true), (-112, false)] {
        let mut fixture = Fixture::new();
        let _answer = fixture.send(opcode::CLOSE_SESSION, Effect::Unknown, None);
        assert_eq!(fixture.receive(0, 1, 7, code, b""), Ok(()));
        assert_eq!(fixture.exchange.is_closed, expected);
    }
}
