//! A caller in the model of a queue, with the state of its future.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use tenure_backend::{ClientId, Fairness, Mode};

use crate::engine::hold::Hold;
use crate::engine::owner::Owner;
use crate::engine::queue::callers::CallerKind;
use crate::engine::queue::waiter::WaiterId;
use crate::engine::request::{LockRequest, Options};
use crate::settings::Settings;

const MS: Duration = Duration::from_millis(1);

pub(super) struct Caller {
    pub(super) id: WaiterId,
    pub(super) request: LockRequest,
    pub(super) kind: CallerKind,
    /// Number of tokens that the caller's own claim reserves.
    pub(super) reserve: u32,
    pub(super) state: CallerState,
    pub(super) flag: Arc<WakeFlag>,
    /// Whether the caller was woken after its last poll.
    pub(super) is_woken: bool,
}

impl Caller {
    pub(super) fn waker(&self) -> Waker {
        self.flag.clone().into()
    }
}

#[derive(Debug)]
pub(super) enum CallerState {
    /// The caller polls its own call.
    Calling,
    /// A task polls the caller's call.
    Adopted,
    /// The caller was dropped during its call.
    Left,
    Waiting,
    Holding(Arc<Hold>),
    Gone,
}

/// A waker that records whether it was woken.
#[derive(Default)]
pub(super) struct WakeFlag(pub(super) AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request with the lock option that is named `option`.
pub(super) fn request(settings: &Settings, option: &str) -> LockRequest {
    let mut options = Options::new(settings);
    let mut mode = Mode::Exclusive;
    match option.trim_start_matches("with ") {
        "" => {}
        "to read" => mode = Mode::Read,
        "to read with label" => (mode, options.label) = (Mode::Read, "another".into()),
        "to write" => mode = Mode::Write,
        "for a permit" => {
            let [take, of] = [1, 2].map(|permits| NonZeroU32::new(permits).expect("not zero"));
            mode = Mode::Permits { take, of };
        }
        // A write lock that may be handed over in memory.
        "to write with linger" => (mode, options.linger) = (Mode::Write, 10 * MS),
        "label" => options.label = "another".into(),
        "linger" => options.linger = 10 * MS,
        // The local deadline is 89 ms after the grant.
        "lease of 100 ms" => options.lease = 100 * MS,
        // The local deadline is 7.8 ms after the grant.
        "short lease" => (options.lease, options.linger) = (18 * MS, 10 * MS),
        "fixed lease" => options.terms.renewed = false,
        "max_hold" => options.terms.max_hold = Some(1_000 * MS),
        "at_least" => options.terms.at_least = Some(MS),
        "member" => options.member = true,
        "fair" => options.fairness = Fairness::Fifo,
        "owner" => {
            let client = ClientId::from_random([1; 16]);
            options.owner = Some(Owner::new(NonZeroU64::MIN, "one", client));
        }
        other => panic!("no option is called {other}"),
    }
    LockRequest {
        mode,
        options: Arc::new(options),
    }
}
