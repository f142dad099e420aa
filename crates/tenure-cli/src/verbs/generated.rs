//! `tenure completions` and `tenure man`: text generated from the parser's definition.

use std::fs;
use std::path::Path;

use clap_complete::Shell;
use serde::Serialize;

use crate::args::{Global, VERBS};
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

/// Prints one page, or writes all pages into the folder `out` and prints their names.
pub(super) fn man(global: &Global, verb: Option<&str>, out: Option<&Path>) -> Result<u8, Failure> {
    let unwritten = |error| Failure::system("cannot write the manual pages", error);
    let Some(folder) = out else {
        let page = manual::page(verb).map_err(unwritten)?;
        let page = Page { verb, page: &page };
        output::print_json_or_text(global.json, &page, || page.page.to_owned())?;
        return Ok(0);
    };
    fs::create_dir_all(folder).map_err(unwritten)?;
    for verb in [None].into_iter().chain(VERBS.map(Some)) {
        let name = verb.map_or("tenure.1".to_owned(), |verb| format!("tenure-{verb}.1"));
        let file = folder.join(name);
        fs::write(&file, manual::page(verb).map_err(unwritten)?).map_err(unwritten)?;
        let file = file.display().to_string();
        let page = Page { verb, page: &file };
        output::print_json_or_text(global.json, &page, || format!("{file}\n"))?;
    }
    Ok(0)
}
