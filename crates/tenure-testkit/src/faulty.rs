//! Decorator for faults between a client and its store: a hook sees each call before and after the store, and may
//! change its requests and replies.

use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fault,
    Finding, Instant, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, Wakes,
};

/// Backend whose calls pass through the fault hook `F`.
///
/// # Guarantees
/// - The hook runs once before and once after each `acquire`, `renew`, `release`, `watch` and `inspect`, with all
///   elements of the call.
/// - An element that the hook has answered at [`When::Before`] does not reach the store.
/// - `examine` and `close` go to the store without the hook.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::{Backend, BackendError, Effect, Fault};
/// use tenure_testkit::{Exchange, Faults, FaultyBackend, When};
///
/// /// Loses every reply of the store.
/// #[derive(Debug)]
/// struct ReplyLoss(Arc<dyn Backend>);
///
/// impl Faults for ReplyLoss {
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
/// fn without_replies(store: Arc<dyn Backend>) -> Arc<dyn Backend> {
///     Arc::new(FaultyBackend::new(ReplyLoss(store)))
/// }
/// ```
#[derive(Debug)]
pub struct FaultyBackend<F> {
    faults: F,
    profile: Profile,
    clock: Arc<dyn Clock>,
}

/// Hook that decides what happens to the calls of a [`FaultyBackend`].
///
/// # Examples
/// See [`FaultyBackend`].
pub trait Faults: Debug + Send + Sync + 'static {
    /// Store to which the next call is sent.
    fn store(&self) -> Arc<dyn Backend>;

    /// Hints that claims of the client may be gone. By default, those of the store.
    fn invalidations(&self, client: ClientId) -> Option<Invalidations> {
        self.store().invalidations(client)
    }

    /// Runs when the client makes a call, before it polls the call's future.
    fn called(&self, requests: &[Request]) {
        let _ = requests;
    }

    /// Runs before a call is sent and after the store has replied. It may wait, and may change requests and replies.
    ///
    /// # Cancel safety
    /// The future is dropped together with its call.
    fn on(&self, when: When, call: &mut [Exchange]) -> impl Future<Output = ()> + Send;
}

/// Point of a call at which the hook runs.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the request is sent.
    Before,
    /// After the store has replied, or was skipped because the hook had answered.
    After,
}

/// One element of a call: its request and, once it exists, its reply.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Debug)]
pub struct Exchange {
    /// Request of the client. The store receives it as the hook left it at [`When::Before`].
    pub request: Request,
    /// Reply to the client, once there is one. An error of a `renew` or `release` element is an `Err` here, although
    /// the client gets it as a reply `Unknown`.
    pub reply: Option<Result<Reply, BackendError>>,
    /// Time at which the client made the call.
    pub asked: Instant,
    /// Whether the store has received the request and replied.
    pub sent: bool,
}

impl Exchange {
    /// Replaces the reply by this error.
    pub fn fail(&mut self, error: BackendError) {
        self.reply = Some(Err(error));
    }
}

/// Request of a client to its store.
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Places a claim, but not after this time; or polls a placed claim.
    Acquire(Arc<Claim>, Instant),
    /// Renews a claim.
    Renew(RenewRequest),
    /// Releases, withdraws or evicts claims.
    Release(ReleaseRequest),
    /// Arms wake-ups for a claim.
    Watch(Arc<Claim>),
    /// Inspects keys.
    Inspect(Query),
}

/// Reply of a store to a [`Request`].
///
/// # Examples
/// See [`FaultyBackend`].
#[derive(Debug)]
pub enum Reply {
    /// Reply to [`Request::Acquire`].
    Acquire(AcquireReply),
    /// Reply to [`Request::Renew`].
    Renew(RenewReply),
    /// Reply to [`Request::Release`].
    Release(ReleaseReply),
    /// Reply to [`Request::Watch`].
    Watch(Wakes),
    /// Reply to [`Request::Inspect`].
    Inspect(Page<LockStatus>),
}

/// Lets a test reach the hook `F`.
impl<F> Deref for FaultyBackend<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.faults
    }
}

impl<F: Faults> FaultyBackend<F> {
    /// Creates a backend with this hook, over the hook's store.
    pub fn new(faults: F) -> Self {
        let store = faults.store();
        FaultyBackend {
            profile: store.profile().clone(),
            clock: store.clock().clone(),
            faults,
        }
    }

    /// Replaces the profile, which is otherwise that of the store.
    pub fn with_profile(self, profile: Profile) -> Self {
        FaultyBackend { profile, ..self }
    }

    /// Carries out one call. A hook that changes the kind of a request or of its reply is a bug in the test.
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
                || BackendError::new(Fault::Unavailable, Effect::Unknown, "no reply for this element");
            let reply = |element: Exchange| element.reply.unwrap_or_else(|| Err(silence()));
            call.into_iter().map(reply).collect()
        }
    }

    /// Carries out a call with one request. `take` unwraps the expected kind of reply.
    fn one<T: 'static>(self: Arc<Self>, request: Request, take: fn(Reply) -> Result<T, Reply>) -> Call<T> {
        let call = self.exchange(vec![request]);
        Call::new(async move {
            let reply = call.await.pop().expect("one request has one reply")?;
            Ok(take(reply).unwrap_or_else(|other| panic!("{other:?} is no reply to this request")))
        })
    }
}

/// Sends the requests of one call to a store. All requests must be of one kind.
pub(crate) async fn send(
    store: Arc<dyn Backend>,
    requests: Vec<Request>,
) -> Vec<Result<Reply, BackendError>> {
    let mut renewals = Batch::new();
    let mut releases = Batch::new();
    for request in requests {
        match request {
            Request::Acquire(claim, not_after) => {
                return vec![store.acquire(claim, not_after).await.map(Reply::Acquire)];
            }
            Request::Watch(claim) => return vec![store.watch(claim).await.map(Reply::Watch)],
            Request::Inspect(query) => return vec![store.inspect(query).await.map(Reply::Inspect)],
            Request::Renew(renewal) => renewals.push(renewal),
            Request::Release(release) => releases.push(release),
        }
    }
    if releases.is_empty() {
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
        store.release(releases).await.into_iter().map(reply).collect()
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

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        self.faults.invalidations(client)
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
