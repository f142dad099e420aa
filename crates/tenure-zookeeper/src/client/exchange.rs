//! Requests and replies on one connection, as a state machine: messages and time in, messages and a deadline out.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::frames::FrameWriter;
use super::messages::{ReplyHeader, event, opcode, request, xid};
use super::order::{Order, Reply};
use super::watch::{Registry, Subject};
use crate::error::{Code, broken};

/// The greatest number of requests without a reply.
const MAX_IN_FLIGHT: usize = 1024;

/// The number of bytes to write above which no request is added.
const MAX_PENDING: usize = 256 << 10;

/// The shortest silence after which a server that owes an answer is left.
const MIN_SILENCE: Duration = Duration::from_millis(500);

/// The longest such silence: requests wait for it, however long their session's timeout.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The requests under way on one connection.
pub(super) struct Exchange {
    pub(super) writer: FrameWriter,
    /// Requests without a reply, and when each was sent. ZooKeeper answers them in their order.
    in_flight: VecDeque<(i32, Instant, Order)>,
    last_xid: i32,
    timeout: Duration,
    last_sent: Instant,
    last_received: Instant,
    /// When the ping was sent that has no reply.
    pinged: Option<Instant>,
    /// Whether the server has answered anything.
    pub(super) is_proven: bool,
    /// Whether the server has closed the session, as the client asked.
    pub(super) is_closed: bool,
}

impl Exchange {
    pub(super) fn new(writer: FrameWriter, timeout: Duration, now: Instant) -> Self {
        Exchange {
            writer,
            in_flight: VecDeque::new(),
            last_xid: 0,
            timeout,
            last_sent: now,
            last_received: now,
            pinged: None,
            is_proven: false,
            is_closed: false,
        }
    }

    /// Whether another request can be sent.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT && self.writer.pending.len() < MAX_PENDING
    }

    /// Sends a request, unless its caller has given up.
    pub(super) fn send(&mut self, order: Order, now: Instant) {
        if order.reply.is_closed() || order.is_settled.swap(true, Ordering::AcqRel) {
            return;
        }
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.writer
            .push(&request(self.last_xid, order.opcode, &order.body));
        self.in_flight.push_back((self.last_xid, now, order));
        self.last_sent = now;
    }

    /// Takes a message of the server. Returns an error, in words, if it is none that can follow.
    pub(super) fn receive(
        &mut self,
        message: &[u8],
        registry: &mut Registry,
        last_zxid: &mut i64,
        now: Instant,
    ) -> Result<(), &'static str> {
        const STRANGE: &str = "the server sent a message that nobody asked for";
        let (header, body) = ReplyHeader::read(message).map_err(|_| STRANGE)?;
        self.last_received = now;
        self.is_proven = true;
        *last_zxid = header.zxid.max(*last_zxid);
        match header.xid {
            xid::PING => self.pinged = None,
            xid::EVENT => {
                let (kind, path) = event(body).map_err(|_| STRANGE)?;
                registry.fire(kind, path);
            }
            _ => return self.reply(header, body, registry).ok_or(STRANGE),
        }
        Ok(())
    }

    /// Gives a reply to its caller. Returns `None` if it is not the reply to the oldest request.
    fn reply(&mut self, header: ReplyHeader, body: &[u8], registry: &mut Registry) -> Option<()> {
        self.in_flight.front().filter(|(xid, ..)| *xid == header.xid)?;
        let (.., order) = self.in_flight.pop_front()?;
        let leaves_watch = match header.code {
            Code(0) => true,
            // The node may be created later.
            Code::NO_NODE => order.opcode == opcode::EXISTS,
            _ => false,
        };
        // Before the next message is read: it may be the event.
        if let Some(watch) = order.watch.filter(|_| leaves_watch) {
            debug_assert!(header.code == Code(0) || watch.on.0 == Subject::Node);
            registry.insert(watch);
        }
        self.is_closed = order.opcode == opcode::CLOSE_SESSION && header.code == Code(0);
        let reply = Reply {
            zxid: header.zxid,
            code: header.code,
            body: body.to_vec(),
            effect: order.effect,
        };
        // Fails if the caller has given up.
        let _ = order.reply.send(Ok(reply));
        Some(())
    }

    /// The time at which `tick` has something to do.
    pub(super) fn deadline(&self) -> Instant {
        match (self.dead_at(), self.pinged) {
            (Some(dead_at), Some(_)) => dead_at,
            (Some(dead_at), None) => dead_at.min(self.ping_at()),
            (None, _) => self.ping_at(),
        }
    }

    fn ping_at(&self) -> Instant {
        self.last_sent + self.timeout / 3
    }

    /// The time at which a server that owes an answer is left: early enough that the session's next checks reach another server
    /// in time.
    fn dead_at(&self) -> Option<Instant> {
        let oldest = self.in_flight.front().map(|(_, sent, _)| *sent);
        let asked = oldest.into_iter().chain(self.pinged).min()?;
        Some(asked.max(self.last_received) + (self.timeout / 6).clamp(MIN_SILENCE, MAX_SILENCE))
    }

    /// Sends a ping if it is time. Returns an error, in words, if the server is silent.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), &'static str> {
        if self.dead_at().is_some_and(|dead_at| now >= dead_at) {
            return Err("the server sends nothing");
        }
        if self.pinged.is_none() && now >= self.ping_at() {
            self.writer.push(&request(xid::PING, opcode::PING, &[]));
            self.pinged = Some(now);
            self.last_sent = now;
        }
        Ok(())
    }

    /// Ends the requests under way, whose replies are lost.
    pub(super) fn fail(self, cause: &str) {
        for (.., order) in self.in_flight {
            let lost = broken(order.effect, cause);
            // Fails if the caller has given up.
            let _ = order.reply.send(Err(lost));
        }
    }
}

#[cfg(test)]
mod tests;
