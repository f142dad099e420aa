//! A certificate for a server of a test.

use std::process::Command;

/// Makes a key and a certificate of the loopback, which signs itself. Both have the format PEM.
pub(crate) fn new() -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("openssl")
        .current_dir(folder.path())
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args([
            "-nodes",
            "-subj",
            "/CN=127.0.0.1",
            "-keyout",
            "key",
            "-out",
            "certificate",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let [key, certificate] =
        ["key", "certificate"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
    (key, certificate)
}
