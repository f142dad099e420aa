//! The generic adapter of the blocking API: an async value, and the thread of its client.

use std::fmt;
use std::ops::Deref;

use super::runtime::Runtime;
use crate::engine::request::Options;
use crate::lock::options::Configure;

/// A value of the async API whose methods block the calling thread. Each type of [this module](super), except
/// [`Owner`](super::Owner), is an alias of it.
///
/// A blocking method has the name, the arguments and the errors of the async method that it waits for, and every async
/// method has one. Methods that do no I/O are those of the async value, to which this type dereferences.
#[derive(Clone)]
#[must_use = "a guard releases its lock when it is dropped"]
pub struct Blocking<T> {
    // Declared first, so it is dropped before `runtime`: dropping the last `runtime` makes its thread close the client.
    pub(crate) inner: T,
    pub(crate) runtime: Runtime,
}

impl<T> Blocking<T> {
    pub(super) fn over(inner: T, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Blocking { inner, runtime }
    }

    /// Wraps another value of the same client.
    pub(super) fn sibling<U>(&self, inner: U) -> Blocking<U> {
        Blocking::over(inner, &self.runtime)
    }

    pub(super) fn change<U>(self, change: impl FnOnce(T) -> U) -> Blocking<U> {
        let Blocking { inner, runtime } = self;
        let inner = change(inner);
        Blocking { inner, runtime }
    }
}

impl<T: Configure> Configure for Blocking<T> {
    fn set(self, change: impl FnOnce(&mut Options)) -> Self {
        self.change(|inner| inner.set(change))
    }
}

impl<T> Deref for Blocking<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Converts the output of an async method into the output of the blocking method.
pub(super) trait Adapt<B> {
    fn adapt(self, runtime: &Runtime) -> B;
}

impl<T> Adapt<T> for T {
    fn adapt(self, _: &Runtime) -> T {
        self
    }
}

impl<T> Adapt<Blocking<T>> for T {
    fn adapt(self, runtime: &Runtime) -> Blocking<T> {
        Blocking::over(self, runtime)
    }
}

impl<T> Adapt<Option<Blocking<T>>> for Option<T> {
    fn adapt(self, runtime: &Runtime) -> Option<Blocking<T>> {
        self.map(|inner| Blocking::over(inner, runtime))
    }
}

/// Adds blocking methods, each named as the async method that it calls: `sets` change an option, `makes` make another
/// value without I/O, `waits` wait for a future, and `ends` also consume the value.
macro_rules! blocking {
    ($type:ident
        $(sets { $($set:ident($set_arg:ident: $set_of:ty);)* })?
        $(makes { $($make:ident($($make_arg:ident: $make_of:ty),*) -> $made:ty;)* })?
        $(waits { $($wait:ident($($arg:ident: $of:ty),*) -> $output:ty;)* })?
        $(ends { $($end:ident();)* })?
    ) => {
        impl $type {
            $($(
                #[doc = concat!("See [`tenure::", stringify!($type), "::", stringify!($set), "`](crate::",
                    stringify!($type), "::", stringify!($set), ").")]
                pub fn $set(self, $set_arg: $set_of) -> Self {
                    self.change(|inner| inner.$set($set_arg))
                }
            )*)?
            $($(
                #[doc = concat!("See [`tenure::", stringify!($type), "::", stringify!($make), "`](crate::",
                    stringify!($type), "::", stringify!($make), ").")]
                pub fn $make(&self, $($make_arg: $make_of),*) -> $made {
                    self.sibling(self.inner.$make($($make_arg),*))
                }
            )*)?
            $($(
                #[doc = concat!("Waits for [`tenure::", stringify!($type), "::", stringify!($wait), "`](crate::",
                    stringify!($type), "::", stringify!($wait), ").")]
                ///
                /// # Errors
                /// Those of the async method and of its future.
                ///
                /// # Panics
                /// On a thread that drives async tasks.
                pub fn $wait(&self, $($arg: $of),*) -> Result<$output, crate::Error> {
                    let output = self.runtime.block_on(self.inner.$wait($($arg),*))?;
                    Ok(super::adapter::Adapt::<$output>::adapt(output, &self.runtime))
                }
            )*)?
            $($(
                #[doc = concat!("Waits for [`tenure::", stringify!($type), "::", stringify!($end), "`](crate::",
                    stringify!($type), "::", stringify!($end), ").")]
                ///
                /// # Errors
                /// Those of the async method.
                ///
                /// # Panics
                /// On a thread that drives async tasks. The value is then dropped, and the watchdog releases its locks.
                pub fn $end(self) -> Result<(), crate::Error> {
                    self.runtime.block_on(self.inner.$end())
                }
            )*)?
        }
    };
}
pub(super) use blocking;
