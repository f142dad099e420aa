//! `tenure elect`: runs a command only while this candidate is the leader.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as Stopwatch};

use tenure::{ClaimRef, Client, Election, LockKey};

use super::command::{Ending, STOPPED, claim_cap, ended_by, guardian, run_under};
use super::holder::HolderSearch;
use super::lock::{HeldLock, rounded_up};
use super::signals::{listen, termination_signal};
use super::store::{CONNECT_LIMIT, ChosenStore, disconnect, key};
use super::supervise::SupervisionOptions;
use super::wait_line::show_while;
use crate::args::{Elect, Global, grace};
use crate::guardian::{Inbox, StopReason};
use crate::messages::{Failure, note_as_is, shortened};

pub(super) async fn elect(global: &Global, elect: &Elect) -> Result<u8, Failure> {
    let name = key(&elect.name)?;
    let store = ChosenStore::of(global)?;
    let mut inbox = listen()?;
    let connected = tokio::select! {
        biased;
        signal = termination_signal(&mut inbox) => return Ok(ended_by(signal)),
        connected = store.connect(elect.label.as_deref(), Some(CONNECT_LIMIT)) => connected,
    };
    let client = connected?;
    let lease = rounded_up(elect.lease, client.profile());
    let election = client.election(name.as_str()).lease(lease);
    let candidate = Candidate {
        client: &client,
        name: &name,
        global,
        election: match claim_cap(elect.max_hold, grace(elect.grace, lease), lease) {
            Some(cap) => election.max_hold(cap),
            None => election,
        },
        elect,
        store: &store,
    };
    let done = candidate.serve(&mut inbox).await;
    disconnect(&client).await;
    done
}

struct Candidate<'a> {
    client: &'a Client,
    name: &'a LockKey,
    global: &'a Global,
    election: Election,
    elect: &'a Elect,
    store: &'a ChosenStore,
}

impl Candidate<'_> {
    /// Campaigns and runs the command repeatedly, until the command ends by itself or cannot be executed, a term
    /// reaches `--max-hold`, or a signal ends the candidacy.
    async fn serve(&self, inbox: &mut Inbox) -> Result<u8, Failure> {
        loop {
            // Start the guardian first: it gets ready while another candidate leads.
            let supervisor = guardian()?;
            let elected = tokio::select! {
                biased;
                signal = termination_signal(inbox) => return Ok(ended_by(signal)),
                elected = self.campaign() => elected,
            };
            let leader = elected?;
            let (options, command) = (self.options(leader.lease), &self.elect.command);
            // If the release was not confirmed, `run_under` has printed a warning, and the lead ends with its lease.
            let (ending, _) = run_under(leader, supervisor, inbox, options, self.store, command).await;
            match ending? {
                Ending::Own(code) | Ending::NotStarted(code) => return Ok(code),
                Ending::Stopped {
                    why: StopReason::MaxHold,
                    ..
                } => return Ok(STOPPED),
                Ending::Stopped {
                    ending_signal: Some(signal),
                    ..
                } => return Ok(ended_by(signal)),
                Ending::Stopped {
                    ending_signal: None, ..
                } => {
                    let words = format!("campaigning for {:?} again", self.elect.name);
                    note_as_is(!self.global.verbose, &words);
                }
            }
        }
    }

    /// Waits until this candidate is the leader, and shows the present leader meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate. Closing the client waits for the withdrawal.
    async fn campaign(&self) -> Result<HeldLock, Failure> {
        let began = Stopwatch::now();
        let waiting = Arc::new(OnceLock::new());
        let mut search = HolderSearch::of_leader(self.client, self.name, waiting.clone());
        let campaign = self.election.campaign().on_waiting(move |claim: &ClaimRef| {
            // Cannot fail: a campaign begins to wait at most once.
            let _ = waiting.set(claim.clone());
        });
        let leader = show_while(self.global, &mut search, campaign).await;
        let leader = leader.map_err(|error| {
            Failure::of(
                format!("cannot campaign for {:?}", shortened(&self.elect.name)),
                &error,
            )
        })?;
        Ok(HeldLock::by(leader, began.elapsed()))
    }

    fn options(&self, lease: Duration) -> SupervisionOptions {
        SupervisionOptions {
            on_lost: self.elect.on_lost.into(),
            grace: grace(self.elect.grace, lease),
            max_hold: self.elect.max_hold,
            at_least: Duration::ZERO,
            verbose: self.global.verbose,
        }
    }
}
