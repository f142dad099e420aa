//! No module is called after the fact that nobody knew its idea.
//! Not here: what a module may hold.

use super::finding::Finding;
use super::source::Source;

const BANNED: [&str; 4] = ["core", "common", "utils", "helpers"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let of_path = source
        .names()
        .filter(|name| BANNED.contains(name))
        .map(|name| (1, name));
    let of_code = source.code_lines().filter_map(|(line, code)| {
        let (_, rest) = format_free(code).split_once("mod ")?;
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        BANNED.contains(&name).then_some((line, name))
    });
    let report = |(line, name)| {
        source.finding(
            line,
            format!("a module is called `{name}`"),
            "name it after the one idea it holds",
        )
    };
    of_path.chain(of_code).map(report).collect()
}

/// The line if a module is declared on it.
fn format_free(code: &str) -> &str {
    let code = code.trim_start();
    if code.starts_with("mod ") || code.starts_with("pub") {
        code
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn a_module_without_an_idea_is_found_by_file_folder_and_declaration() {
        for path in [
            "crates/a/src/utils.rs",
            "crates/a/src/core/x.rs",
            "crates/a/tests/common/mod.rs",
        ] {
            assert_eq!(count(path, ""), 1, "{path}");
        }
        for text in [
            "mod common;",
            "pub mod core {",
            "    pub(crate) mod helpers;",
            "mod utils;",
        ] {
            assert_eq!(count("crates/a/src/lib.rs", text), 1, "{text}");
        }
        for text in [
            "mod score;",
            "mod common_keys;",
            "use std::core;",
            "// mod core;",
            "let mod_core = 1;",
        ] {
            assert_eq!(count("crates/a/src/lib.rs", text), 0, "{text}");
        }
    }
}
