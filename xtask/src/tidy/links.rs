//! Links of a page to files of the workspace lead to files that exist.

/// Finds links whose file is missing. `exists` gets a path that is relative to the page's folder.
pub(super) fn check(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for file in links
            .filter_map(|(target, _)| file_of(target))
            .filter(|_| !is_code)
        {
            if !exists(file) {
                found.push(format!(
                    "{page}:{}: the link leads to no file: {file}",
                    number + 1
                ));
            }
        }
    }
    found
}

/// The file that a link names. `None` for an address, a heading of the same page, and an item of the documentation.
fn file_of(target: &str) -> Option<&str> {
    let file = target.split(['#', ' ']).next()?;
    let is_file = file.contains(['/', '.']) && !file.contains("://") && !file.contains("::");
    is_file.then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let text = "[a](there.md#top) and [b](../gone.rs)\n```\n[c](gone.md)\n```\n[d](https://x.org/y.md) [e](#top) \
                    [f](Backend::renew) [g](Cause) ![h](docs/gone.png \"title\")";
        let found = check("p.md", text, |file| file == "there.md");
        assert_eq!(
            found,
            [
                "p.md:1: the link leads to no file: ../gone.rs",
                "p.md:5: the link leads to no file: docs/gone.png"
            ]
        );
    }
}
