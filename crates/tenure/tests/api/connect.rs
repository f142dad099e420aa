//! Connecting by URL: which URLs are refused, and the messages of the errors.

use tenure::{Error, connect};

/// The message of an error with all its causes.
fn words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

#[tokio::test]
async fn an_unknown_store_error_lists_the_known_stores() {
    let error = connect("gopher://nowhere").await.unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)));
    let words = words(&error);
    assert!(
        words.contains("`gopher:`") && words.contains("`memory:`"),
        "{words}"
    );
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn a_store_left_out_of_the_build_names_its_feature() {
    let error = connect("sqlite:").await.unwrap_err();
    assert!(words(&error).contains("`sqlite`"), "{}", words(&error));
}

#[tokio::test]
async fn a_password_is_in_no_error() {
    for url in [
        "redis://u:s3cr3t@127.0.0.1:1/0",
        "redis://u:s3cr3t@/",
        "gopher://u:s3@cr3t@x",
        "memory:?password=s3cr3t",
    ] {
        let error = connect(url).await.unwrap_err();
        let shown = format!("{} {error:?}", words(&error));
        assert!(!shown.contains("s3cr3t") && !shown.contains("cr3t@"), "{shown}");
    }
}

#[tokio::test]
async fn an_unknown_option_is_refused() {
    assert!(matches!(
        connect("memory:?wibble=1").await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(connect("").await, Err(Error::Invalid(_))));
}
