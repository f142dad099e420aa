//! What a line knows, and how it ends. Who comes, goes and asks is told in its other files.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tenure_backend::{Kind, LockKey, Mode};

use crate::engine::Engine;
use crate::error::LostCause;
use crate::held::Held;
use crate::queue::Queue;
use crate::telemetry::Meters;

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) key: LockKey,
    kind: Kind,
    pub(crate) engine: Arc<Engine>,
    /// Instruments of its own, if keys are told apart.
    meters: Option<Box<Meters>>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) holders: SmallVec<[Arc<Held>; 1]>,
    /// Callers that wait for the answer to their own call.
    pub(super) callers: u32,
    /// There while somebody waits, and so is the driver's task.
    pub(super) queue: Option<Box<Queue>>,
    /// The client was closed: nobody waits or holds any more.
    pub(super) closed: bool,
}

impl Line {
    pub(crate) fn new(engine: Arc<Engine>, key: LockKey, kind: Kind) -> Arc<Self> {
        let meters = engine.settings.key_labels.then(|| {
            let store = engine.backend.profile().store;
            Box::new(Meters::new(store, Some(key.as_str())))
        });
        Arc::new(Line {
            key,
            kind,
            engine,
            meters,
            state: Mutex::default(),
        })
    }

    /// Where what happens to this key is counted.
    pub(crate) fn meters(&self) -> &Meters {
        self.meters.as_deref().unwrap_or_else(|| self.engine.meters())
    }

    /// Whether this is the line of that name.
    pub(crate) fn is_for(&self, key: &LockKey, kind: Kind) -> bool {
        self.key == *key && self.kind == kind
    }

    /// Whether the believed holders of this client leave room for that mode; those that lost it are forgotten. Who waits for
    /// the loss is told by others: not here, under the line's lock.
    pub(super) fn admits(&self, state: &mut State, mode: Mode) -> bool {
        if state.holders.is_empty() {
            return true;
        }
        let now = self.engine.clock.now();
        state.holders.retain(|held| now < held.deadline());
        mode.admits(state.holders.iter().map(|held| held.claim.mode))
    }

    /// The queue, with a driver.
    pub(super) fn queue<'s>(self: &Arc<Self>, state: &'s mut State) -> &'s mut Queue {
        state.queue.get_or_insert_with(|| {
            let queue = Box::new(Queue::new());
            self.engine
                .watchdog
                .spawn(crate::drive::drive(self.clone(), queue.bell.clone()));
            queue
        })
    }

    /// Who of this client holds the key.
    pub(crate) fn holders(&self) -> Vec<Arc<Held>> {
        self.state.lock().holders.to_vec()
    }

    /// A claim of this client is gone: whoever waits may ask.
    pub(crate) fn look_again(&self) {
        Self::ring(&self.state.lock());
    }

    pub(super) fn ring(state: &State) {
        if let Some(queue) = &state.queue {
            queue.bell.notify_one();
        }
    }

    /// The client closes: waiters are told, and holders lose their claims, which are returned.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<Arc<Held>> {
        let (queue, holders) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.queue.take(), std::mem::take(&mut state.holders))
        };
        if let Some(queue) = queue {
            queue.bell.notify_one();
            for waiter in queue.into_waiters() {
                waiter.answer(Err(self.engine.watchdog.closed()));
            }
        }
        for held in &holders {
            held.lose(LostCause::Closed);
        }
        holders.into_vec()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.engine.lines.forget(&self.key, self.kind);
    }
}
