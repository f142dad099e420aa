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

/// Sections of every page, below the options. Each line is printed as it is.
const MORE: [(&str, &str); 3] = [
    (
        "ENVIRONMENT",
        "\
TENURE_URL         the store, as a URL
XDG_CONFIG_HOME    where tenure/url is looked for; ~/.config by default
XDG_STATE_HOME     where the lock file of the store `sqlite:` is; ~/.local/state
                   by default
HOME               the folder of both, if the variables above are not set",
    ),
    (
        "FILES",
        "\
$XDG_CONFIG_HOME/tenure/url, /etc/tenure/url
                   the store's URL in the first line that is neither empty nor
                   begins with #, if no option and no variable names a store
~/.local/state/tenure/locks.db
                   the locks of the store `sqlite:`, for this user alone. To share a
                   file with a group, write sqlite:PATH?mode=0660, in a folder of
                   the group with the set-group-ID bit (chmod 2770)",
    ),
    (
        "SEE ALSO",
        "flock(1), tenure(1), tenure-run(1), tenure-hold(1), tenure-doctor(1)",
    ),
];

/// The sections of a page that the text below the options fills, by the words with which a paragraph begins.
const PARAGRAPHS: [(&str, &str); 2] = [("Exit codes", "EXIT STATUS"), ("Examples", "EXAMPLES")];

/// Renders the sections of `clap_mangen`, with three changes: the title has no date; the text below the options keeps
/// its line breaks and is sorted into sections; and the sections that every page has follow.
fn render(command: Command) -> io::Result<String> {
    let notes = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let title = format!(
        ".TH {} 1 \"\" \"tenure {}\"\n",
        command.get_name().to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let has_verbs = command.has_subcommands();
    let man = Man::new(command.subcommand_help_heading("VERBS"));
    let mut page = title.into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    let section_of = |paragraph: &str| {
        let known = PARAGRAPHS.iter().find(|(words, _)| paragraph.starts_with(words));
        known.map_or("DESCRIPTION", |(_, section)| section)
    };
    let section = |name: &str| -> String {
        let paragraphs = notes
            .split("\n\n")
            .filter(|paragraph| section_of(paragraph) == name);
        paragraphs.collect::<Vec<_>>().join("\n\n")
    };
    add_section(&mut page, "DESCRIPTION", &section("DESCRIPTION"));
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    for (_, name) in PARAGRAPHS {
        add_section(&mut page, name, &section(name));
    }
    for (name, text) in MORE {
        add_section(&mut page, name, text);
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Adds a section whose text keeps its line breaks, unless the text is empty.
fn add_section(page: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        page.extend(format!(".SH {name}\n.nf\n").bytes());
        page.extend(text.lines().flat_map(as_it_stands));
        page.extend(b".fi\n");
    }
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
