//! Certificates for TLS, and keys for tokens, which `openssl` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// A folder with keys and certificates. A certificate `name.pem` has its key in `name.key`.
pub struct Certificates(tempfile::TempDir);

impl Certificates {
    /// An authority `ca.pem`, and certificates that it has signed: `server.pem` for 127.0.0.1, `elsewhere.pem` for another
    /// host, and `client.pem` for this user. `other-ca.pem` is an authority that has signed none of them.
    pub fn new(user: &str) -> Self {
        let certificates = Certificates::empty();
        for ca in ["ca", "other-ca"] {
            certificates.openssl(&format!(
                "req -x509 {NEW_KEY} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"
            ));
        }
        certificates.sign("server", "server", "subjectAltName=IP:127.0.0.1");
        certificates.sign("elsewhere", "elsewhere", "subjectAltName=DNS:elsewhere.example");
        certificates.sign("client", user, "subjectAltName=DNS:client.example");
        certificates
    }

    /// A pair of keys that signs tokens, `token.key` and `token.pub`.
    pub fn for_tokens() -> Self {
        let certificates = Certificates::empty();
        certificates.openssl("genrsa -out token.key 2048");
        certificates.openssl("rsa -in token.key -pubout -out token.pub");
        certificates
    }

    /// Makes another certificate that the authority has signed, with this subject and this extension.
    ///
    /// # Panics
    /// If `openssl` fails.
    pub fn sign(&self, name: &str, subject: &str, extension: &str) {
        fs::write(self.path("ext"), extension).expect("a file");
        self.openssl(&format!(
            "req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={subject}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"
        ));
    }

    /// The path of a file.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The content of a file.
    ///
    /// # Panics
    /// If the file is missing.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it is there")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn empty() -> Self {
        Certificates(tempfile::tempdir().expect("a folder"))
    }

    /// Runs `openssl` in the folder, and panics with its output if it fails.
    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.folder())
            .output()
            .expect("`openssl` is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
