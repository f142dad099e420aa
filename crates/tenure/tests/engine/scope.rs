//! Work under a lock: `with` and its variants, on every kind of lock.

use std::time::Duration;

use tenure::{Error, Lock, multi};

use crate::fixture::{Fixture, MS, SECOND, assert_error, pass};

/// The error type of a program. An error of a lock converts into it.
#[derive(Debug)]
enum Fault {
    Locks(Error),
    SoldOut,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Locks(error)
    }
}

#[tokio::test(start_paused = true)]
async fn with_works_on_every_kind_of_lock() {
    let client = Fixture::new().client();
    let (lock, permits) = (client.rwlock("rw"), client.semaphore("s", 2));
    let (reader, writer, both) = (lock.reader(), lock.writer(), permits.permits(2));
    let read = reader.with(async |_| lock.try_read().await.unwrap().is_some());
    assert!(read.await.unwrap(), "readers share");
    let written = writer.with(async |_| lock.try_read().await.unwrap().is_none());
    assert!(written.await.unwrap(), "a writer is alone");
    let one = permits.with(async |_| permits.try_acquire().await.unwrap().is_some());
    assert!(one.await.unwrap(), "one of two permits is left");
    let both = both.with(async |_| permits.try_acquire().await.unwrap().is_none());
    assert!(both.await.unwrap(), "no permit is left");
    let striped = client.striped("carts", 8);
    let under = striped.mutex("a").with(async |guard| guard.key().to_string());
    assert!(under.await.unwrap().starts_with("carts#"));
    let all = multi([client.mutex("m")])
        .and(lock.writer())
        .and(permits.permits(2));
    let members = all.with(async |guards| guards.members().len()).await.unwrap();
    assert_eq!(members, 3);
    let election = client.election("chair");
    let led = election.lead(async |leader| leader.token().is_some()).await;
    assert!(led.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_fallback_runs_when_any_kind_of_lock_is_busy() {
    let client = Fixture::new().client();
    let (lock, permits) = (client.rwlock("rw"), client.semaphore("s", 2));
    let all = multi([client.mutex("m")]).and(lock.reader());
    let _held = (
        lock.write().await.unwrap(),
        permits.acquire_many(2).await.unwrap(),
    );
    for limit in [Duration::ZERO, 50 * MS] {
        for side in [lock.reader(), lock.writer(), permits.permits(1)] {
            let busy = side.with_or_else(limit, async |_| false, async || true).await;
            assert!(busy.unwrap());
        }
        assert!(
            permits
                .with_or_else(limit, async |_| false, async || true)
                .await
                .unwrap()
        );
        assert!(
            all.with_or_else(limit, async |_| false, async || true)
                .await
                .unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_gives_its_own_error_and_frees_the_lock() {
    let (fixture, [client]) = Fixture::clients();
    let mutex = client.mutex("k");
    let sold: Result<u8, Fault> = mutex.try_with(async |_| Err(Fault::SoldOut)).await;
    assert!(matches!(sold, Err(Fault::SoldOut)));
    assert!(fixture.is_free("k").await);
    let sold = mutex
        .try_with_or_else(SECOND, async |_| Err(Fault::SoldOut), async || Ok(1))
        .await;
    assert!(matches!(sold, Err(Fault::SoldOut)));
    let _guard = mutex.lock().await.unwrap();
    let work = async |_: &tenure::Guard| Ok::<_, Fault>("work");
    let fallback = mutex
        .try_with_or_else(50 * MS, work, async || Ok("fallback"))
        .await;
    assert_eq!(fallback.unwrap(), "fallback");
    let term: Result<u8, Fault> = client
        .election("chair")
        .try_lead(async |_| Err(Fault::SoldOut))
        .await;
    assert!(matches!(term, Err(Fault::SoldOut)));
    assert!(fixture.is_free("chair").await);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_an_error_of_the_work_s_type() {
    let mutex = Fixture::new().client().mutex("k").fixed_lease(SECOND);
    let lost: Result<(), Fault> = Lock::from(&mutex)
        .try_with(async |_| {
            pass(5 * SECOND).await;
            Ok(())
        })
        .await;
    let Err(Fault::Locks(error)) = lost else {
        panic!("{lost:?}")
    };
    assert_error!(Err::<(), _>(error), Error::Lost(_));
}

/// The futures of `with`, its variants and `lead` are `Send`.
#[tokio::test(start_paused = true)]
async fn work_under_any_lock_can_be_spawned() {
    let client = Fixture::new().client();
    let task = tokio::spawn(async move {
        let seen = String::from("seen");
        let writer = client.rwlock("rw").writer();
        let one = writer.try_with(async |_| Ok::<_, Error>(seen.len())).await?;
        let all = multi([client.mutex("a")]).and(client.semaphore("s", 1).permits(1));
        let both = all.with_or_else(SECOND, async |guards| guards.members().len(), async || 0);
        let led = client.election("chair").lead(async move |_| 3).await?;
        Ok::<_, Error>((one, both.await?, led))
    });
    assert_eq!(task.await.unwrap().unwrap(), (4, 2, 3));
}
