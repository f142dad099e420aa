//! What the compiler can promise of the public types.

use tenure::{
    Acquire, Client, Error, Guard, Lost, Member, Multi, MultiGuard, Mutex, Owner, RwLock, Semaphore,
    Settings, Striped,
};

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn owns<T: 'static>() {}
fn clone<T: Clone>() {}

#[test]
fn every_public_type_can_travel_between_threads() {
    macro_rules! travels {
        ($($type:ty),*) => { $( send::<$type>(); sync::<$type>(); unpin::<$type>(); owns::<$type>(); )* };
    }
    travels!(
        Client, Error, Guard, Lost, Member, Multi, MultiGuard, Mutex, Owner, RwLock, Semaphore, Settings,
        Striped
    );
    send::<Acquire<Guard>>();
    send::<Acquire<Option<MultiGuard>>>();
    owns::<Acquire<Guard>>();
    unpin::<Acquire<Guard>>();
}

#[test]
fn faces_are_cheap_to_clone_and_guards_cannot_be() {
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
    // Ambiguous, and so an error of the compiler, if a guard could be cloned.
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
}
