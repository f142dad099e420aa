//! One decorator for every fault between a client and its store: a hook sees each call twice and changes what it likes.

use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, Clock, Effect, Fault, Finding,
    Instant, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

/// A store behind faults that `F` decides.
///
/// # Guarantees
/// - The hook runs once before and once after each `acquire`, `renew`, `release`, `watch` and `inspect`, with all
///   elements of the call.
/// - An element that has a reply after the hook ran [`When::Before`] does not reach the store.
/// - `examine` and `close` go to the store as they are.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::{Backend, BackendError, Effect, Fault};
/// use tenure_testkit::{Exchange, Faults, FaultyBackend, When};
///
/// /// A store whose answers are lost on the way back.
/// #[derive(Debug)]
/// struct Mute(Arc<dyn Backend>);
///
/// impl Faults for Mute {
///     fn store(&self) -> Arc<dyn Backend> {
///         self.0.clone()
///     }
///
///     async fn on(&self, when: When, call: &mut [Exchange]) {
///         for element in call.iter_mut().filter(|_| when == When::After) {
///             element.fail(BackendError::new(Fault::Unavailable, Effect::Unknown, "lost"));
///         }
///     }
/// }
///
/// fn mute(store: Arc<dyn Backend>) -> Arc<dyn Backend> {
///     Arc::new(FaultyBackend::new(Mute(store)))
/// }
/// ```
#[derive(Debug)]
pub struct FaultyBackend<F> {
    faults: F,
    profile: Profile,
    clock: Arc<dyn Clock>,
}

/// Decides what happens to the calls of a [`FaultyBackend`].
///
/// # Examples
/// See [`FaultyBackend`].
pub trait Faults: Debug + Send + Sync + 'static {
    /// The store that the next call goes to.
    fn store(&self) -> Arc<dyn Backend>;

    /// Wakes when the client is to believe that a connection was replaced.
    fn reconnects(&self) -> Option<Wakes> {
        self.store().reconnects()
    }

    /// Runs when the client makes a call, before there is a future.
    fn called(&self, requests: &[Request]) {
        let _ = requests;
    }

    /// Sees a call before it is sent and after the store has replied; may wait, and may change requests and replies.
    ///
    /// # Cancel safety
    /// The future is dropped with the call that it belongs to.
    fn on(&self, when: When, call: &mut [Exchange]) -> impl Future<Output = ()> + Send;
}

/// At which point of a call the hook runs.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing was sent yet.
    Before,
    /// The store has replied, or was not asked.
    After,
}

/// One element of a call: its request and, as soon as there is one, its reply.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Debug)]
pub struct Exchange {
    /// What the client asks for. A change before the call is sent reaches the store.
    pub request: Request,
    /// What the client will be answered. The errors of `renew` and `release` stand here, not in their replies.
    pub reply: Option<Result<Reply, BackendError>>,
    /// When the client made the call.
    pub asked: Instant,
    /// Whether the request has reached the store.
    pub sent: bool,
}

impl Exchange {
    /// Has the client get this error.
    pub fn fail(&mut self, error: BackendError) {
        self.reply = Some(Err(error));
    }
}

/// What a client asks of its store.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Place or poll a claim, until this moment.
    Acquire(Arc<Claim>, Instant),
    /// Keep a claim alive.
    Renew(RenewRequest),
    /// Make holders or waiters absent.
    Release(ReleaseRequest),
    /// Arm wake-ups for a claim.
    Watch(Arc<Claim>),
    /// Show what is locked.
    Inspect(Query),
}

/// What the store replied.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Debug)]
pub enum Reply {
    /// To [`Request::Acquire`].
    Acquire(AcquireReply),
    /// To [`Request::Renew`].
    Renew(RenewReply),
    /// To [`Request::Release`].
    Release(ReleaseReply),
    /// To [`Request::Watch`].
    Watch(Wakes),
    /// To [`Request::Inspect`].
    Inspect(Page<LockStatus>),
}

/// A test tells the hook what to do through the backend.
impl<F> Deref for FaultyBackend<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.faults
    }
}

impl<F: Faults> FaultyBackend<F> {
    /// Puts the hook's store behind its faults.
    pub fn new(faults: F) -> Self {
        let store = faults.store();
        FaultyBackend {
            profile: store.profile().clone(),
            clock: store.clock().clone(),
            faults,
        }
    }

    /// Has it claim another profile than its store's.
    pub fn with_profile(self, profile: Profile) -> Self {
        FaultyBackend { profile, ..self }
    }

    /// Carries out one call. A hook that changes the kind of a request or of its reply is a bug of the test.
    fn exchange(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> impl Future<Output = Vec<Result<Reply, BackendError>>> + Send {
        self.faults.called(&requests);
        let asked = self.clock.now();
        let exchange = move |request| Exchange {
            request,
            reply: None,
            asked,
            sent: false,
        };
        let mut call: Vec<Exchange> = requests.into_iter().map(exchange).collect();
        async move {
            self.faults.on(When::Before, &mut call).await;
            let mut open: Vec<&mut Exchange> = call
                .iter_mut()
                .filter(|element| element.reply.is_none())
                .collect();
            if !open.is_empty() {
                let requests = open.iter().map(|element| element.request.clone()).collect();
                let replies = send(self.faults.store(), requests).await;
                for (element, reply) in open.iter_mut().zip(replies) {
                    (element.sent, element.reply) = (true, Some(reply));
                }
            }
            self.faults.on(When::After, &mut call).await;
            let silence =
                || BackendError::new(Fault::Unavailable, Effect::Unknown, "no answer for this element");
            let reply = |element: Exchange| element.reply.unwrap_or_else(|| Err(silence()));
            call.into_iter().map(reply).collect()
        }
    }

    /// Carries out a call of one request, whose reply `take` knows.
    fn one<T: 'static>(self: Arc<Self>, request: Request, take: fn(Reply) -> Result<T, Reply>) -> Call<T> {
        let call = self.exchange(vec![request]);
        Call::new(async move {
            let reply = call.await.pop().expect("one request has one reply")?;
            Ok(take(reply).unwrap_or_else(|other| panic!("{other:?} is no reply to this request")))
        })
    }
}

/// Sends the requests of one call, all of one kind.
pub(crate) async fn send(
    store: Arc<dyn Backend>,
    requests: Vec<Request>,
) -> Vec<Result<Reply, BackendError>> {
    let mut renewals = Batch::new();
    let mut departures = Batch::new();
    for request in requests {
        match request {
            Request::Acquire(claim, not_after) => {
                return vec![store.acquire(claim, not_after).await.map(Reply::Acquire)];
            }
            Request::Watch(claim) => return vec![store.watch(claim).await.map(Reply::Watch)],
            Request::Inspect(query) => return vec![store.inspect(query).await.map(Reply::Inspect)],
            Request::Renew(renewal) => renewals.push(renewal),
            Request::Release(departure) => departures.push(departure),
        }
    }
    if departures.is_empty() {
        let reply = |answer| match answer {
            RenewReply::Unknown(error) => Err(error),
            known => Ok(Reply::Renew(known)),
        };
        store.renew(renewals).await.into_iter().map(reply).collect()
    } else {
        let reply = |answer| match answer {
            ReleaseReply::Unknown(error) => Err(error),
            done => Ok(Reply::Release(done)),
        };
        store.release(departures).await.into_iter().map(reply).collect()
    }
}

impl<F: Faults> Backend for FaultyBackend<F> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.one(Request::Acquire(claim, not_after), |reply| match reply {
            Reply::Acquire(standing) => Ok(standing),
            other => Err(other),
        })
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let call = self.exchange(batch.into_iter().map(Request::Renew).collect());
        BatchCall::new(async move {
            let renewed = |reply| match reply {
                Ok(Reply::Renew(renewed)) => renewed,
                Ok(other) => panic!("{other:?} is no reply to `renew`"),
                Err(error) => RenewReply::Unknown(error),
            };
            call.await.into_iter().map(renewed).collect()
        })
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let call = self.exchange(batch.into_iter().map(Request::Release).collect());
        BatchCall::new(async move {
            let released = |reply| match reply {
                Ok(Reply::Release(released)) => released,
                Ok(other) => panic!("{other:?} is no reply to `release`"),
                Err(error) => ReleaseReply::Unknown(error),
            };
            call.await.into_iter().map(released).collect()
        })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        self.one(Request::Watch(claim), |reply| match reply {
            Reply::Watch(wakes) => Ok(wakes),
            other => Err(other),
        })
    }

    fn reconnects(&self) -> Option<Wakes> {
        self.faults.reconnects()
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.one(Request::Inspect(query), |reply| match reply {
            Reply::Inspect(page) => Ok(page),
            other => Err(other),
        })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.faults.store().examine()
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.faults.store().close()
    }
}
