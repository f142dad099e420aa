//! Finds weaknesses in the way a store is chosen, for `tenure doctor`.

use std::path::{Path, PathBuf};

use tenure::StoreUrl;
use tenure::inspect::{Finding, Severity};

use crate::store_choice::{Choice, Environment, Source, choose, first_line, url_files};

/// Returns all weaknesses in the way the store was chosen.
pub fn store_findings(environment: &Environment, choice: &Choice) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(shadowed_files(environment, choice));
    findings.extend(visible_password(choice));
    if let Source::File(file) = &choice.source {
        findings.extend(open_url_file(file, has_password(&choice.url)));
    }
    findings.extend(open_password_file(&choice.url));
    findings
}

/// Finds URL files that name another store than the chosen one, unless the store was named on the command line.
fn shadowed_files(environment: &Environment, choice: &Choice) -> Vec<Finding> {
    let (source, whose) = match &choice.source {
        Source::Variable => (
            "TENURE_URL".to_owned(),
            "commands that run without TENURE_URL, as cron's,",
        ),
        Source::File(file) if environment.url_file.is_none() => {
            (file.display().to_string(), "other users' commands")
        }
        _ => return Vec::new(),
    };
    let is_another = |url: String| {
        let named = Environment {
            url: Some(url),
            ..environment.clone()
        };
        choose(&named).is_ok_and(|named| named.url != choice.url)
    };
    let names_another = |file: &PathBuf| {
        // A file that cannot be read names no store, so it is no finding.
        let url = first_line(file).ok().flatten();
        choice.source != Source::File(file.clone()) && url.is_some_and(is_another)
    };
    let found = |file: PathBuf| {
        Finding::warning(
            format!("{source} names another store than {} does", file.display()),
            format!("{whose} lock there, and neither sees the other's locks"),
        )
    };
    let files = url_files(environment).unwrap_or_default();
    files.into_iter().filter(names_another).map(found).collect()
}

fn visible_password(choice: &Choice) -> Option<Finding> {
    (choice.source == Source::Option && has_password(&choice.url)).then(|| {
        Finding::warning(
            "--url carries a password",
            "every user of this machine can read it in `ps` while the command runs: use TENURE_URL, --url-file or \
             password_file",
        )
    })
}

/// Returns a finding if other users can write the URL file, or can read it although it holds a password.
fn open_url_file(file: &Path, has_password: bool) -> Option<Finding> {
    let can_be_led = "they can lead commands to another store, and then two can hold one lock";
    open_file(
        file,
        "",
        can_be_led,
        has_password.then_some(", which has a password"),
    )
}

/// Returns a finding if other users can write or read the URL's password file.
fn open_password_file(url: &str) -> Option<Finding> {
    let url = StoreUrl::parse(url).ok()?;
    let can_be_kept_out = "they can put another password there, and then no command can lock: make it 0600";
    open_file(
        url.password_file()?,
        "the password file ",
        can_be_kept_out,
        Some(""),
    )
}

/// Returns a finding if other users can write `file` (`if_written` says what follows from that), or if they can read
/// `file` and it holds a password (`has_password` describes the password).
#[cfg(unix)]
fn open_file(file: &Path, what: &str, if_written: &str, has_password: Option<&str>) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(file).ok()?.mode();
    let (name, shown) = (format!("{what}{}", file.display()), mode & 0o7777);
    let found = |severity, what, consequence: &str| Finding::new(severity, what, consequence);
    if mode & 0o022 != 0 {
        let what = format!("other users can write {name} (mode {shown:04o})");
        return Some(found(Severity::Danger, what, if_written));
    }
    let about_password = has_password.filter(|_| mode & 0o044 != 0)?;
    let what = format!("other users can read {name}{about_password} (mode {shown:04o})");
    let consequence = "they can take and free every lock in the store: make it 0600";
    Some(found(Severity::Warning, what, consequence))
}

#[cfg(not(unix))]
fn open_file(_: &Path, _: &str, _: &str, _: Option<&str>) -> Option<Finding> {
    None
}

fn has_password(url: &str) -> bool {
    StoreUrl::parse(url).is_ok_and(|url| url.password().is_some())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// Returns all findings as one text, with severities.
    fn examine(machine: &Machine) -> String {
        let choice = choose(&machine.environment).expect("a store");
        let found = store_findings(&machine.environment, &choice);
        let lines = found.iter().map(|finding| {
            assert!(
                !finding.consequence.is_empty() && !finding.what.contains("s3cr3t"),
                "{finding:?}"
            );
            format!(
                "{}: {}; {}\n",
                finding.severity, finding.what, finding.consequence
            )
        });
        lines.collect()
    }

    #[test]
    fn a_sound_choice_has_no_findings() {
        let mut machine = Machine::new();
        assert_eq!(examine(&machine), "");
        machine.environment.url = Some("redis://u@h".into());
        assert_eq!(examine(&machine), "");
        machine.environment.url = None;
        machine.write("home/.config/tenure/url", "redis://u:s3cr3t@h", 0o600);
        machine.write("etc/tenure/url", "redis://u:s3cr3t@h", 0o644);
        machine.environment.tenure_url = Some("redis://u:s3cr3t@h".into());
        assert_eq!(
            examine(&machine),
            "",
            "files that name the same store hide nothing"
        );
    }

    #[test]
    fn a_source_that_hides_a_file_with_another_url_is_found() {
        let mut machine = Machine::new();
        machine.write("etc/tenure/url", "redis://etc", 0o644);
        machine.write("home/.config/tenure/url", "redis://mine", 0o600);
        let found = examine(&machine);
        assert!(
            found.contains("home/.config/tenure/url names another store than"),
            "{found}"
        );
        assert!(found.contains("other users"), "{found}");
        machine.environment.tenure_url = Some("redis://env".into());
        let found = examine(&machine);
        assert!(
            found.lines().count() == 2 && found.contains("TENURE_URL names"),
            "{found}"
        );
        machine.environment.url = Some("redis://asked-for".into());
        assert_eq!(
            examine(&machine),
            "",
            "a URL on the command line is chosen on purpose"
        );
    }

    #[test]
    fn a_password_on_the_command_line_is_found() {
        let mut machine = Machine::new();
        machine.environment.url = Some("redis://u:s3cr3t@h".into());
        assert!(examine(&machine).contains("`ps`"));
    }

    #[test]
    fn a_url_file_that_others_can_write_or_read_is_found() {
        let mut machine = Machine::new();
        for (url, mode, word) in [
            ("redis://u:s3cr3t@h", 0o600, ""),
            ("redis://u:s3cr3t@h", 0o640, "can read"),
            ("redis://u:s3cr3t@h", 0o604, "can read"),
            ("redis://h", 0o644, ""),
            ("redis://h", 0o666, "can write"),
            ("redis://h", 0o620, "can write"),
        ] {
            machine.environment.url_file = Some(machine.write("file", url, mode));
            let found = examine(&machine);
            assert_eq!(found.is_empty(), word.is_empty(), "{url} {mode:o}: {found}");
            assert!(found.contains(word), "{url} {mode:o}: {found}");
        }
    }

    #[test]
    fn a_password_file_that_others_can_write_or_read_is_found() {
        let mut machine = Machine::new();
        let named = |machine: &mut Machine, url: &str, source: usize| {
            machine.environment.url = (source == 0).then(|| url.to_owned());
            machine.environment.url_file = (source == 1).then(|| machine.write("file", url, 0o600));
            machine.environment.tenure_url = (source == 2).then(|| url.into());
        };
        for (mode, word) in [
            (0o600, ""),
            (0o400, ""),
            (0o640, "warning: other users can read the password file "),
            (0o644, "(mode 0644); they can take and free every lock"),
            (0o660, "danger: other users can write the password file "),
            (0o602, "another password there"),
        ] {
            let file = machine.write("pass word", "s3cr3t", mode).display().to_string();
            let url = format!("redis://u@h?password_file={}", file.replace(' ', "%20"));
            for source in 0..3 {
                named(&mut machine, &url, source);
                let found = examine(&machine);
                assert_eq!(
                    found.lines().count(),
                    usize::from(!word.is_empty()),
                    "{mode:o}: {found}"
                );
                assert!(found.contains(word), "{mode:o}: {found}");
            }
        }
        // A missing password file is reported when connecting, not here.
        named(&mut machine, "redis://u@h?password_file=/nonexistent", 0);
        assert_eq!(examine(&machine), "");
    }
}
