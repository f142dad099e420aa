//! `tenure completions` and `tenure man`: text generated from the parser's definition.

use clap_complete::Shell;
use serde::Serialize;

use crate::args::Global;
use crate::messages::Failure;
use crate::{completions, manual, output};

/// The completion script as a JSON object.
#[derive(Serialize)]
struct Script<'a> {
    shell: &'a str,
    script: &'a str,
}

/// The manual page as a JSON object.
#[derive(Serialize)]
struct Page<'a> {
    verb: Option<&'a str>,
    page: &'a str,
}

pub(super) fn completions(global: &Global, shell: Shell) -> Result<u8, Failure> {
    let script = Script {
        shell: &shell.to_string(),
        script: &completions::script(shell),
    };
    output::print_json_or_text(global.json, &script, || script.script.to_owned())?;
    Ok(0)
}

pub(super) fn man(global: &Global, verb: Option<&str>) -> Result<u8, Failure> {
    let page = manual::page(verb).map_err(|error| Failure::system("cannot write the page", error))?;
    let page = Page { verb, page: &page };
    output::print_json_or_text(global.json, &page, || page.page.to_owned())?;
    Ok(0)
}
