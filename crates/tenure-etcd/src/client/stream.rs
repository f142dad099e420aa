//! A stream in both directions: requests to a member, and its replies.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryFutureExt, stream};
use tenure_backend::BackendError;
use tokio::sync::mpsc;
use tonic::Status;
use tonic_prost::ProstCodec;

use super::member::{Member, carry};
use super::methods::{Message, Method};
use crate::error::{Failure, Next, ended};

/// The replies to the requests of a stream. Dropping them ends the stream.
pub struct Replies<A> {
    member: Arc<Member>,
    stream: Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>,
}

impl<A: Message> Replies<A> {
    /// Opens a stream. It reaches the member when `next` is called, and requests are sent while a call of `next` waits. The member
    /// confirms the stream together with the first reply, so a failure is known only then. The stream ends with its requests, too.
    pub(super) async fn of<Q: Message>(
        method: &Method<Q, A>,
        member: Arc<Member>,
        requests: mpsc::UnboundedReceiver<Q>,
    ) -> Self {
        let requests = stream::unfold(requests, async |mut requests| {
            requests.recv().await.map(|request| (request, requests))
        });
        let request = carry(requests, member.token().await.as_ref());
        let (mut grpc, path) = (member.grpc(), method.path());
        let opening = async move {
            let opened = grpc.streaming(request, path, ProstCodec::default()).await?;
            Ok::<_, Status>(opened.into_inner())
        };
        Replies {
            member,
            stream: Box::pin(opening.try_flatten_stream()),
        }
    }

    /// Waits for the next reply.
    ///
    /// # Cancel safety
    /// Dropping the future loses no reply.
    ///
    /// # Errors
    /// After an error, the stream has ended: open another. Requests without a reply may have been carried out.
    pub async fn next(&mut self) -> Result<A, BackendError> {
        let failed = match self.stream.next().await {
            Some(Ok(reply)) => return Ok(reply),
            Some(Err(status)) => Failure::from(status),
            None => Failure {
                error: ended(),
                next: Next::Leave,
            },
        };
        // The replies of a broken connection would repeat its error.
        self.stream = Box::pin(stream::empty());
        if failed.next == Next::Leave {
            self.member.leave();
        }
        Err(failed.error)
    }

    /// Leaves the member of this stream: later calls and streams of the client go to another one.
    pub fn leave(self) {
        self.member.leave();
    }
}
