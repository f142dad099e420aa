//! A connection to one member that has answered, and the login on it.

use std::sync::atomic::{AtomicBool, Ordering};

use tenure_backend::BackendError;
use tenure_endpoint::{Dialer, Host, Login};
use tokio::sync::Mutex;
use tonic::Request;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic_prost::ProstCodec;

use super::connection::Connection;
use super::messages::{AuthenticateRequest, Empty};
use super::methods::{AUTHENTICATE, Message, Method, STATUS};
use crate::config::Config;
use crate::error::{Failure, Next, no_token, not_greeted};

/// What a member gives a client that has logged in.
pub(super) type Token = MetadataValue<Ascii>;

/// A connection to a member.
pub(super) struct Member {
    connection: Connection,
    login: Login,
    /// The token of the last login; `None` without a user. The mutex is locked during a login, so that requests wait for
    /// it, and one login serves them all.
    token: Mutex<Option<Token>>,
    left: AtomicBool,
}

impl Member {
    /// Connects, and waits for a first answer: a login if there is a user, else the member's state. A member without
    /// a leader refuses both.
    pub(super) async fn connect(dialer: &Dialer, config: &Config, host: &Host) -> Result<Self, BackendError> {
        let is_secure = config.tls.is_some();
        let member = Member {
            connection: Connection::dial(dialer, is_secure, host).await?,
            login: config.login.clone(),
            token: Mutex::default(),
            left: AtomicBool::new(false),
        };
        let greeted = match member.log_in(None).await {
            Ok(None) => member.send(&STATUS, Empty {}, None).await.map(drop),
            logged_in => logged_in.map(drop),
        };
        greeted.map_err(|failed| not_greeted(host, is_secure, &failed.error))?;
        Ok(member)
    }

    /// Makes later requests and streams of the client go to another member. Those that are open go on.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Sends a request. If the member refuses the token, logs in again and repeats the request once.
    pub(super) async fn call<Q: Message, A: Message>(
        &self,
        method: &Method<Q, A>,
        request: Q,
    ) -> Result<A, Failure> {
        let token = self.token().await;
        let mut answer = self.send(method, request.clone(), token.as_ref()).await;
        if answer.as_ref().is_err_and(|failed| failed.next == Next::LogIn) {
            let renewed = self.log_in(token.clone()).await?;
            if renewed != token {
                answer = self.send(method, request, renewed.as_ref()).await;
            }
        }
        if answer.as_ref().is_err_and(|failed| failed.next == Next::Leave) {
            self.leave();
        }
        answer
    }

    pub(super) async fn token(&self) -> Option<Token> {
        self.token.lock().await.clone()
    }

    /// Logs in, unless the token has changed since `refused` was refused. Returns the token, or `None` without a user.
    async fn log_in(&self, refused: Option<Token>) -> Result<Option<Token>, Failure> {
        let mut token = self.token.lock().await;
        if *token != refused {
            return Ok(token.clone());
        }
        let credentials = self.login.credentials().await?;
        let Some(name) = credentials.user_name() else {
            return Ok(None);
        };
        let request = AuthenticateRequest {
            name: name.to_owned(),
            password: credentials
                .secret()
                .map_or("", |secret| secret.expose())
                .to_owned(),
        };
        *token = match self.send(&AUTHENTICATE, request, None).await {
            Ok(answer) => {
                let mut token: Token = answer.token.parse().map_err(|_| no_token())?;
                // HTTP/2 then does not keep it in its table of headers, and `Debug` omits it.
                token.set_sensitive(true);
                Some(token)
            }
            // Without authentication, every client may do everything.
            Err(refused) if refused.is_without_users() => None,
            Err(refused) => return Err(refused),
        };
        Ok(token.clone())
    }

    async fn send<Q: Message, A: Message>(
        &self,
        method: &Method<Q, A>,
        request: Q,
        token: Option<&Token>,
    ) -> Result<A, Failure> {
        let request = carry(request, token);
        let answer = self
            .grpc()
            .unary(request, method.path(), ProstCodec::default())
            .await;
        Ok(answer?.into_inner())
    }

    pub(super) fn grpc(&self) -> Grpc<Connection> {
        // A listing of many locks may be long.
        let connection = self.connection.clone();
        let origin = connection.origin.clone();
        Grpc::with_origin(connection, origin).max_decoding_message_size(usize::MAX)
    }
}

/// Adds what every request carries: that its member must have a leader, and the token.
pub(super) fn carry<T>(message: T, token: Option<&Token>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token.clone());
    }
    request
}
