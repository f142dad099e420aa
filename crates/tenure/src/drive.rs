//! The client's own tasks that wait on behalf of callers: one for each line with unfair waiters, one for each fair
//! waiter, and one for each call that its caller may have stopped polling.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Call, Claim, Effect, Fairness, Standing};
use tokio::sync::Notify;

use crate::attempt::Verdict;
use crate::line::{Line, Step};
use crate::seek::{Found, seek};
use crate::timer::nap;
use crate::waiter::{Offer, Offered, Waiter};

/// Waits for the unfair waiters of a line, one after the other, as long as there are any.
pub(crate) async fn drive(line: Arc<Line>, bell: Arc<Notify>) {
    loop {
        let (claim, polite) = match line.step() {
            Step::Exit => return,
            Step::Rest(time) => {
                tokio::select! {
                    () = bell.notified() => {}
                    () = nap(time) => {}
                }
                continue;
            }
            Step::Ask(claim, polite) => (claim, polite),
        };
        match seek(&line.engine, &claim, polite, &bell, || line.still_asks(&claim)).await {
            Found::Granted(grant) => line.deliver(&claim, grant),
            Found::Ended => {}
            Found::Failed(error) => {
                if error.effect() == Effect::Unknown {
                    line.withdraw(claim);
                }
                line.fail_first(error.into());
            }
            Found::Stopped { uncertain: true } => line.withdraw(claim),
            Found::Stopped { uncertain: false } => line.stopped_asking(claim),
        }
    }
}

/// Waits in the store's queue for one fair waiter.
pub(crate) async fn queue_up(line: Arc<Line>, waiter: Arc<Waiter>, mut claim: Arc<Claim>) {
    loop {
        let wanted = || waiter.is_waiting().then_some(Duration::MAX);
        match seek(&line.engine, &claim, Duration::ZERO, &waiter.changed, wanted).await {
            Found::Granted(grant) => match line.hold(&claim, grant, &waiter.want) {
                Some(held) => return offer(line, waiter, held).await,
                None => line.withdraw(claim),
            },
            Found::Ended => {}
            Found::Failed(error) => {
                if error.effect() == Effect::Unknown {
                    line.withdraw(claim);
                }
                return waiter.answer(Err(error.into()));
            }
            Found::Stopped { .. } => {
                line.withdraw(claim);
                return waiter.answer(Err(line.engine.watchdog.closed()));
            }
        }
        // A claim is used once: whoever was ended is placed again, at the tail.
        claim = line.engine.claim(&line, &waiter.want, Fairness::Fifo);
    }
}

/// Offers a grant to one waiter; not taken within the offer window, it goes to the next.
async fn offer(line: Arc<Line>, waiter: Arc<Waiter>, held: Arc<crate::held::Held>) {
    let clock = line.engine.clock.clone();
    let window = line.engine.settings.offer_window;
    match waiter.offer(Offer { held: held.clone(), nth: 0, passed: false }, clock.now()) {
        Offered::Yes(waker) => waker.map(std::task::Waker::wake),
        Offered::No => return line.leave_behind(&held),
    };
    while waiter.is_offered() {
        if waiter.retract(clock.now(), window).is_some() {
            return line.leave_behind(&held);
        }
        tokio::select! {
            () = waiter.changed.notified() => {}
            () = nap(window) => {}
        }
    }
}

/// Finishes a call that its caller may have stopped polling, and tells the caller.
pub(crate) async fn finish(line: Arc<Line>, waiter: Arc<Waiter>, call: Call<Standing>, claim: Arc<Claim>, tries: bool) {
    let answer = call.await;
    match Verdict::of(&line, answer, &claim, &waiter.want, tries) {
        Verdict::Held(held) => offer(line, waiter, held).await,
        Verdict::Refused => waiter.answer(Ok(())),
        Verdict::Failed(error) => waiter.answer(Err(error)),
        Verdict::Wait(claim) => wait(&line, waiter, claim),
    }
}

/// Lets a waiter wait whose claim was refused.
pub(crate) fn wait(line: &Arc<Line>, waiter: Arc<Waiter>, claim: Arc<Claim>) {
    if waiter.want.fairness == Fairness::Fifo {
        line.engine.watchdog.spawn(queue_up(line.clone(), waiter, claim));
    } else {
        line.wait_first(waiter, claim);
    }
}

/// Finishes a call whose caller has gone, then withdraws the claim. It never withdraws before the call has ended:
/// the call could re-create the claim.
pub(crate) async fn finish_and_withdraw(line: Arc<Line>, call: Call<Standing>, claim: Arc<Claim>) {
    let answer: Result<Standing, BackendError> = call.await;
    let leaves_nothing = match &answer {
        Ok(Standing::Granted(_)) => false,
        Ok(Standing::Waiting { .. }) => !line.engine.queues_in_store(&claim),
        Ok(_) => true,
        Err(error) => error.effect() == Effect::None,
    };
    if leaves_nothing {
        return;
    }
    line.withdraw(claim.clone());
    // Where the store forgets ended claims, a request that is still on its way could place this one until then.
    if answer.is_err() && !line.engine.backend.profile().remembers_ended {
        tokio::time::sleep(line.engine.settings.call_limit).await;
        line.withdraw(claim);
    }
}
