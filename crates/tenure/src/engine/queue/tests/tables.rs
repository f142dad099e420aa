//! Tables of events against one queue: the reply to each event, and its effects.
//!
//! A row is a line `# NAME` and its script: lines `EVENT; EVENT: OUTCOME`, in the words of `script.rs`. The outcome
//! is the reply to the last event and its effects. A line without an outcome only prepares the next one. Callers are
//! named `a`, `b`, `c` in the order of their arrival. After each row every remaining caller is served, and the queue
//! must be empty.

use super::Fixture;
use crate::engine::queue::policy::PolicyLimits;

/// Set-up: caller `a` holds token 1 of a claim that reserved 2 tokens, and caller `b` waits.
const RUN: &str = "a locks with linger; a answered; b locks with linger";

/// Set-up: caller `c` holds token 3 of a claim that reserved the tokens 3 to 6; `d` and `e` wait.
const RUN_OF_4: &str = "RUN; a unlocks; b polls; c locks with linger; b unlocks; successor answered; c polls; \
                        d locks with linger; e locks with linger";

fn play(rows: &str) {
    let rows = rows.replace("RUN OF 4", RUN_OF_4).replace("RUN", RUN);
    for row in rows.split("# ").skip(1) {
        let mut fixture = Fixture::new(PolicyLimits {
            reports_waiters: true,
            is_on_network: true,
        });
        let mut lines = row.lines().map(str::trim).filter(|line| !line.is_empty());
        let name = lines.next().expect("each row has a name");
        let expected: Vec<&str> = lines.collect();
        let seen: Vec<String> = expected.iter().map(|line| happen(&mut fixture, line)).collect();
        assert_eq!(seen, expected, "{name}");
        println!("after: {name}");
        fixture.finish();
    }
}

/// Applies the events of a line. Returns the line with the observed outcome.
fn happen(fixture: &mut Fixture, line: &str) -> String {
    let (events, outcome) = line.split_once(": ").unwrap_or((line, ""));
    fixture.happen(events);
    if outcome.is_empty() {
        return events.into();
    }
    match &*fixture.notes {
        [] => format!("{events}: nothing"),
        notes => format!("{events}: {}", notes.join(", ")),
    }
}

/// Q4, V3: a claim is handed over in memory only while the store surely has not granted a greater token.
#[test]
fn claims_are_handed_over_while_they_are_fresh() {
    play(
        "
        # a fresh claim is handed over with its next token
        a locks with linger: asks for 2
        a answered: holds 1
        b locks with linger: waits, starts the poller
        a unlocks: hands over, wakes b
        b polls: holds 2
        # a claim is handed over 9 ms after its grant
        RUN; 9 ms; a unlocks: hands over, wakes b
        # a claim is not handed over 10 ms after its grant
        RUN; 10 ms; a unlocks: releases, and asks for 2
        # a claim is not handed over after its local deadline
        a locks with short lease; a answered; b locks with short lease; 8 ms; a unlocks: releases, and asks for 2
        # a lost claim is not handed over
        RUN; evicted; a unlocks: releases, and asks for 2
        # a claim is not returned 10 ms after its grant
        RUN; 5 ms; a unlocks; 5 ms; b polls: waits, releases, and asks for 4, notifies the poller
        # a claim is not returned after its local deadline
        a locks with short lease; a answered; b locks with short lease; 5 ms
        a unlocks: hands over, wakes b
        3 ms; b polls: waits, releases, and asks for 4, notifies the poller
        # a grant of the store is not taken at its local deadline
        other client; a locks with lease of 100 ms; a answered; other client; poller looks; poller granted
        poller answered: wakes a
        89 ms; a polls: waits, releases, and asks for 2, notifies the poller
        # a claim that was lost after the offer is not returned
        RUN; a unlocks; evicted; b polls: waits, releases, and asks for 2, notifies the poller
        # a grant that was long on the way goes to no newcomer
        other client; a locks; a answered; other client; poller looks; poller granted; evicted quietly; 10 ms
        other client; other client; b locks; a leaves; poller answered: notifies the poller, rejects the grant
        # a fresh grant goes to a newcomer
        other client; a locks; a answered; other client; poller looks; poller granted; 1 ms; b locks
        a leaves; poller answered: wakes b
        # a grant that was long on the way goes to a waiter that was there before
        other client; a locks; a answered; other client; poller looks; poller granted; 11 ms
        poller answered: wakes a
        ",
    );
}

/// A claim is handed over until its last reserved token. The next claim reserves twice as many tokens as were used.
#[test]
fn runs_end_with_their_last_token() {
    play(
        "
        # a lock without local waiters reserves one token
        a locks: asks for 1
        a answered; a unlocks: releases
        b locks; b answered; c locks; b unlocks; successor answered; c polls; c unlocks; poller looks: ends
        d locks: asks for 1
        # a run of two is followed by a run of four
        RUN; a unlocks; b polls: holds 2
        c locks with linger; b unlocks: releases, and asks for 4
        successor answered: wakes c
        c polls: holds 3
        # a run of one is followed by a run of two
        RUN OF 4; c unlocks; d polls; 10 ms; d unlocks: releases, and asks for 4
        successor answered; e polls; f locks with linger; 10 ms; e unlocks: releases, and asks for 2
        ",
    );
}

/// Q6: a waiter gets a grant only of a request with the same options. Claims with some options are for one caller
/// only.
#[test]
fn claims_with_other_options_are_not_handed_over() {
    let one_grant = ["fixed lease", "max_hold", "at_least", "member", "owner", "fair"];
    for option in ["", "label", "short lease"].into_iter().chain(one_grant) {
        play(&format!(
            "# a waiter with {option}
            a locks with linger; a answered; b locks with {option}; a unlocks: releases, and asks for 2"
        ));
    }
    for option in one_grant {
        play(&format!(
            "# a claim with {option}
            a locks with {option}; a answered; b locks with {option}; a unlocks; successor answered; b polls
            c locks with {option}; b unlocks: releases, and asks for 2"
        ));
    }
}

/// Q3: an offer that is not taken goes to the next waiter, or is released. Q5: the waiter that missed it keeps its
/// place.
#[test]
fn offers_that_are_not_taken_go_on() {
    play(
        "
        # a waiter that leaves hands its offer over
        RUN OF 4; c unlocks: hands over, wakes d
        d leaves: wakes e, notifies the poller
        e polls: holds 5
        # the last waiter that leaves releases its offer
        RUN; a unlocks; b leaves: releases, notifies the poller
        poller looks: ends
        # the poller looks every 25 ms whether an offer was taken
        RUN; a unlocks; poller looks: rests 25ms
        # a missed offer goes to the next waiter
        RUN; c locks with linger; a unlocks; 100 ms
        poller looks: rests 100ms, releases, and asks for 4
        successor answered: wakes c
        b polls: waits, notifies the poller
        # a waiter that missed an offer gets no other until it is polled
        RUN; a unlocks; 100 ms; poller looks: ends, releases, notifies the poller
        c locks; c answered; c unlocks: releases
        b polls: waits, starts the poller
        poller looks: asks for 2
        # a waiter that missed its offer may leave while another client holds the key
        other client; a locks; a answered; other client; poller looks; poller answered; 100 ms
        poller looks: ends, releases, notifies the poller
        other client; a polls: waits, starts the poller
        a leaves; poller looks: ends
        # a sleeping poller watches over an offer
        other client; a locks; a answered; b locks; other client; c tries; c answered; poller looks: rests 100ms
        100 ms; poller looks: rests 29.3s
        c unlocks: releases, and asks for 2
        successor answered: wakes a, notifies the poller
        100 ms; poller looks: rests 100ms, releases, and asks for 2
        # a fair waiter that misses its offer asks again
        other client; a queues; a answered: waits
        other client; a served: wakes a, starts the poller
        100 ms; poller looks: ends, releases, notifies the poller
        a polls: missed
        # a fair waiter that leaves releases its offer
        other client; a queues; a answered; other client; a served; a leaves: releases, notifies the poller
        ",
    );
}

/// Q1: while one caller of this client holds the key or asks for it, the other callers do not ask. Q2: they may ask
/// after the holder's local deadline.
#[test]
fn one_caller_asks_the_store() {
    play(
        "
        # a caller waits while another calls
        a locks: asks for 1
        b locks: waits, starts the poller
        poller looks: rests 100ms
        a fails: fails, notifies the poller
        poller looks: asks for 2
        c locks: waits, notifies the poller
        # a caller waits while another holds
        a locks; a answered; b locks: waits, starts the poller
        poller looks: rests 100ms
        c tries: busy
        # a caller asks after the deadline of a holder
        a locks with short lease; a answered; 8 ms; b locks: asks for 1
        # the poller rests while a release with a successor is in flight
        RUN; a unlocks; b polls; c locks with linger; b unlocks: releases, and asks for 4
        poller looks: rests 100ms
        d locks: waits, notifies the poller
        # the poller stops while a caller asks
        other client; a locks; a answered; poller looks; poller checks: wanted
        a leaves; b locks; c locks; poller checks: unwanted
        # the poller checks a holder whose lease is not renewed, after a third of the lease
        a locks with fixed lease; a answered; b locks; poller looks: rests 100ms
        9999 ms; poller looks: rests 1ms
        1 ms; poller looks: verifies
        # the poller stops when a call was granted
        other client; a locks; a answered; poller looks: asks for 2
        other client; b tries; b answered: holds 2, notifies the poller
        poller answered: not wanted
        ",
    );
}

/// Q3: the grant of a caller that left is released, and (Q7) its state is removed. Q5: a caller whose call was
/// adopted is woken.
#[test]
fn calls_end_with_or_without_their_callers() {
    play(
        "
        # a caller that leaves during its call gets no grant
        a locks; a leaves; a answered: too late, rejects the grant
        # a caller that leaves during its call does not wait
        other client; a locks; a leaves; a answered: too late
        # a caller is woken when its adopted call is granted
        a locks; a adopted; a polls: waits
        a answered: wakes a, starts the poller
        a polls: holds 1
        # a try is woken when its adopted call is refused
        other client; a tries; a adopted; a answered: wakes a
        a polls: refused
        # a waiter is woken when its adopted call waits
        other client; a locks; a adopted; a answered: wakes a, starts the poller
        ",
    );
}

/// A permanent error of the store ends the wait of the caller whose claim was refused, and of no other.
#[test]
fn permanent_errors_end_one_wait() {
    play(
        "
        # the first waiter fails if the poller's claim is refused for good
        other client; a locks; a answered; b locks; poller looks: asks for 2
        poller refused: wakes a
        a polls: fails
        poller looks: asks for 2
        # a waiter with other options does not fail
        other client; a locks; a answered; b locks with label; poller looks; a leaves; poller refused: nothing
        # a fair caller fails if its claim is refused for good
        other client; a queues; a answered; a refused: wakes a
        a polls: fails
        # a fair caller that was refused gets no grant
        other client; a queues; a answered; a refused; other client; a served: rejects the grant
        ",
    );
}

/// If other clients wait, callers that came after a grant get no hand-over in memory. After 1 s of hand-overs through
/// the store, the client pauses.
#[test]
fn other_clients_have_their_turns() {
    play(
        "
        # a client that was refused hands nothing over to a late caller
        other client; a locks with linger; a answered; other client; poller looks; poller answered; a polls: holds 2
        b locks with linger; 1 ms; a unlocks: releases, and asks for 2
        # a client that was refused hands over to each caller that came before its grant
        other client; a locks with linger; a answered; b locks with linger; other client; poller looks; poller answered
        a polls; c locks with linger; a unlocks: hands over, wakes b
        b polls; b unlocks: releases, and asks for 4
        # after a refused successor other clients go first
        a locks; a answered; b locks; a unlocks; other client; successor answered: notifies the poller
        poller looks: asks for 2 in 10ms, or when woken
        # a streak of a second ends with a pause
        a locks; a answered; b locks; a unlocks; successor answered; b polls; c locks; 1000 ms
        b unlocks: notifies the poller, releases
        poller looks: asks for 2 in 5ms
        ",
    );
}

/// An unlocked claim lingers for the next local caller, until 10 ms after its grant.
#[test]
fn claims_linger_for_the_next_caller() {
    play(
        "
        # the next caller takes a lingering claim
        a locks with linger: asks for 2
        a answered; 6 ms; a unlocks: lingers, sets a timer
        3 ms; linger over: nothing
        b locks with linger: holds 2
        b unlocks: releases
        c locks with linger: asks for 4
        # a claim that lingered for its time is released
        a locks with linger; a answered; 6 ms; a unlocks: lingers, sets a timer
        4 ms; linger over: releases
        # a claim is not taken after its time though the timer is late
        a locks with linger; a answered; a unlocks; 10 ms; b locks with linger: asks for 2, releases
        # a claim does not linger 10 ms after its grant
        a locks with linger; a answered; 10 ms; a unlocks: releases
        # a claim neither lingers nor is taken after its local deadline
        a locks with short lease; a answered; a unlocks: lingers, sets a timer
        8 ms; b locks with short lease: asks for 2, releases
        b answered; 8 ms; b unlocks: releases
        # a lost claim does not linger
        a locks with linger; a answered; evicted; a unlocks: releases
        # Q4: a claim that is evicted while it lingers is taken before the store grants a greater token
        a locks with linger; a answered; a unlocks; evicted quietly; 9 ms; b locks with linger: holds 2
        1 ms; other client; b unlocks: releases
        # a caller with other options releases a lingering claim before it asks
        a locks with linger; a answered; a unlocks; b locks: asks for 1, releases
        # a try with other options does so too
        a locks with linger; a answered; a unlocks; b tries: asks for 1, releases
        # nothing lingers while a local caller waits
        a locks with linger; a answered; b locks; a unlocks: releases, and asks for 2
        # nothing lingers while another client waits
        other client; a locks with linger; a answered; other client; poller looks; poller answered; a polls
        a unlocks: notifies the poller, releases
        # Q3: closing returns a claim that lingers
        a locks with linger; a answered; a unlocks; closed: returns 0 held and 1 lingering
        ",
    );
}

/// A holder that downgrades lets waiting readers in, but no writer. Q2: its claim serves no other writer.
#[test]
fn a_downgrade_lets_readers_in() {
    play(
        "
        # the first reader is asked for after the confirmation
        a locks to write: asks for 1
        a answered; b locks to read: waits, starts the poller
        c locks to read; poller looks; a downgrades; poller looks: rests 29.4s
        a downgraded: notifies the poller
        poller looks: asks for 2
        poller answered: wakes b, wakes c, notifies the poller
        b polls: holds 2
        c polls: holds 3
        d locks to read: asks for 1
        # no reader overtakes a waiting writer
        a locks to write; a answered; b locks to write; c locks to read; a downgrades; a downgraded
        poller looks: rests 100ms
        a unlocks: releases, and asks for 2
        successor answered: wakes b
        b polls; poller looks: rests 100ms
        # a downgraded holder excludes writers
        a locks to write; a answered; a downgrades; a downgraded; b locks to write: waits, starts the poller
        c tries to write: busy
        # a claim that may be downgraded is not handed over to a writer
        a locks to write with linger; a answered; b locks to write with linger
        a downgrades; a unlocks: releases, and asks for 2
        # a downgraded claim is not handed over either
        a locks to write with linger; a answered; b locks to write with linger
        a downgrades; a downgraded; a unlocks: releases, and asks for 2
        # a claim that may be downgraded does not linger
        a locks to write with linger; a answered; a downgrades; a unlocks: releases
        # the confirmation for a closed queue has no effect
        a locks to write; a answered; a downgrades; closed; a downgraded: nothing
        ",
    );
}

/// Readers in front of the first writer share a claim. A grant invites the other waiters that can hold the key together with
/// it: each asks the store itself.
#[test]
fn waiting_readers_and_permits_are_served_together() {
    play(
        "
        # readers share a claim, up to the first waiting writer
        a locks to write; a answered; b locks to read; c locks to read; d locks to read; e locks to write; f locks to read
        a unlocks: releases, and asks for 3
        successor answered: wakes b, wakes c, wakes d
        b polls: holds 2
        c polls: holds 3
        b unlocks: leaves others
        d leaves: notifies the poller
        c unlocks: releases, and asks for 6
        successor answered: wakes e
        # a share that comes late is not taken
        a locks to write; a answered; b locks to read; c locks to read; a unlocks; successor answered; b polls; 10 ms
        c polls: waits, notifies the poller
        poller looks: asks for 2
        # sharers that were evicted release once
        a locks to write; a answered; b locks to read; c locks to read; a unlocks; successor answered; b polls; c polls
        evicted: notifies the poller
        b unlocks: notifies the poller, releases
        c unlocks: gone
        # readers with other options ask together, up to the first waiting writer
        a locks to write; a answered; b locks to read; c locks to read with label; d locks to read with label
        e locks to write; f locks to read; a unlocks: releases, and asks for 2
        successor answered: wakes b, wakes c, wakes d
        b polls; c polls: asks for 2
        d polls: asks for 2
        b unlocks: notifies the poller, releases
        poller looks: rests 100ms
        c answered: holds 4, notifies the poller
        d answered; c unlocks; d unlocks: releases, and asks for 2
        successor answered: wakes e
        # permits are asked for as far as the semaphore has some
        a locks for a permit; b locks for a permit; a answered; b answered; c locks for a permit; d locks for a permit
        e locks for a permit; a unlocks; b unlocks; successor answered: wakes c, wakes d
        # if other clients wait, permits are asked for one after the other
        other client; a locks for a permit; a answered; b locks for a permit; c locks for a permit; other client
        poller looks; poller answered: wakes a
        # while an invited caller asks, a grant invites no other caller
        a locks to write; a answered; b locks to read; c locks to read with label; d locks to read with label; a unlocks
        successor answered; b polls; c polls; e locks to read: waits, notifies the poller
        c answered: holds 4, notifies the poller
        d polls; d answered: holds 6, wakes e, notifies the poller
        # a caller that is refused keeps its place
        a locks to write; a answered; b locks to read; c locks to read with label; d locks to write; a unlocks
        successor answered; b polls; b unlocks; other client; c polls; c answered: waits, notifies the poller
        other client; poller looks; poller answered: wakes c
        # an invitation that is not taken delays other waiters for no longer than an offer
        a locks to write; a answered; b locks to read; c locks to read with label; d locks to write; a unlocks
        successor answered; b polls; b unlocks; poller looks: rests 25ms
        100 ms; poller looks: asks for 2
        poller answered: wakes d
        c polls: waits, notifies the poller
        # a caller that leaves after its invitation is not waited for
        a locks to write; a answered; b locks to read; c locks to read with label; d locks to write; a unlocks
        successor answered; b polls; c leaves; b unlocks: releases, and asks for 2
        # permits are handed over in memory
        a locks for a permit; b locks for a permit; a answered; b answered; c locks for a permit
        a unlocks; successor answered; c polls; d locks for a permit; c unlocks: hands over, wakes d
        ",
    );
}

/// Q3 and Q5: closing the queue returns the list of all claims to release, and wakes each waiting caller.
#[test]
fn closing_ends_every_caller() {
    play(
        "
        # a caller that calls
        a locks; closed; a answered: too late, rejects the grant
        # a caller that waits
        RUN; closed: returns 1 held and 0 lingering, wakes b, notifies the poller
        b polls: closed
        a unlocks: gone
        c locks: closed
        # a caller with an offer
        RUN; a unlocks; closed: returns 1 held and 0 lingering, notifies the poller
        b polls: closed
        # a caller that missed its offer
        RUN; a unlocks; 100 ms; poller looks; closed; b polls: closed
        # a fair caller with an offer
        other client; a queues; a answered; other client; a served; closed; a polls: closed
        ",
    );
}

/// Q3, Q5: a claim that stands in the store's queue keeps its caller's place there, and never outlives the caller.
#[test]
fn a_standing_claim_is_asked_for_again_or_withdrawn() {
    play(
        "
        # the poller goes on with the claim of a caller that must wait
        one order; other client
        a locks: asks for 1
        a answered: waits, starts the poller
        poller looks: asks again for 1
        poller answered: asks again
        other client
        poller answered: wakes a, notifies the poller
        a polls: holds 2
        # the claim of a caller that has left is withdrawn
        one order; other client; a locks; a answered
        a leaves: notifies the poller
        poller looks: ends, withdraws a claim
        # the claim of the next caller replaces it
        one order; other client; a locks; a answered; a leaves; b locks
        b answered: waits, withdraws a claim, notifies the poller
        poller looks: asks again for 1
        # a claim for another request is withdrawn
        one order; other client; a locks; a answered; b locks with label; a leaves
        poller looks: asks for 2, withdraws a claim
        # the poller drops its own claim when another stands before it
        one order; other client; a locks; a answered; poller looks; a leaves; b locks; b answered
        poller answered: not wanted
        poller looks: asks again for 1
        # a claim is withdrawn while the poller must not ask
        one order; other client; a locks; a answered; a leaves; b locks
        poller looks: ends, withdraws a claim
        # a claim is withdrawn while a holder of this client excludes it
        one order; a tries; b locks; a answered
        b answered: waits, starts the poller
        poller looks: rests 100ms, withdraws a claim
        # a release names no successor behind a claim that stands
        one order; a tries; b locks; a answered; b answered
        a unlocks: notifies the poller, releases
        poller looks: asks again for 1
        # a closing client withdraws the claim
        one order; other client; a locks; a answered
        closed: returns 0 held and 0 lingering, wakes a, withdraws a claim, notifies the poller
        ",
    );
}
