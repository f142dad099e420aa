//! A connection of the redis crate that has logged in, and the task that drives it.

use std::future::Future;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tenure_backend::BackendError;
use tenure_endpoint::Login;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::connection::connect_error::ConnectError;
use crate::connection::read_after_close::{FirstRead, ReadAfterClose};
use crate::connection::stream::Stream;

/// Handle of the task that reads and writes. Dropping the handle ends the task, also if connecting is cancelled
/// halfway.
pub(crate) struct Driver {
    task: AbortHandle,
    /// The channel closes when the task has ended.
    ended: watch::Receiver<()>,
}

/// What a client tells a server or a sentinel when it logs in: its user, its password and its name.
pub(crate) async fn handshake(login: &Login) -> Result<RedisConnectionInfo, BackendError> {
    let credentials = login.credentials().await?;
    let mut info = RedisConnectionInfo::default().set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
    if let Some(user) = credentials.user_name() {
        info = info.set_username(user);
    }
    Ok(match credentials.secret() {
        Some(password) => info.set_password(password.expose()),
        // An empty password makes the client log in. Otherwise it would act as the default user.
        None if credentials.user_name().is_some() => info.set_password(""),
        None => info,
    })
}

/// Logs in on a stream. Sets no time limit for replies: callers limit what they wait for.
pub(crate) async fn log_in(
    stream: Stream,
    login: &RedisConnectionInfo,
    settings: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Driver), ConnectError> {
    let settings = settings.set_response_timeout(None);
    let first = FirstRead::default();
    let stream = ReadAfterClose::new(stream, first.clone());
    match MultiplexedConnection::new_with_config(login, stream, settings).await {
        Ok((connection, driving)) => Ok((connection, Driver::start(driving))),
        // The reason why the server ended the connection says more than the end.
        Err(error) if error.is_io_error() => Err(first.refusal().unwrap_or(error.into())),
        Err(error) => Err(error.into()),
    }
}

impl Driver {
    fn start(driving: impl Future<Output = ()> + Send + 'static) -> Self {
        let (alive, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            let _alive = alive;
            driving.await;
        });
        let task = task.abort_handle();
        Driver { task, ended }
    }

    pub(crate) fn end(&self) {
        self.task.abort();
    }

    /// Returns whether the task has ended. Asks the channel, because [`ended`](Self::ended) can resolve before
    /// `AbortHandle::is_finished` returns true.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Resolves when the task has ended. The future does not keep the connection open.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_driver_has_ended_when_its_end_is_announced() {
        for attempt in 0..1000 {
            let driver = Driver::start(ready(()));
            driver.ended().await;
            assert!(driver.has_ended(), "attempt {attempt}");
        }
    }
}
