//! TLS to a real etcd, with a certificate authority that the test creates.

use crate::fixture::{assert_error, client, config, created, put, start};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_etcd::client::{Client, Empty, PUT, STATUS};
use tenure_servers::{Certificates, Etcd};

/// A member that speaks TLS with a certificate, and the further options.
fn secured(certificates: &Certificates, name: &str, options: &[&str]) -> Option<Etcd> {
    let cert = certificates.file(&format!("{name}.pem"));
    let key = certificates.file(&format!("{name}.key"));
    start(&[&["--cert-file", &cert, "--key-file", &key], options].concat())
}

/// Calls the member, with these options of the URL.
async fn call(etcd: &Etcd, scheme: &str, options: &str) -> Result<(), BackendError> {
    let client = client(&format!("{scheme}://{}?{options}", etcd.address()));
    client.call(STATUS, Empty {}).await.map(drop)
}

#[tokio::test]
async fn only_the_named_authority_is_trusted() {
    let certificates = Certificates::new("ada");
    let Some(etcd) = secured(&certificates, "server", &[]) else {
        return;
    };
    let ca = |name: &str| format!("ca={}", certificates.file(name));
    call(&etcd, "etcds", &ca("ca.pem")).await.expect("it is trusted");
    for options in [ca("other-ca.pem"), String::new()] {
        let refused = call(&etcd, "etcds", &options).await.expect_err(&options);
        assert_error(&refused, (Fault::Store, Effect::None), "no TLS can be spoken");
    }
    let plain = call(&etcd, "etcd", "").await.expect_err("it speaks TLS alone");
    assert_error(&plain, (Fault::Unavailable, Effect::None), "`etcds://`");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificates = Certificates::new("ada");
    let Some(etcd) = secured(&certificates, "elsewhere", &[]) else {
        return;
    };
    let options = format!("ca={}", certificates.file("ca.pem"));
    let refused = call(&etcd, "etcds", &options).await.expect_err("another host");
    assert_error(&refused, (Fault::Store, Effect::None), "for which host");
}

#[tokio::test]
async fn a_member_without_tls_is_named_as_one() {
    let certificates = Certificates::new("ada");
    let Some(etcd) = start(&[]) else { return };
    let options = format!("ca={}", certificates.file("ca.pem"));
    let refused = call(&etcd, "etcds", &options)
        .await
        .expect_err("it speaks no TLS");
    assert_error(&refused, (Fault::Store, Effect::None), "`--cert-file`");
}

#[tokio::test]
async fn a_client_certificate_logs_its_user_in() {
    let certificates = Certificates::new("ada");
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.file(name));
    let demand = ["--client-cert-auth", "--trusted-ca-file", &ca];
    let Some(etcd) = secured(&certificates, "server", &demand) else {
        return;
    };
    let refused = call(&etcd, "etcds", &format!("ca={ca}"))
        .await
        .expect_err("no certificate");
    assert_error(&refused, (Fault::Store, Effect::None), "(`cert`, `key`)");
    let own = format!("ca={ca}&cert={cert}&key={key}");
    call(&etcd, "etcds", &own).await.expect("it has a certificate");
    // The name in the certificate is that of a user.
    let ask = |command: &str| {
        let own = ["--cacert", &ca, "--cert", &cert, "--key", &key];
        let words: Vec<&str> = command.split(' ').collect();
        etcd.ask(&[&own[..], &words].concat()).expect(command)
    };
    for command in [
        "user add root:of-root",
        "user grant-role root root",
        "role add locks",
        "role grant-permission locks readwrite k",
        "user add ada:s3cr3t",
        "user grant-role ada locks",
        "auth enable",
    ] {
        ask(command);
    }
    let client = client(&format!("etcds://{}?{own}", etcd.address()));
    client.call(PUT, put("k", "v")).await.expect("ada may");
    created(&client, "k").await;
    let refused = client
        .call(PUT, put("other", "v"))
        .await
        .expect_err("ada may not");
    assert_error(&refused, (Fault::Denied, Effect::None), "lacks a permission");
}

#[test]
fn a_certificate_that_cannot_be_read_is_named() {
    let unread = Client::new(config("etcds://127.0.0.1?ca=/nowhere/ca.pem"));
    let unread = unread.map(drop).expect_err("no such file");
    assert_error(&unread, (Fault::Invalid, Effect::None), "/nowhere/ca.pem");
}
