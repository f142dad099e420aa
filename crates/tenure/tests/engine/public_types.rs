//! The compiler checks which public types are `Send`, `Sync`, `Unpin` and `Clone`.

use tenure::backend::{
    AcquireReply, Batch, BatchCall, Call, Cause, Claim, Grant, Inspection, Limits, Loss, OwnerId, Phase,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Successor, SystemClock, TokenRange, WakeSignal,
    Wakes,
};
use tenure::backend::{Evidence, Fairness, Fencing};
use tenure::fenced::{
    Dialect, Fence, FencedCell, InvalidName, InvalidStatement, Slot, Stale, Statement, Trigger,
};
use tenure::inspect::{Cursor, Finding, HolderStatus, LockStatus, Page, Query, Severity, WaiterStatus};
use tenure::{
    Acquire, BackendError, Change, Changes, ClaimId, ClaimRef, Client, Effect, Election, Error, Fault,
    FencingToken, Guarantee, Guard, HolderId, Instant, InvalidDuration, InvalidUrl, Kind, Leader, Lock,
    LockKey, Lost, LostCause, Mode, Multi, MultiGuard, Mutex, Owner, Profile, ReleaseTarget, RwLock,
    Semaphore, Settings, StoreUrl, Striped,
};

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn owns<T: 'static>() {}
fn clone<T: Clone>() {}

#[test]
fn public_types_are_send_and_sync() {
    macro_rules! travels {
        ($($type:ty),*) => { $( send::<$type>(); sync::<$type>(); unpin::<$type>(); owns::<$type>(); )* };
    }
    travels!(
        Change, Client, Election, Error, Guard, Leader, Lock, Lost, LostCause, Multi, MultiGuard, Mutex,
        Owner, RwLock, Semaphore, Settings, Striped
    );
    travels!(
        BackendError,
        Batch<RenewRequest>,
        WakeSignal,
        Cause,
        Claim,
        ClaimId,
        ClaimRef,
        Cursor,
        ReleaseRequest,
        Effect,
        Evidence,
        Fairness,
        Fault,
        Fencing,
        FencingToken,
        Finding,
        Grant,
        Guarantee,
        Successor,
        ReleaseTarget,
        HolderId,
        HolderStatus,
        Inspection,
        Instant,
        Kind,
        Limits,
        LockKey,
        LockStatus,
        Loss,
        Mode,
        OwnerId,
        Page<LockStatus>,
        Phase,
        Profile,
        Query,
        ReleaseReply,
        RenewRequest,
        RenewReply,
        Severity,
        AcquireReply,
        SystemClock,
        TokenRange,
        WaiterStatus
    );
    travels!(
        InvalidName,
        InvalidStatement,
        Dialect,
        Fence,
        FencedCell<u64>,
        Slot,
        Stale,
        Statement,
        Trigger
    );
    travels!(InvalidDuration, StoreUrl, InvalidUrl);
    // Futures and streams may move between threads, but need not be `Sync`.
    macro_rules! is_handed_on {
        ($($type:ty),*) => { $( send::<$type>(); unpin::<$type>(); owns::<$type>(); )* };
    }
    is_handed_on!(
        Acquire<Guard>,
        Acquire<Option<MultiGuard>>,
        Call<AcquireReply>,
        Changes,
        BatchCall<RenewReply>,
        Wakes
    );
}

#[test]
fn handles_can_be_cloned_and_guards_cannot() {
    clone::<Client>();
    clone::<Mutex>();
    clone::<RwLock>();
    clone::<Semaphore>();
    clone::<Multi>();
    trait NotClone<A> {
        fn proof() {}
    }
    struct IsClone;
    impl<T: ?Sized> NotClone<()> for T {}
    impl<T: Clone> NotClone<IsClone> for T {}
    // If `Guard` were `Clone`, this would be ambiguous: a compile error.
    <Guard as NotClone<_>>::proof();
}

#[tokio::test]
async fn the_futures_of_guards_can_be_spawned() {
    let client = tenure::connect("memory:").await.unwrap();
    let guard = client.mutex("k").lock().await.unwrap();
    let task = tokio::spawn(async move {
        guard.while_held(async { 1 }).await.unwrap();
        guard.verify().await.unwrap();
        guard.unlock().await
    });
    task.await.unwrap().unwrap();
    let task = tokio::spawn(async move { client.mutex("k").with(async |_| 7).await });
    assert_eq!(task.await.unwrap().unwrap(), 7);
}
