//! `tenure elect`: a command that runs only while its candidate leads.

use std::time::{Duration, Instant as Stopwatch};

use tenure::Election;

use super::command::{Ending, STOPPED, claim_cap, ended_by, guardian, run_under};
use super::lock::{Held, rounded};
use super::signals::{listen, order_to_go};
use super::store::{Chosen, key, leave};
use super::ward::Terms;
use crate::args::{Elect, Global, grace};
use crate::guardian::{Inbox, Why};
use crate::words::{Failure, note_as_is, shortened};

/// Campaigns and runs the command, term after term, and gives the exit code of its own end.
pub(super) async fn elect(global: &Global, elect: &Elect) -> Result<u8, Failure> {
    let name = key(&elect.name)?;
    let store = Chosen::of(global)?;
    let mut inbox = listen()?;
    let connected = tokio::select! {
        biased;
        signal = order_to_go(&mut inbox) => return Ok(ended_by(signal)),
        connected = store.connect(elect.label.as_deref()) => connected,
    };
    let client = connected?;
    let lease = rounded(elect.lease, client.profile());
    let election = client.election(name.as_str()).lease(lease);
    let candidate = Candidate {
        election: match claim_cap(elect.max_hold, grace(elect.grace, lease), lease) {
            Some(cap) => election.max_hold(cap),
            None => election,
        },
        lease,
        elect,
        store: &store,
        quiet: !global.verbose,
    };
    let done = candidate.serve(&mut inbox).await;
    leave(&client).await;
    done
}

struct Candidate<'a> {
    election: Election,
    lease: Duration,
    elect: &'a Elect,
    store: &'a Chosen,
    quiet: bool,
}

impl Candidate<'_> {
    /// Serves terms until the command ends by itself, a term reaches `--max-hold`, or a signal ends the candidacy.
    async fn serve(&self, inbox: &mut Inbox) -> Result<u8, Failure> {
        loop {
            // The guardian gets ready while another leads.
            let supervisor = guardian()?;
            let elected = tokio::select! {
                biased;
                signal = order_to_go(inbox) => return Ok(ended_by(signal)),
                elected = self.campaign() => elected,
            };
            let (terms, command) = (self.terms(), &self.elect.command);
            // An unconfirmed release was told, and the lead ends with the lease.
            let (ending, _) = run_under(elected?, supervisor, inbox, terms, self.store, command).await;
            match ending? {
                Ending::Own(code) | Ending::NotStarted(code) => return Ok(code),
                Ending::Stopped {
                    why: Why::MaxHold, ..
                } => return Ok(STOPPED),
                Ending::Stopped {
                    told_to_go: Some(signal),
                    ..
                } => return Ok(ended_by(signal)),
                Ending::Stopped { told_to_go: None, .. } => {
                    note_as_is(
                        self.quiet,
                        &format!("campaigning for {:?} again", self.elect.name),
                    );
                }
            }
        }
    }

    /// Waits until it leads.
    ///
    /// # Cancel safety
    /// Dropped, the candidate withdraws; closing the client waits for that.
    async fn campaign(&self) -> Result<Held, Failure> {
        let began = Stopwatch::now();
        let leader = self.election.campaign().await;
        let leader = leader.map_err(|error| {
            Failure::of(
                format!("cannot campaign for {:?}", shortened(&self.elect.name)),
                &error,
            )
        })?;
        Ok(Held::by(leader, self.lease, began.elapsed()))
    }

    fn terms(&self) -> Terms {
        Terms {
            on_lost: self.elect.on_lost.into(),
            grace: grace(self.elect.grace, self.lease),
            max_hold: self.elect.max_hold,
            at_least: Duration::ZERO,
        }
    }
}
