//! Measures what memory costs by itself: the time of a pair of acquire and release, and the bytes of a held claim.
//! What a whole lock costs, with its guard and its watchdog, is measured by the benchmarks of `tenure`.
//!
//! Run it with `cargo run --release -p tenure-memory --example measure`.

use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use smallvec::smallvec;
use tenure_backend::{
    Backend, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Holder, LockKey,
    MAX_PLACE_AHEAD, Mode, OwnerId, Standing,
};
use tenure_memory::Memory;

const PAIRS: u64 = 10_000_000;
const HELD: u64 = 100_000;

fn claim(client: ClientId, key: &LockKey, number: u64) -> Arc<Claim> {
    Arc::new(Claim {
        at: ClaimRef {
            key: key.clone(),
            id: ClaimId::new(client, number),
        },
        owner: OwnerId(0),
        label: "measure".into(),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: Duration::from_secs(3600),
        grants: NonZeroU32::MIN,
    })
}

/// Memory's calls are answered when they are made.
fn answer<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

fn acquire(memory: &Arc<Memory>, claim: &Arc<Claim>) -> Result<(), Box<dyn Error>> {
    let place_by = memory.clock().now() + MAX_PLACE_AHEAD;
    match answer(Arc::clone(memory).acquire(Arc::clone(claim), place_by))? {
        Standing::Granted(_) => Ok(()),
        other => Err(format!("{:?} is not granted: {other:?}", claim.at).into()),
    }
}

fn release(memory: &Arc<Memory>, claim: &Claim) {
    let departure = Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    };
    black_box(answer(Arc::clone(memory).release(smallvec![departure])));
}

/// The process's resident memory in bytes, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let client = ClientId::from_random([1; 16]);
    let memory = Memory::new();

    let key = LockKey::new("measure")?;
    let before = resident();
    let (mut making, mut both) = (Duration::ZERO, Duration::ZERO);
    for number in 1..=PAIRS / 1000 {
        let start = Instant::now();
        let claims: Vec<_> = (0..1000)
            .map(|n| claim(client, &key, number * 1000 + n))
            .collect();
        making += start.elapsed();
        let start = Instant::now();
        for claim in &claims {
            acquire(&memory, claim)?;
            release(&memory, claim);
        }
        both += start.elapsed();
    }
    println!(
        "acquire + release: {} ns (the claim itself takes {} ns to make)",
        both.as_nanos() / u128::from(PAIRS),
        making.as_nanos() / u128::from(PAIRS)
    );
    if let (Some(before), Some(after)) = (before, resident()) {
        println!(
            "left behind by {PAIRS} pairs: {} KiB",
            after.saturating_sub(before) / 1024
        );
    }

    let claims: Result<Vec<_>, Box<dyn Error>> = (0..HELD)
        .map(|n| {
            Ok(claim(
                client,
                &LockKey::new(format!("measure:{n}"))?,
                1_000_000_000 + n,
            ))
        })
        .collect();
    let claims = claims?;
    let before = resident();
    for claim in &claims {
        acquire(&memory, claim)?;
    }
    if let (Some(before), Some(after)) = (before, resident()) {
        println!(
            "a held claim: {} bytes of {HELD}, beside the claim itself",
            (after - before) / HELD
        );
    }
    Ok(())
}
