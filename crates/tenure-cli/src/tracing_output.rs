//! Prints events of the library on stderr, in the style of the command's own messages.

use std::fmt::{self, Write};

use tenure::backend::escape_control;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt as to_stderr};

use crate::messages::without_passwords;
use crate::status_line;

/// Which events of the library are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// No event: `-q`.
    Nothing,
    /// Errors, warnings and notes, except the loss of a lock.
    Warnings,
    /// All events down to debug level: `-v`.
    Everything,
}

/// Starts to print the library's events on stderr. Only the first call in a process has an effect.
pub fn listen(verbosity: Verbosity) {
    if verbosity == Verbosity::Nothing {
        return;
    }
    let lines = to_stderr::layer()
        .with_writer(|| {
            status_line::clear();
            std::io::stderr()
        })
        .event_format(Line)
        .with_filter(filter_fn(move |metadata| is_printed(metadata, verbosity)));
    // Fails if another subscriber is installed, which then stays.
    let _ = Registry::default().with(lines).try_init();
}

/// Returns whether an event is printed. Events of other projects' crates never are: they may quote data from a
/// connection, even passwords.
fn is_printed(metadata: &Metadata<'_>, verbosity: Verbosity) -> bool {
    let ours = metadata.target().split("::").next();
    let ours = ours.is_some_and(|name| name == "tenure" || name.starts_with("tenure_"));
    // Only the event of a lost lock has a field `cause`. The verb that held the lock reports the loss in its own words.
    let is_end_of_a_lock = metadata.fields().field("cause").is_some();
    ours && match verbosity {
        Verbosity::Nothing => false,
        Verbosity::Warnings => *metadata.level() <= Level::INFO && !is_end_of_a_lock,
        Verbosity::Everything => *metadata.level() <= Level::DEBUG,
    }
}

/// Formats an event as one line with its key and its error: `warning: "k": the release failed: no answer`. At the level
/// of debug messages, the other fields follow in brackets: `debug: connected (server=redis:6379)`.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        if *event.metadata().level() <= Level::INFO {
            let line = without_passwords(&words.sentence(name(*event.metadata().level()))).replace('\n', " ");
            return writeln!(writer, "{}", escape_control(&line));
        }
        let mut around = String::new();
        for span in context
            .event_scope()
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<tracing_subscriber::fmt::FormattedFields<N>>()
                && !fields.is_empty()
            {
                write!(around, " {fields}")?;
            }
        }
        let fields = around + &words.all_fields();
        let fields = match fields.trim_start() {
            "" => String::new(),
            fields => format!(" ({fields})"),
        };
        let line = format!("{}: {}{fields}", name(*event.metadata().level()), words.message);
        let line = without_passwords(&line).replace('\n', " ");
        writeln!(writer, "{}", escape_control(&line))
    }
}

/// Returns the first word of an event's line: `error`, `warning`, `note` or `debug`.
fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "note",
        _ => "debug",
    }
}

#[derive(Default)]
struct Words {
    message: String,
    /// The names and values of the other fields.
    fields: Vec<(&'static str, String)>,
}

impl Words {
    /// The message with its key and its error. An error may advise to try again, which the client does already.
    fn sentence(&self, level: &str) -> String {
        let field = |name| {
            self.fields
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        let key = field("key").map(|key| format!("{key:?}: ")).unwrap_or_default();
        let error = field("error").map(|error| format!(": {}", error.replace(": try again", "")));
        format!("{level}: {key}{}{}", self.message, error.unwrap_or_default())
    }

    fn all_fields(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!(" {name}={value}"));
        fields.collect()
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Arc;

    use super::*;

    /// Emits events of the library and of other crates, and returns what was printed.
    fn printed(verbosity: Verbosity) -> String {
        let mut paper = tempfile::tempfile().expect("a file");
        let writer = Arc::new(paper.try_clone().expect("a descriptor"));
        let lines = to_stderr::layer()
            .with_writer(writer)
            .event_format(Line)
            .with_filter(filter_fn(move |metadata| is_printed(metadata, verbosity)));
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            let span = tracing::debug_span!(target: "tenure", "lock", key = "k");
            span.in_scope(|| tracing::warn!(target: "tenure::watchdog", late_ms = 900, "runtime stalled"));
            tracing::warn!(target: "tenure", key = "k", error = "no answer: try again", "the store is asked again");
            tracing::info!(target: "tenure", "the store answers again");
            tracing::warn!(target: "tenure", cause = "evicted", "the lock was lost");
            tracing::debug!(target: "tenure_sql", error = "redis://u:s3cr3t@h\nis\u{1b} away", "asking again");
            tracing::trace!(target: "tenure", "too much");
            tracing::error!(target: "h2", "another crate's: s3cr3t");
            tracing::error!(target: "tenurelike", "another crate's: s3cr3t");
        });
        let mut text = String::new();
        paper.rewind().expect("it is a file");
        paper.read_to_string(&mut text).expect("we write text");
        text
    }

    #[test]
    fn warnings_are_printed_except_losses_of_locks() {
        assert_eq!(
            printed(Verbosity::Warnings),
            "warning: runtime stalled\n\
             warning: \"k\": the store is asked again: no answer\n\
             note: the store answers again\n"
        );
    }

    #[test]
    fn verbose_prints_all_our_events_and_no_password() {
        assert_eq!(
            printed(Verbosity::Everything),
            "warning: runtime stalled\n\
             warning: \"k\": the store is asked again: no answer\n\
             note: the store answers again\n\
             warning: the lock was lost\n\
             debug: asking again (error=redis://u:***@h is\\u{1b} away)\n"
        );
    }

    #[test]
    fn quiet_prints_nothing() {
        assert_eq!(printed(Verbosity::Nothing), "");
    }
}
