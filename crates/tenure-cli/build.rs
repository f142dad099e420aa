//! Makes `tenure` start faster, on Linux with the GNU C library: `tenure run` consists of three processes of this
//! program.
//!
//! - Links GCC's unwinder statically, where this is possible. Loading the shared `libgcc_s` would take an eighth of the
//!   start time of each process.
//! - Links `tenure` for a fixed address, as Go does. Otherwise the loader of each process would first adjust 9,000
//!   addresses, and so copy 33 pages of memory (`docs/decisions/0039`). With `-C relocation-model=pic` in RUSTFLAGS,
//!   `tenure` is position-independent.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_native = env::var("HOST") == env::var("TARGET") && target("POINTER_WIDTH") == "64";
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let links_by_cc = env::var_os("RUSTC_LINKER").is_none() && !flags.contains("linker=");
    if !is_native || !links_by_cc || target("OS") != "linux" || target("ENV") != "gnu" {
        return;
    }
    link_unwinder();
    if !flags.contains("relocation-model") && !flags.contains("crt-static") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

fn link_unwinder() {
    // If `cc` has no such library, it prints the name without a path. Then `tenure` uses the shared library.
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let library = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned());
    if let Ok(library) = library
        && Path::new(&library).is_absolute()
    {
        // An update of GCC moves the library: then Cargo must run this script again.
        println!("cargo::rerun-if-changed={library}");
        // Link the whole archive: the linker reads it before the code that calls it, and would drop what is not yet
        // called. The path stands outside of `-Wl`, which would split it at a comma.
        for argument in ["-Wl,--push-state,--whole-archive", &library, "-Wl,--pop-state"] {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}
