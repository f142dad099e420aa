//! A connection of the redis crate that has logged in, and the task that drives it.

use std::future::Future;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::connection::stream::Stream;

/// Handle of the task that reads and writes. Dropping the handle ends the task, also if connecting is cancelled
/// halfway.
pub(crate) struct Driver {
    task: AbortHandle,
    /// The channel closes when the task has ended.
    ended: watch::Receiver<()>,
}

/// Logs in on a stream. Replies have no time limit of their own.
pub(crate) async fn log_in(
    stream: Stream,
    login: &RedisConnectionInfo,
    settings: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Driver)> {
    let settings = settings.set_response_timeout(None);
    let (connection, driving) = MultiplexedConnection::new_with_config(login, stream, settings).await?;
    let (alive, ended) = watch::channel(());
    let task = tokio::spawn(async move {
        let _alive = alive;
        driving.await;
    });
    let task = task.abort_handle();
    Ok((connection, Driver { task, ended }))
}

impl Driver {
    pub(crate) fn end(&self) {
        self.task.abort();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
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
