//! Compiles the small libraries of `shim/`, which change how a server calls the system, with the system's C compiler.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=shim");
    for name in ["clock", "loopback"] {
        let library = Path::new(&out).join(name).with_extension("so");
        let made = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(library)
            .arg(format!("shim/{name}.c"))
            .status()
            .expect("the C compiler `cc` can be started: install it, in Debian the package `gcc`");
        assert!(made.success(), "shim/{name}.c does not compile");
    }
}
