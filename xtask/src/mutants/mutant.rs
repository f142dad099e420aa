//! What a mutant is: a bug, the promise that it breaks, and the tests that must notice.
//! Not here: which mutants there are (`table`), and how they are tried (`trial`).

use std::fs;
use std::path::Path;

use crate::process::Failure;

/// A bug that can be planted, as data.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// In the words of a command line: `loss-is-not-sticky`.
    pub(crate) name: &'static str,
    /// The promise that it breaks, in a sentence.
    pub(crate) promise: &'static str,
    /// All of them are made together.
    pub(crate) edits: &'static [Edit],
    /// At least one of these must fail.
    pub(crate) tests: Tests,
    /// How long the tests may take; that they take longer counts as a catch, and is reported as one.
    pub(crate) limit_s: u64,
    /// Why no test can notice it. Such a mutant must survive.
    pub(crate) survives: Option<&'static str>,
}

/// One change of one file.
#[derive(Debug)]
pub(crate) struct Edit {
    /// From the root of the workspace.
    pub(crate) file: &'static str,
    /// Stands in the file exactly once, byte for byte.
    pub(crate) find: &'static str,
    pub(crate) replace: &'static str,
}

/// Some tests of one test binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tests {
    pub(crate) package: &'static str,
    pub(crate) target: Target,
    /// Whole names, or parts of them; each must match at least one test.
    pub(crate) names: &'static [&'static str],
}

/// Which of a package's test binaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The unit tests of its library.
    Lib,
    /// A file or folder in its `tests`.
    Test(&'static str),
    /// The same, with a harness that takes one name at the most.
    TestByOneName(&'static str),
}

impl Target {
    /// As cargo takes it.
    pub(crate) fn args(self) -> Vec<&'static str> {
        match self {
            Target::Lib => vec!["--lib"],
            Target::Test(name) | Target::TestByOneName(name) => vec!["--test", name],
        }
    }
}

impl Mutant {
    /// The files as this mutant has them: path below `root`, and text. Nothing is written.
    ///
    /// Fails where a text to be replaced does not stand exactly once: the code has moved on, and the mutant must
    /// follow, or it would prove nothing.
    pub(crate) fn mutate(&self, root: &Path) -> Result<Vec<(&'static str, String)>, Failure> {
        let mut files: Vec<(&'static str, String)> = Vec::new();
        for edit in self.edits {
            let at = match files.iter().position(|(file, _)| *file == edit.file) {
                Some(at) => at,
                None => {
                    let text = fs::read_to_string(root.join(edit.file)).map_err(|error| {
                        Failure::new(format!("{}: {} cannot be read: {error}", self.name, edit.file))
                    })?;
                    files.push((edit.file, text));
                    files.len() - 1
                }
            };
            let text = &mut files[at].1;
            match text.matches(edit.find).count() {
                1 => *text = text.replacen(edit.find, edit.replace, 1),
                count => {
                    return Err(Failure::new(format!(
                        "{}: this text stands {count} times in {}, not once; the mutant must follow the code:\n{}",
                        self.name, edit.file, edit.find
                    )));
                }
            }
        }
        Ok(files)
    }
}
