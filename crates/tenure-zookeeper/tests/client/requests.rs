//! Each request, and the errors with which ZooKeeper answers it.

use crate::fixture::{SESSION, assert_error, client, config, node, start};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_servers::ZooKeeper;
use tenure_zookeeper::Credentials;
use tenure_zookeeper::client::{Acl, Client, Code, Done, Mode, Op, Outcome, code, is_session_end};

/// Returns the code of an error, and checks that the request had no effect.
fn refusal<T: std::fmt::Debug>(result: Result<T, BackendError>) -> Code {
    let error = result.expect_err("it is refused");
    assert_eq!(error.effect(), Effect::None, "{error:?}");
    code(&error).expect("a code")
}

async fn create(client: &Client, path: &str, mode: Mode) -> Result<String, BackendError> {
    let created = client.create(path, b"data", mode, Acl::Open).await;
    created.map(|created| created.path)
}

#[tokio::test]
async fn nodes_are_created_read_changed_and_deleted() {
    let Some(server) = start() else { return };
    let client = client(&server.url()).await;
    let created = client.create("/a", b"one", Mode::Persistent, Acl::Open).await;
    let created = created.expect("a node");
    let (data, stat) = client.get_data("/a").await.expect("data");
    assert_eq!((created.path.as_str(), &*data), ("/a", &b"one"[..]));
    assert_eq!((stat.czxid, stat.ephemeral_owner), (created.czxid, 0));
    let set = client.set_data("/a", b"two", Some(0)).await.expect("it is set");
    assert_eq!((set.version, set.data_length), (1, 3));
    assert_eq!(client.exists("/a").await.expect("a reply"), Some(set));
    client.sync("/a").await.expect("it is in step");
    let (first, second) = (
        create(&client, "/a/n-", Mode::EphemeralSequential)
            .await
            .expect("a node"),
        create(&client, "/a/n-", Mode::PersistentSequential)
            .await
            .expect("a node"),
    );
    assert_eq!((&*first, &*second), ("/a/n-0000000000", "/a/n-0000000001"));
    let own = client.exists(&first).await.expect("a reply").expect("a node");
    assert_eq!(own.ephemeral_owner, client.info().borrow().id);
    let (mut children, stat) = client.get_children("/a").await.expect("children");
    children.sort();
    assert_eq!(children, ["n-0000000000", "n-0000000001"]);
    assert_eq!(stat.num_children, 2);
    for path in [&*first, &second, "/a"] {
        client.delete(path, None).await.expect("it is deleted");
    }
    assert_eq!(client.exists("/a").await.expect("a reply"), None);
}

#[tokio::test]
async fn refusals_have_codes_and_no_effect() {
    let Some(server) = start() else { return };
    let client = client(&server.url()).await;
    node(&client, "/a").await;
    create(&client, "/a/own", Mode::Ephemeral).await.expect("a node");
    for (mode, path, expected) in [
        (Mode::Persistent, "/none/b", Code::NO_NODE),
        (Mode::Persistent, "/a", Code::NODE_EXISTS),
        (Mode::Ephemeral, "/a/own/b", Code::NO_CHILDREN_FOR_EPHEMERALS),
        (Mode::Ephemeral, "/a/.", Code::BAD_ARGUMENTS),
    ] {
        assert_eq!(refusal(create(&client, path, mode).await), expected, "{path}");
    }
    assert_eq!(refusal(client.delete("/none", None).await), Code::NO_NODE);
    assert_eq!(refusal(client.delete("/a/own", Some(7)).await), Code::BAD_VERSION);
    assert_eq!(refusal(client.delete("/a", None).await), Code::NOT_EMPTY);
    assert_eq!(refusal(client.set_data("/none", b"", None).await), Code::NO_NODE);
    assert_eq!(
        refusal(client.set_data("/a", b"", Some(7)).await),
        Code::BAD_VERSION
    );
    assert_eq!(refusal(client.get_data("/none").await), Code::NO_NODE);
    assert_eq!(refusal(client.get_children("/none").await), Code::NO_NODE);
    assert_eq!(
        refusal(create(&client, "/a/own/b", Mode::Container).await),
        Code::NO_CHILDREN_FOR_EPHEMERALS
    );
    assert_eq!(
        refusal(create(&client, "/a", Mode::Container).await),
        Code::NODE_EXISTS
    );
    let too_large = client.set_data("/a", &vec![0; 0xf_ffff], None).await;
    assert_error(
        &too_large.expect_err("too large"),
        (Fault::Limit, Effect::None),
        "1048575 bytes",
    );
    let largest = vec![7; 0xf_ffff - 8 - 4 - 2 - 4 - 4];
    client.set_data("/a", &largest, None).await.expect("it fits");
    assert_eq!(client.get_data("/a").await.expect("data").0, largest);
}

#[tokio::test]
async fn a_container_may_have_ephemeral_children() {
    let Some(server) = start() else { return };
    let client = client(&server.url()).await;
    let container = client
        .create("/c", b"", Mode::Container, Acl::Open)
        .await
        .expect("a container");
    let stat = client.exists("/c").await.expect("a reply").expect("a node");
    assert_eq!((container.path.as_str(), container.czxid), ("/c", stat.czxid));
    create(&client, "/c/own", Mode::Ephemeral).await.expect("a node");
}

#[tokio::test]
async fn a_transaction_is_carried_out_whole_or_not_at_all() {
    let Some(server) = start() else { return };
    let client = client(&server.url()).await;
    node(&client, "/a").await;
    let ops = [
        Op::Check("/a".to_owned(), Some(0)),
        Op::Create(
            "/a/n-".to_owned(),
            b"x".to_vec(),
            Mode::EphemeralSequential,
            Acl::Open,
        ),
        Op::SetData("/a".to_owned(), b"y".to_vec(), None),
        Op::Create("/b".to_owned(), Vec::new(), Mode::Persistent, Acl::Open),
        Op::Delete("/b".to_owned(), None),
    ];
    let Outcome::Done { zxid, results } = client.multi(&ops).await.expect("a reply") else {
        panic!("it is carried out");
    };
    let [
        Done::Checked,
        Done::Created(path),
        Done::Set(stat),
        Done::Created(_),
        Done::Deleted,
    ] = &results[..]
    else {
        panic!("one result for each: {results:?}");
    };
    assert_eq!(stat.version, 1);
    let node = client.exists(path).await.expect("a reply").expect("a node");
    assert_eq!(node.czxid, zxid);
    // The same version is not there any more: nothing is done, and the operations behind the check are not tried.
    let refused = |index, code| Outcome::Refused { index, code };
    let again = client.multi(&ops).await.expect("a reply");
    assert_eq!(again, refused(0, Code::BAD_VERSION));
    let behind = [
        Op::SetData("/a".to_owned(), b"z".to_vec(), None),
        Op::Check("/none".to_owned(), None),
        Op::Check("/a".to_owned(), Some(77)),
    ];
    assert_eq!(
        client.multi(&behind).await.expect("a reply"),
        refused(1, Code::NO_NODE)
    );
    assert_eq!(client.get_data("/a").await.expect("data").0, b"y");
    let checks = [
        Op::Check("/a".to_owned(), Some(1)),
        Op::Check("/".to_owned(), None),
    ];
    let Outcome::Done { results, .. } = client.multi(&checks).await.expect("a reply") else {
        panic!("the checks pass");
    };
    assert_eq!(results, [Done::Checked, Done::Checked]);
    let many: Vec<Op> = (0..1000).map(|_| Op::Check("/a".to_owned(), None)).collect();
    assert!(matches!(
        client.multi(&many).await.expect("a reply"),
        Outcome::Done { .. }
    ));
}

#[tokio::test]
async fn many_requests_share_the_connection() {
    let Some(server) = start() else { return };
    // A busy machine needs seconds for all of them.
    let client = client(&format!("{}?command_timeout=30s", server.url())).await;
    node(&client, "/a").await;
    let tasks = (0..3000).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { create(&client, &format!("/a/{number}"), Mode::Ephemeral).await })
    });
    for (number, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
        let path = task.await.expect("no panic").expect("a node");
        assert_eq!(path, format!("/a/{number}"));
    }
    assert_eq!(client.get_children("/a").await.expect("children").0.len(), 3000);
}

/// A session with a user, whose password a callback fetches.
async fn user(server: &ZooKeeper, password: &'static str) -> Client {
    let config =
        config(&server.url()).credentials(move || async move { Ok(Credentials::user("ada", password)) });
    Client::connect(config, SESSION).await.expect("a session")
}

#[tokio::test]
async fn only_the_right_password_opens_a_creators_node() {
    let Some(server) = start() else { return };
    let [ada, wrong] = [user(&server, "s3cr3t").await, user(&server, "wr0ng").await];
    let nobody = client(&server.url()).await;
    let created = ada.create("/a", b"own", Mode::Persistent, Acl::Creator).await;
    created.expect("a node");
    for other in [&wrong, &nobody] {
        let error = other.get_data("/a").await.expect_err("it is not theirs");
        assert_error(&error, (Fault::Denied, Effect::None), "lacks a permission");
        assert!(!format!("{error:?}").contains("s3cr3t"));
        assert_eq!(refusal(other.set_data("/a", b"", None).await), Code::NO_AUTH);
    }
    assert_eq!(ada.get_data("/a").await.expect("data").0, b"own");
    let refused = nobody.create("/b", b"", Mode::Persistent, Acl::Creator).await;
    assert_eq!(refusal(refused), Code::INVALID_ACL);
    let refused = nobody
        .multi(&[Op::SetData("/a".to_owned(), Vec::new(), None)])
        .await;
    let code = Code::NO_AUTH;
    assert_eq!(refused.expect("a reply"), Outcome::Refused { index: 0, code });
}

#[tokio::test]
async fn a_callback_that_fails_ends_the_connect() {
    let Some(server) = start() else { return };
    let config = config(&server.url()).credentials(|| async {
        Err(BackendError::new(
            Fault::Denied,
            Effect::None,
            "the vault is closed",
        ))
    });
    let failed = Client::connect(config, SESSION).await.map(drop);
    assert_error(
        &failed.expect_err("no credentials"),
        (Fault::Denied, Effect::None),
        "the vault is closed",
    );
}

#[tokio::test]
async fn a_closed_session_leaves_no_ephemeral_node() {
    let Some(server) = start() else { return };
    let [closed, other] = [client(&server.url()).await, client(&server.url()).await];
    create(&closed, "/own", Mode::Ephemeral).await.expect("a node");
    closed.close().await.expect("it is closed");
    assert_eq!(other.exists("/own").await.expect("a reply"), None);
    let ended = closed.exists("/").await.expect_err("it has ended");
    assert!(
        is_session_end(&ended) && ended.effect() == Effect::None,
        "{ended:?}"
    );
}
