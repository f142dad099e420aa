//! `tenure completions` and `tenure man`: what is generated from the parser's definition.

use clap_complete::Shell;
use serde::Serialize;

use crate::args::Global;
use crate::words::Failure;
use crate::{completions, manual, output};

/// A script, for programs.
#[derive(Serialize)]
struct Script<'a> {
    shell: &'a str,
    script: String,
}

/// A page, for programs.
#[derive(Serialize)]
struct Page<'a> {
    verb: Option<&'a str>,
    page: String,
}

/// Prints the script for a shell.
pub(super) fn completions(global: &Global, shell: Shell) -> Result<u8, Failure> {
    let script = completions::script(shell);
    let name = shell.to_string();
    print(global, script, |script| Script { shell: &name, script })
}

/// Prints a manual page.
pub(super) fn man(global: &Global, verb: Option<&str>) -> Result<u8, Failure> {
    let page = manual::page(verb).map_err(|error| Failure::system("cannot write the page", error))?;
    print(global, page, |page| Page { verb, page })
}

fn print<T: Serialize>(
    global: &Global,
    text: Vec<u8>,
    for_programs: impl FnOnce(String) -> T,
) -> Result<u8, Failure> {
    let printed = if global.json {
        output::object(&for_programs(String::from_utf8_lossy(&text).into_owned()))
    } else {
        text
    };
    output::print(&printed).map(|()| 0)
}
