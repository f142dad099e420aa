//! Claims of many callers in one call: while many calls are under way, what is asked for is gathered, and travels together.
//! What the answer means for a claim is the caller's to say (`acquire.rs`, `release.rs`); how a call is sent is the wire's.

use std::sync::{Arc, Weak};

use redis::Value;
use tenure_backend::{BackendError, Claim, ClaimRef, Clock, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};

use crate::acquire::{COUNTER, keep_ms, write_client};
use crate::answer::{integer, list};
use crate::distance::Distance;
use crate::error;
use crate::known::Keep;
use crate::names::Owner;
use crate::profile::{grants, lease_ms};
use crate::refusal::is_for_a_key;
use crate::script::{Command, TOGETHER};
use crate::wire::Wire;

/// How many calls may be under way before those who come are gathered: with fewer the server is idle in between, and a
/// caller is served sooner who asks by itself.
pub(crate) const ALONE: usize = 12;

/// How many claims travel together: half a millisecond of the server's time, in which it serves nobody else.
const MOST: usize = 64;

/// What a caller asks for.
pub(crate) enum Wish {
    /// An unfair claim.
    Place {
        claim: Arc<Claim>,
        not_after: Instant,
        /// That its client is to be kept.
        keep: Option<Keep>,
    },
    /// A plain end: no eviction, no successor, no doubt. `noted` is whether something was written down of it.
    Depart { who: ClaimRef, noted: bool },
}

/// What the script says of a claim: 0 if it did nothing, so that the caller asks by itself. Of one that departed, 1 and how
/// many heard of it; of one that was placed, its first token, or one of these.
pub(crate) type Said = i64;

/// It comes too late, or one that travels with it does; it was never placed.
pub(crate) const TOO_LATE: Said = -1;

/// Somebody else holds the key, for so many milliseconds as it is further from zero.
pub(crate) const BUSY: Said = -2;

/// One caller's wish. It waits no longer than its caller does, so there are never more of them than callers.
struct Asked {
    wish: Wish,
    tell: oneshot::Sender<Result<Said, BackendError>>,
}

/// Where wishes are gathered.
pub(crate) struct Gathering(UnboundedSender<Asked>);

impl Gathering {
    /// Tasks of their own send what is gathered, since a caller may not be polled any more. They end with the wire.
    pub(crate) fn new(wire: &Weak<Wire>, clock: &Arc<dyn Clock>, distance: Distance) -> Self {
        let (gathering, gathered) = unbounded_channel();
        let asked = Mutex::new(gathered);
        let gathered = Arc::new(Gathered { asked, distance });
        for number in 0..gathered.distance.side_by_side() {
            tokio::spawn(send_all(number, gathered.clone(), wire.clone(), clock.clone()));
        }
        Gathering(gathering)
    }

    /// What the script says of it, in a call with others.
    ///
    /// # Cancel safety
    /// A wish whose caller has gone is not sent any more.
    pub(crate) async fn ask(&self, wish: Wish) -> Result<Said, BackendError> {
        let (tell, told) = oneshot::channel();
        // If the tasks have ended with their runtime, the one that waits is dropped.
        let _ = self.0.send(Asked { wish, tell });
        told.await.unwrap_or_else(|_| Err(error::orphaned()))
    }
}

/// What those who send have in common.
struct Gathered {
    asked: Mutex<UnboundedReceiver<Asked>>,
    distance: Distance,
}

impl Gathered {
    /// What is asked for next, for the task of that number: nothing if all is over, or if that is one task too many for a
    /// server that was found to be nearer than was thought.
    async fn next(&self, number: usize) -> Vec<Asked> {
        let mut asked = Vec::new();
        let mut gathered = self.asked.lock().await;
        if number < self.distance.side_by_side() {
            gathered.recv_many(&mut asked, MOST).await;
        }
        asked
    }
}

/// Sends what has been gathered, again and again: what comes while as many calls are under way as may be travels with the
/// next.
async fn send_all(number: usize, gathered: Arc<Gathered>, wire: Weak<Wire>, clock: Arc<dyn Clock>) {
    loop {
        let mut asked = gathered.next(number).await;
        if asked.is_empty() {
            return;
        }
        // Whoever waits for an answer keeps the wire.
        let Some(wire) = wire.upgrade() else { return };
        asked.retain(|asked| !asked.tell.is_closed());
        tell_strangers(&mut asked);
        if asked.is_empty() {
            continue;
        }
        // Those who leave come first: what they free is free for those who are placed.
        asked.sort_by_key(|asked| match asked.wish {
            Wish::Depart { noted, .. } => u8::from(!noted),
            Wish::Place { .. } => 2,
        });
        let sent = clock.now();
        let mut answers = send(&asked, &wire, &*clock).await.map(Vec::into_iter);
        if answers.is_ok() {
            gathered.distance.learn(clock.now() - sent);
        }
        for Asked { tell, .. } in asked.drain(..) {
            let said = match &mut answers {
                Ok(said) => said.next().ok_or_else(error::nonsense),
                // Each by itself, so that one key without a right to it is no trouble of the others.
                Err(failure) if is_for_a_key(failure) => Ok(0),
                Err(failure) => Err(failure.clone()),
            };
            // Whoever asked may have gone.
            let _ = tell.send(said);
        }
    }
}

/// One call is for the claims of one client, the first's; those of others are asked for by themselves.
fn tell_strangers(asked: &mut Vec<Asked>) {
    let Some(client) = asked.first().map(|asked| asked.wish.at().id.client()) else {
        return;
    };
    let is_strange = |asked: &mut Asked| asked.wish.at().id.client() != client;
    for stranger in asked.extract_if(.., is_strange) {
        let _ = stranger.tell.send(Ok(0));
    }
}

/// What the script says of each, in order: first those who depart.
async fn send(asked: &[Asked], wire: &Wire, clock: &dyn Clock) -> Result<Vec<Said>, BackendError> {
    let answer = wire.call_for_counted(&written(asked, wire)).await?;
    let [time, said @ ..] = list(&answer).ok_or_else(error::nonsense)? else {
        return Err(error::nonsense());
    };
    wire.clock
        .learn(integer(time).ok_or_else(error::nonsense)?, clock.now());
    let said = said.iter().map(|said| match said {
        Value::Int(said) => Some(*said),
        _ => None,
    });
    said.collect::<Option<_>>().ok_or_else(error::nonsense)
}

fn written(asked: &[Asked], wire: &Wire) -> Command {
    let noted = asked.partition_point(|asked| matches!(asked.wish, Wish::Depart { noted: true, .. }));
    let departing = asked.partition_point(|asked| matches!(asked.wish, Wish::Depart { .. }));
    let placements = || {
        asked[departing..]
            .iter()
            .filter_map(|asked| asked.wish.placement())
    };
    let wanted: u64 = placements().map(|(claim, _)| grants(claim)).sum();
    let first_not_after = placements().map(|(_, not_after)| not_after).min();
    let shared = alike(placements().map(|(claim, _)| (lease_ms(claim.lease), grants(claim))));
    let mut command = TOGETHER.on(3 + asked.len(), 8 + 3 * asked.len(), 160 * (1 + asked.len()));
    command.text(COUNTER);
    if let Some(first) = asked.first() {
        write_client(&mut command, first.wish.at().id.client());
    }
    for Asked { wish, .. } in asked {
        command.text(wish.at().key.as_str());
    }
    command
        .number(departing as u64)
        .number(noted as u64)
        .number(wanted)
        .number(first_not_after.map_or(0, |not_after| wire.clock.at(not_after)));
    write_keep(&mut command, asked);
    match shared {
        Some((lease, grants)) => command.number(lease).number(grants),
        None => command.text("").text(""),
    };
    for Asked { wish, .. } in asked {
        command.bytes(Owner::of(wish.at().id).as_bytes());
    }
    if shared.is_none() {
        for (claim, _) in placements() {
            command.number(lease_ms(claim.lease)).number(grants(claim));
        }
    }
    command
}

/// What all of them are, if they are alike.
fn alike<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// One says for all that their client is to be kept.
fn write_keep(command: &mut Command, asked: &[Asked]) {
    let keep = asked.iter().find_map(|asked| match &asked.wish {
        Wish::Place { keep, .. } => keep.as_ref(),
        Wish::Depart { .. } => None,
    });
    match keep {
        Some(Keep { long, label }) => command.number(keep_ms(*long)).text(label),
        None => command.text("").text(""),
    };
}

impl Wish {
    fn at(&self) -> &ClaimRef {
        match self {
            Wish::Place { claim, .. } => &claim.at,
            Wish::Depart { who, .. } => who,
        }
    }

    /// Which claim is to be placed, and until when.
    fn placement(&self) -> Option<(&Claim, Instant)> {
        match self {
            Wish::Place { claim, not_after, .. } => Some((claim, *not_after)),
            Wish::Depart { .. } => None,
        }
    }
}
