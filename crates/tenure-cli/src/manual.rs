//! `tenure man`: manual pages generated from the parser's own definition. Only prints a page; `tenure man | man -l -`
//! shows it.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;

/// Returns the manual page of the command, or of one verb.
///
/// # Errors
/// If there is no such verb.
pub fn page(verb: Option<&str>) -> io::Result<String> {
    let mut command = Cli::command();
    command.build();
    match verb {
        None => render(command),
        Some(verb) => render(of_verb(&command, verb).ok_or(io::ErrorKind::NotFound)?),
    }
}

/// Renders the sections of `clap_mangen`, with two changes: the title has no date, and the text below the options keeps
/// its line breaks.
fn render(command: Command) -> io::Result<String> {
    let notes = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string);
    let title = format!(
        ".TH {} 1 \"\" \"tenure {}\"\n",
        command.get_name().to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let has_verbs = command.has_subcommands();
    let man = Man::new(command);
    let mut page = title.into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = notes {
        page.extend(b".SH NOTES\n.nf\n");
        page.extend(notes.lines().flat_map(as_it_stands));
        page.extend(b".fi\n");
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Escapes a line, so that roff shows it unchanged.
fn as_it_stands(line: &str) -> Vec<u8> {
    let mut shown = line.replace('\\', "\\e").replace('-', "\\-");
    if shown.starts_with(['.', '\'']) {
        shown.insert_str(0, "\\&");
    }
    shown.push('\n');
    shown.into_bytes()
}

/// Returns the verb as a separate command with the name of its page: `tenure-run`.
fn of_verb(command: &Command, verb: &str) -> Option<Command> {
    let found = command.get_subcommands().find(|known| known.get_name() == verb)?;
    let name = format!("{}-{verb}", command.get_name());
    Some(found.clone().name(name).version(env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_is_escaped_for_roff() {
        assert_eq!(as_it_stands(".so -n"), b"\\&.so \\-n\n");
        assert_eq!(as_it_stands("'a\\b"), b"\\&'a\\eb\n");
    }
}
