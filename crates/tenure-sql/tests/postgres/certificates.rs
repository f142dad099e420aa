//! Certificates for TLS, which the test's own authority signs.

use std::path::Path;
use std::process::Command;

use super::ROLE;

/// Runs `openssl` in a folder, and panics with its output if it fails.
fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("`openssl` is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// An authority `ca.pem`, and certificates that it has signed: `server.pem` for 127.0.0.1, `elsewhere.pem` for another
/// host, and `client.pem` for the tests' role. `other-ca.pem` is an authority that has signed none of them.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        for ca in ["ca", "other-ca"] {
            openssl(
                path,
                &format!("req -x509 {KEY} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"),
            );
        }
        for (name, subject, host) in [
            ("server", "server", "IP:127.0.0.1"),
            ("elsewhere", "elsewhere", "DNS:elsewhere.example"),
            ("client", ROLE, "DNS:client.example"),
        ] {
            let ext = format!("subjectAltName={host}\n");
            std::fs::write(path.join("ext"), ext).expect("a file");
            openssl(
                path,
                &format!("req {KEY} -keyout {name}.key -out {name}.csr -subj /CN={subject}"),
            );
            openssl(
                path,
                &format!(
                    "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"
                ),
            );
        }
        Certificates(folder)
    }

    /// The path of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The content of a file.
    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("it is there")
    }
}
