//! The options of locks, handed through to the async face, where they are defined.

/// The options as methods of a face, and how a face is made.
macro_rules! face {
    ($face:ident) => {
        impl $face {
            pub(super) fn new(inner: crate::$face, runtime: &super::runtime::Runtime) -> Self {
                let runtime = runtime.clone();
                Self { inner, runtime }
            }

            fn map(self, change: impl FnOnce(crate::$face) -> crate::$face) -> Self {
                let Self { inner, runtime } = self;
                let inner = change(inner);
                Self { inner, runtime }
            }

            /// Serves waiters first come, first served, across all clients of the store.
            #[must_use]
            pub fn fair(self) -> Self {
                self.map(crate::$face::fair)
            }

            /// Sets the lease: how long the store keeps the lock if this client dies. Renewed at a third of it.
            ///
            /// The default is [`Settings::lease`](crate::Settings::lease), 30 s. At least 30 ms.
            #[must_use]
            pub fn lease(self, lease: std::time::Duration) -> Self {
                self.map(|inner| inner.lease(lease))
            }

            /// Sets a lease that is never renewed: belief ends with it, whatever the holder does.
            #[must_use]
            pub fn fixed_lease(self, lease: std::time::Duration) -> Self {
                self.map(|inner| inner.fixed_lease(lease))
            }

            /// Ends the hold after that time: the lock is then lost, and the watchdog gives it back.
            #[must_use]
            pub fn max_hold(self, time: std::time::Duration) -> Self {
                self.map(|inner| inner.max_hold(time))
            }

            /// Keeps the lock for at least that time, even if its guard goes earlier: for jobs on hosts with skewed
            /// clocks, that must not run again at once.
            #[must_use]
            pub fn at_least(self, time: std::time::Duration) -> Self {
                self.map(|inner| inner.at_least(time))
            }

            /// Sets what people see of the holder. The default is [`Settings::label`](crate::Settings::label).
            #[must_use]
            pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
                self.map(|inner| inner.label(label))
            }

            /// Takes the lock on behalf of an owner, who may take it again while it has it.
            ///
            /// Taken again, it is the first claim once more: the lease, `max_hold`, `at_least` and label of the first
            /// count, and those of this one are ignored; see [`Owner`](crate::Owner).
            #[must_use]
            pub fn owned_by(self, owner: &crate::Owner) -> Self {
                self.map(|inner| inner.owned_by(owner))
            }
        }
    };
}
pub(super) use face;
