//! TLS to a real ZooKeeper, with a certificate authority that the test creates.

use crate::fixture::{SESSION, TICK, assert_error, config};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_servers::{Certificates, ZooKeeper, needs};
use tenure_zookeeper::client::Client;

/// A server that speaks TLS with a certificate, and asks clients for one if `asks` is `need`.
fn secured(certificates: &Certificates, name: &str, asks: &str) -> Option<ZooKeeper> {
    if !needs("zookeeper", "zookeeper") {
        return None;
    }
    // ZooKeeper reads a certificate and its key from one file.
    let read = |name: &str| certificates.text(name);
    let both = read(&format!("{name}.key")) + &read(&format!("{name}.pem"));
    let file = certificates.file("both.pem");
    std::fs::write(&file, both).expect("a file");
    let settings = format!(
        "ssl.keyStore.location={file}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
         ssl.clientAuth={asks}\nssl.hostnameVerification=false\n",
        certificates.file("ca.pem")
    );
    Some(ZooKeeper::start_secured(TICK, &settings).expect("it starts"))
}

/// Opens a session at an address, and uses it.
async fn visit(url: String) -> Result<(), BackendError> {
    let client = Client::connect(config(&url), SESSION).await?;
    client.exists("/").await?.expect("the root");
    client.close().await
}

#[tokio::test]
async fn only_the_named_authority_is_trusted() {
    let certificates = Certificates::new("ada");
    let Some(server) = secured(&certificates, "server", "none") else {
        return;
    };
    let secure = |options: String| format!("zookeepers://{}?{options}", server.secure_address());
    let ca = |name: &str| format!("ca={}", certificates.file(name));
    visit(secure(ca("ca.pem"))).await.expect("it is trusted");
    for options in [ca("other-ca.pem"), String::new()] {
        let refused = visit(secure(options)).await.expect_err("not trusted");
        assert_error(&refused, (Fault::Store, Effect::None), "no TLS can be spoken");
    }
    let plain = format!("zookeeper://{}?connect_timeout=2s", server.secure_address());
    let plain = visit(plain).await.expect_err("it speaks TLS alone");
    assert_eq!(
        (plain.fault(), plain.effect()),
        (Fault::Unavailable, Effect::None),
        "{plain}"
    );
    let other = format!(
        "zookeepers://{}?{}&connect_timeout=2s",
        server.address(),
        ca("ca.pem")
    );
    let other = visit(other).await.expect_err("it speaks no TLS");
    assert_eq!(other.effect(), Effect::None, "{other}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificates = Certificates::new("ada");
    let Some(server) = secured(&certificates, "elsewhere", "none") else {
        return;
    };
    let url = format!(
        "zookeepers://{}?ca={}",
        server.secure_address(),
        certificates.file("ca.pem")
    );
    let refused = visit(url).await.expect_err("another host");
    assert_error(&refused, (Fault::Store, Effect::None), "for which host");
}

#[tokio::test]
async fn a_server_may_ask_for_a_certificate() {
    let certificates = Certificates::new("ada");
    let Some(server) = secured(&certificates, "server", "need") else {
        return;
    };
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.file(name));
    let url = |options: &str| format!("zookeepers://{}?ca={ca}{options}", server.secure_address());
    let refused = visit(url("")).await.expect_err("no certificate");
    assert_eq!(refused.effect(), Effect::None, "{refused}");
    assert!(refused.to_string().contains("(`cert`, `key`)"), "{refused}");
    visit(url(&format!("&cert={cert}&key={key}")))
        .await
        .expect("it has one");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_named() {
    let unread = visit("zookeepers://127.0.0.1?ca=/nowhere/ca.pem".to_owned()).await;
    assert_error(
        &unread.expect_err("no such file"),
        (Fault::Invalid, Effect::None),
        "/nowhere/ca.pem",
    );
}
