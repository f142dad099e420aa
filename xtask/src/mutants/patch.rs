//! Reads the bugs that can be planted, one in each `mutants/AREA/NAME.patch`.
//!
//! The first line of such a file is a sentence that says what the planted code does. The second is `test: PACKAGE
//! BINARY FILTER`: `BINARY` is `lib` or one of the package's `tests`, `FILTER` is part of a test's name. The rest is a
//! diff for `git apply`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::below;
use crate::process::{Failure, output, root};

/// A bug, and the test that must fail with it.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// `AREA/NAME`.
    pub(crate) name: String,
    /// The first line of the patch.
    pub(crate) bug: String,
    /// Package, test binary, and part of the name of the test that must fail.
    pub(crate) test: [String; 3],
    file: PathBuf,
}

pub(crate) fn read_all() -> Result<Vec<Mutant>, Failure> {
    let folder = root().join("mutants");
    let files = below(&folder)?.into_iter();
    let patches = files.filter(|file| file.extension().is_some_and(|extension| extension == "patch"));
    let read = |name: PathBuf| {
        let bad = || format!("{} has no sentence and test", name.display());
        let file = folder.join(&name);
        let text = fs::read_to_string(&file)?;
        let mut lines = text.lines();
        let (bug, test) = lines.next().zip(lines.next()).ok_or_else(bad)?;
        let test: Vec<String> = test.split(' ').skip(1).map(str::to_owned).collect();
        Ok(Mutant {
            name: name.with_extension("").display().to_string(),
            bug: bug.to_owned(),
            test: test.try_into().map_err(|_| bad())?,
            file,
        })
    };
    patches.map(read).collect()
}

impl Mutant {
    /// Applies the patch to the files of `tree`, even if its lines have moved. `options` are passed to `git apply`.
    pub(crate) fn apply(&self, tree: &Path, options: &[&str]) -> Result<(), Failure> {
        let mut git = Command::new("git");
        git.current_dir(tree).args(["apply", "-C1", "--recount"]);
        git.args(options).arg(&self.file);
        // Without this, git would find a checkout around `tree`, and skip all files of the patch without an error.
        git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
        output(git).map(drop)
    }
}

pub(crate) fn check(mutants: &[Mutant]) -> Result<(), Failure> {
    let failures = mutants
        .iter()
        .filter_map(|mutant| mutant.apply(&root(), &["--check"]).err());
    let failures: Vec<String> = failures.map(|failure| failure.to_string()).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_applies() {
        let mutants = read_all().unwrap();
        check(&mutants).unwrap();
        assert!(mutants[0].apply(&root(), &["--check", "--reverse"]).is_err());
    }

    #[test]
    fn the_page_of_rules_names_patches_that_exist() {
        let page = fs::read_to_string(root().join("docs/RULES.md")).unwrap();
        let known: Vec<String> = read_all()
            .unwrap()
            .into_iter()
            .map(|mutant| mutant.name)
            .collect();
        let quoted = page.split('`').skip(1).step_by(2);
        let patches = quoted
            .filter(|name| name.matches('/').count() == 1 && !name.contains('.') && !name.ends_with('/'));
        for patch in patches {
            assert!(known.iter().any(|known| known == patch), "{patch}");
        }
    }
}
