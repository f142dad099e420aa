//! The client's own tasks that wait on behalf of callers: one for each line with unfair waiters, one for each claim
//! that queues in the store, and one for each call that its caller may have stopped polling.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Call, Claim, Effect, Fairness, Standing};
use tokio::sync::Notify;

use crate::held::Held;
use crate::line::{Line, Step};
use crate::release::backoff;
use crate::seek::{Found, Pause, seek};
use crate::timer::{nap, sleep};
use crate::verdict::Verdict;
use crate::waiter::{Offer, Offered, Waiter, wake};
use crate::watchdog::TakeOver;

/// Waits for the unfair waiters of a line, one after the other, as long as there are any.
pub(crate) async fn drive(line: Arc<Line>, bell: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let (claim, pause) = match line.step() {
            Step::Exit => return,
            Step::Rest(time) => {
                tokio::select! {
                    biased;
                    () = bell.notified() => {}
                    () = nap(&line.engine.watchdog, time) => {}
                }
                continue;
            }
            Step::AskAbout(held) => {
                // What comes of it is the guard's to tell, and the next step's to see.
                let _ = line.engine.watchdog.verify(&held).await;
                continue;
            }
            Step::Ask(claim, pause) => (claim, pause),
        };
        let found = seek(&line.engine, &claim, pause, &bell, || line.still_asks(&claim)).await;
        let served = match found {
            Found::Granted { grant, uncertain } => {
                if uncertain {
                    line.expect_late_call(claim.clone());
                }
                line.deliver(&claim, grant)
            }
            Found::Ended => false,
            Found::Failed { error, uncertain } => {
                if uncertain {
                    line.withdraw_unanswered(claim.clone());
                }
                line.fail_first(&claim, error.into());
                true
            }
            Found::Stopped { uncertain } => {
                if uncertain {
                    line.withdraw_unanswered(claim);
                }
                // The client may be closing: its line follows.
                tokio::task::yield_now().await;
                true
            }
        };
        failures = pause_if_vain(&line, failures, served).await;
    }
}

/// Leaves the store alone for a while if what it granted was dead or ended: asking at once would not help.
async fn pause_if_vain(line: &Line, failures: u32, served: bool) -> u32 {
    if served {
        return 0;
    }
    sleep(&line.engine.watchdog, backoff(failures + 1, line.engine.dice())).await;
    failures + 1
}

/// A waiter that is told if the task that serves it ends unfinished, with its runtime.
struct Served(Option<Arc<Waiter>>);

impl Served {
    /// Serves the waiter by `work`, from now on: also if that is never polled.
    fn by(waiter: Arc<Waiter>, work: impl Future<Output = ()>) -> impl Future<Output = ()> {
        let served = Served(Some(waiter));
        async move {
            work.await;
            served.done();
        }
    }

    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(waiter) = self.0.take() {
            waiter.answer(Err(waiter.line.engine.watchdog.abandoned()));
        }
    }
}

/// Waits in the store's queue for one waiter.
async fn queue_up(line: Arc<Line>, waiter: Arc<Waiter>, mut claim: Arc<Claim>) {
    let mut failures = 0;
    loop {
        let wanted = || waiter.is_waiting().then_some(Duration::MAX);
        match seek(
            &line.engine,
            &claim,
            Pause::ForWakeUp(Duration::ZERO),
            &waiter.changed,
            wanted,
        )
        .await
        {
            Found::Granted { grant, uncertain } => {
                if uncertain {
                    line.expect_late_call(claim.clone());
                }
                match line.hold(&claim, grant, &waiter.want) {
                    Some(held) => return offer(waiter, held).await,
                    None => line.withdraw(claim),
                }
            }
            Found::Ended => {}
            Found::Failed { error, uncertain } => {
                // Whatever this call did, an earlier one may have placed the claim.
                withdraw_queued(&line, claim, uncertain);
                return waiter.answer(Err(error.into()));
            }
            Found::Stopped { uncertain } => {
                withdraw_queued(&line, claim, uncertain);
                return waiter.answer(Err(line.engine.watchdog.closed()));
            }
        }
        failures = pause_if_vain(&line, failures, false).await;
        // A claim is used once: whoever was ended is placed again, at the tail.
        claim = line.engine.claim(&line, &waiter.want, Fairness::Fifo);
    }
}

fn withdraw_queued(line: &Arc<Line>, claim: Arc<Claim>, uncertain: bool) {
    if uncertain {
        line.withdraw_unanswered(claim);
    } else {
        line.withdraw(claim);
    }
}

/// Offers a grant to one waiter; not taken within the offer window, it goes to the next.
async fn offer(waiter: Arc<Waiter>, held: Arc<Held>) {
    let line = &waiter.line;
    let window = line.engine.settings.offer_window;
    match waiter.offer(
        Offer {
            held: held.clone(),
            nth: 0,
            passed: false,
        },
        line.engine.clock.now(),
    ) {
        Offered::Yes(waker) => wake(waker),
        Offered::No => return line.leave_behind(&held),
    }
    drop(held);
    while waiter.is_offered() {
        tokio::select! {
            biased;
            () = waiter.changed.notified() => {}
            () = nap(&line.engine.watchdog, window) => {}
        }
        if let Some(missed) = waiter.retract(line.engine.clock.now(), window) {
            return line.leave_behind(&missed.held);
        }
    }
}

impl TakeOver for Waiter {
    /// The caller is told.
    fn take_over(self: Arc<Self>) {
        if let Some((call, claim)) = self.take_call() {
            let line = self.line.clone();
            let work = Served::by(self.clone(), finish(self, call, claim));
            line.engine.watchdog.spawn(work);
        }
    }
}

async fn finish(waiter: Arc<Waiter>, call: Call<Standing>, claim: Arc<Claim>) {
    let answer = call.await;
    waiter.answered();
    match Verdict::of(&waiter.line, answer, &claim, &waiter.want, waiter.tries) {
        Verdict::Held(held) => offer(waiter, held).await,
        Verdict::Refused => waiter.answer(Ok(())),
        Verdict::Failed(error) => waiter.answer(Err(error)),
        Verdict::Wait(claim) => {
            waiter.nudge();
            wait(waiter, claim);
        }
    }
}

/// Lets a waiter wait whose claim was refused.
pub(crate) fn wait(waiter: Arc<Waiter>, claim: Arc<Claim>) {
    let line = waiter.line.clone();
    if claim.fairness == Fairness::Fifo {
        let work = Served::by(waiter.clone(), queue_up(line.clone(), waiter, claim));
        line.engine.watchdog.spawn(work);
    } else {
        line.wait_first(waiter);
    }
}

/// Finishes a call whose caller has gone, then withdraws the claim. It never withdraws before the call has ended:
/// the call could re-create the claim.
pub(crate) async fn finish_and_withdraw(line: Arc<Line>, call: Call<Standing>, claim: Arc<Claim>) {
    match call.await {
        Ok(Standing::Granted(_)) => line.withdraw(claim),
        Ok(Standing::Waiting { .. }) if claim.fairness == Fairness::Fifo => line.withdraw(claim),
        Err(error) if error.effect() == Effect::Unknown => line.withdraw_unanswered(claim),
        Ok(_) | Err(_) => {}
    }
}
