//! The network breaks after each of the first 500 bytes of a session, in either direction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::fixture::{SESSION, client, config, node, soon, start};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_servers::{Proxy, Way, ZooKeeper};
use tenure_zookeeper::Secret;
use tenure_zookeeper::client::{Acl, Client, Code, Mode, Op, Outcome, State, code};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The number of bytes after which the network breaks, at most.
const BYTES: usize = 500;

/// The number of sessions at the same time.
const AT_ONCE: usize = 16;

/// What may have become of the requests of a session.
struct Expected {
    /// `None` if the node may exist or not.
    exists: Option<bool>,
    versions: RangeInclusive<i32>,
}

impl Expected {
    /// Notes the result of a write.
    fn wrote<T>(&mut self, result: &Result<T, BackendError>) {
        let (low, high) = (*self.versions.start(), *self.versions.end());
        self.versions = match result {
            Ok(_) => low + 1..=high + 1,
            Err(error) if is_open(error) => low..=high + 1,
            Err(_) => low..=high,
        };
    }
}

/// Returns whether a failed request may have had an effect. Checks that the network or the missing node is its cause.
fn is_open(error: &BackendError) -> bool {
    let is_missing = code(error) == Some(Code::NO_NODE);
    assert!(is_missing || error.fault() == Fault::Unavailable, "{error:?}");
    error.effect() == Effect::Unknown
}

/// Opens a session through a proxy that cuts after this number of bytes, and uses it until the cut and beyond.
async fn survive_cut(server: &ZooKeeper, way: Way, bytes: usize) {
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    proxy.cut_after(way, bytes);
    let config = config(&format!("zookeeper://ada:a@{}", proxy.address())).password(Secret::new("s3cr3t"));
    let first = Client::connect(config.clone(), SESSION).await;
    let mut was_cut = first.is_err();
    let client = match first {
        Ok(client) => client,
        Err(error) => {
            assert_eq!(
                (error.fault(), error.effect()),
                (Fault::Unavailable, Effect::None),
                "{error:?}"
            );
            let again = Client::connect(config, SESSION).await;
            again.expect("the network breaks once")
        }
    };
    let path = format!("/cuts/{way:?}-{bytes}");
    let created = client.create(&path, b"", Mode::Persistent, Acl::Creator).await;
    let mut expected = Expected {
        exists: match &created {
            Ok(_) => Some(true),
            Err(error) if is_open(error) => None,
            Err(_) => Some(false),
        },
        versions: 0..=0,
    };
    for _ in 0..3 {
        expected.wrote(&client.set_data(&path, b"some data", None).await);
        // Reads have no effect, also if the reply is lost.
        let read = client.get_children_watched(&path).await;
        assert!(!read.is_err_and(|error| is_open(&error)));
        let checked = client.multi(&[Op::Check(path.clone(), None)]).await;
        assert!(!checked.is_err_and(|error| is_open(&error)));
        let written = client
            .multi(&[Op::SetData(path.clone(), b"x".to_vec(), None)])
            .await;
        match written {
            Ok(Outcome::Refused { code, .. }) => assert_eq!(code, Code::NO_NODE),
            written => expected.wrote(&written),
        }
    }
    let mut info = client.info();
    was_cut |= info.has_changed().expect("the session lives");
    assert!(was_cut, "the session had fewer bytes");
    info.wait_for(|info| info.state == State::Connected)
        .await
        .expect("the session lives");
    match client.get_data(&path).await {
        Ok((_, stat)) => {
            assert_ne!(expected.exists, Some(false));
            assert!(
                expected.versions.contains(&stat.version),
                "{stat:?} {:?}",
                expected.versions
            );
        }
        Err(error) => {
            assert_eq!(
                (code(&error), expected.exists),
                (Some(Code::NO_NODE), expected.exists.filter(|is| !is))
            );
        }
    }
    client.close().await.expect("it is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_after_any_byte_is_survived_or_reported() {
    let Some(server) = start() else { return };
    node(&client(&server.url()).await, "/cuts").await;
    let (server, turns) = (Arc::new(server), Arc::new(Semaphore::new(AT_ONCE)));
    let mut sessions = JoinSet::new();
    for way in [Way::ToServer, Way::ToClient] {
        for bytes in 1..=BYTES {
            let (server, turns) = (server.clone(), turns.clone());
            sessions.spawn(async move {
                let _turn = turns.acquire().await;
                soon(survive_cut(&server, way, bytes)).await;
                (way, bytes)
            });
        }
    }
    while let Some(ended) = sessions.join_next().await {
        ended.expect("no panic");
    }
}
