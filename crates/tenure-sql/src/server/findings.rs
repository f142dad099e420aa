//! What `tenure doctor` finds: facts about a server, and checks that look for weaknesses in them.

use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, SystemTime};

use tenure_backend::{Finding, Severity};

use super::config::{Config, Place, TlsMode};
use super::dial::Session;
use super::error::Failure;
use super::template::fill;

/// A connection whose server can be examined.
pub(crate) trait Examined: Session {
    /// Settings of the server that weaken the locks.
    const CHECKS: &'static [Check];

    /// What the checks look at.
    fn facts(&mut self, config: &Config) -> impl Future<Output = Result<Facts, Failure>> + Send;
}

/// What is known of a server, by name. A kind of server that lacks a fact leaves it out.
#[derive(Debug, Default)]
pub(crate) struct Facts(HashMap<String, String>);

impl Facts {
    pub(crate) fn add(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_lowercase(), value.to_string());
    }

    /// Adds the answer to a query for names and values.
    pub(crate) async fn ask<S: Session>(&mut self, session: &mut S, query: &str) -> Result<(), Failure> {
        for mut row in session.run(query, &[]).await?.rows {
            if let (Some(name), Some(value)) = (row.text(), row.text()) {
                self.add(&name, value);
            }
        }
        Ok(())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        ["ON", "on", "1", "true"].contains(&self.text(name))
    }

    pub(crate) fn is_off(&self, name: &str) -> bool {
        ["OFF", "off", "0", "false"].contains(&self.text(name))
    }

    pub(crate) fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// Runs checks.
    pub(crate) fn find(&self, checks: &[Check]) -> Vec<Finding> {
        let found = checks.iter().filter(|Check(_, applies, ..)| applies(self));
        found
            .map(|Check(severity, _, what, why)| {
                let [what, why] = [what, why].map(|words| fill(words, |name| self.text(name).to_owned()));
                Finding::new(*severity, what, why)
            })
            .collect()
    }
}

/// A weakness that a server may have: how serious it is, whether it is there, what it is, and its consequence.
pub(crate) struct Check(Severity, Applies, &'static str, &'static str);

type Applies = fn(&Facts) -> bool;

/// `{name}` in the words stands for the fact of this name.
impl Check {
    pub(crate) const fn danger(applies: Applies, what: &'static str, consequence: &'static str) -> Self {
        Check(Severity::Danger, applies, what, consequence)
    }

    pub(crate) const fn warning(applies: Applies, what: &'static str, consequence: &'static str) -> Self {
        Check(Severity::Warning, applies, what, consequence)
    }

    pub(crate) const fn note(applies: Applies, what: &'static str, consequence: &'static str) -> Self {
        Check(Severity::Note, applies, what, consequence)
    }
}

/// The checks for each kind of database.
const COMMON: [Check; 3] = [
    Check::warning(
        |server| server.number("connections") * 10 > server.number("max_connections") * 9,
        "{connections} of {max_connections} connections are in use",
        "clients that need another one are refused",
    ),
    Check::note(
        |server| !server.text("clock_difference").is_empty(),
        "the server's clock differs from this machine's by {clock_difference} s",
        "leases end by the server's clock; if a server with this machine's clock took over, they would end early or late",
    ),
    Check::warning(
        |server| server.is_on("is_readable_by_others"),
        "the connection is not encrypted: the server does not offer TLS, and `{does_without_tls}` does without",
        "anyone who reads the network sees the keys of the locks; add `{verifies_tls}`",
    ),
];

/// Time since 1970 by this machine's clock.
pub(crate) fn time_here() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Runs the checks of a kind of database, and those for each kind. Expects `time`, in microseconds since 1970, and
/// `is_encrypted` among the facts, and adds those that the settings tell. The facts were asked for from `begun` on.
pub(crate) fn find(mut facts: Facts, checks: &[Check], config: &Config, begun: Duration) -> Vec<Finding> {
    let there = Duration::from_micros(facts.number("time").unsigned_abs());
    // The server told its time between `begun` and now.
    let difference = there
        .abs_diff(there.clamp(begun, time_here().max(begun)))
        .as_secs_f64();
    if difference > 1.0 {
        facts.add("clock_difference", format!("{difference:.1}"));
    }
    let is_remote = config.places.iter().any(|place| match place {
        Place::Socket(..) => false,
        Place::Host(host) => !["localhost", "127.0.0.1", "::1"].contains(&host.name()),
    });
    let is_readable = is_remote && !facts.is_on("is_encrypted") && config.tls == TlsMode::Prefer;
    facts.add("is_readable_by_others", is_readable);
    facts.add("does_without_tls", config.database.tls_option(TlsMode::Prefer));
    facts.add("verifies_tls", config.database.tls_option(TlsMode::VerifyFull));
    facts.add("layout", config.layout.form().name);
    facts.add("table", config.table_name());
    [facts.find(checks), facts.find(&COMMON)].concat()
}
