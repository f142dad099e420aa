//! The thread that serves a file. Requests that are queued together share a transaction, and so one sync of the disk.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use tenure_backend::{AcquireReply, BackendError, Clock, Effect, Fault, Finding, LockKey, ReleaseTarget};

use super::config::Config;
use super::connection::{FIRST_COMMITS, LONG_LOG_PAGES, SHORT_LOG_PAGES};
use super::file::Identity;
use super::mailbox::{CALLER_SPIN, Mailbox, Posted, WORKER_SPIN};
use super::names::display_path;
use super::notification::{self, NotificationListener};
use super::request::{Pending, Request, Write};
use super::siblings::sibling;
use super::subscribers::Subscribers;
use super::tables::{Tables, Written};
use super::transaction::{Transaction, ViewCache};
use super::{busy, connection, error, examine, validate, write_lock};
use crate::claims::{Moment, RENEW_INTERVAL, View};

/// Number of rows that the sweep of old rows checks for each inserted row. More than one, so that it goes round
/// the table quickly and catches up after a time without writes.
const SWEPT_PER_ROW: u32 = 4;

/// Minimum and maximum number of rows that one sweep checks. At least 64, because each sweep also writes a page that
/// records where it ended; at most 1024, so that other processes do not wait long for the write lock. Later sweeps
/// check the rest.
const SWEEP_ROWS: RangeInclusive<u32> = 64..=1024;

/// Of the processes that open a file, one in this number sweeps with its first write. Then processes that take a single
/// lock delete old rows too, and together check [`SWEPT_PER_ROW`] rows for each row that they insert.
const OPENINGS_PER_SWEEP: u64 = (*SWEEP_ROWS.start() / SWEPT_PER_ROW) as u64;

pub(super) struct Worker<'c> {
    pub(super) path: &'c Path,
    pub(super) connection: &'c Connection,
    pub(super) config: &'c Config,
    wal: PathBuf,
    shm: PathBuf,
    identity: Identity,
    pub(super) tables: Tables<'c>,
    cache: ViewCache,
    mailbox: Arc<Mailbox>,
    pub(super) subscribers: Subscribers,
    pub(super) listener: NotificationListener,
    /// True while `PRAGMA synchronous` is `FULL`: each commit is synced to the disk.
    durable: bool,
    /// Number of commits of requests. Those that only renew registrations do not count.
    commits: u32,
    /// Number of rows that the sweep of old rows must still check. Each inserted row adds four.
    sweep_debt: u32,
    /// Time of the next renewal of the unfair waiters' registrations.
    pub(super) renew_at: Instant,
    /// Time at which all keys with waiters are checked even without a notification.
    pub(super) check_at: Instant,
    /// Time until which notifications of other processes are ignored.
    pub(super) ignore_until: Instant,
    /// Error for all requests after the file was deleted or replaced.
    pub(super) lost: Option<BackendError>,
}

impl<'c> Worker<'c> {
    pub(super) fn new(
        path: &'c Path,
        connection: &'c Connection,
        config: &'c Config,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self, BackendError> {
        let sql = |error| error::sqlite(path, error, Effect::None);
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(sql)?;
        if connection::wal_reset_bug(rusqlite::version_number()).is_none() {
            connection::copy_log_at(connection, SHORT_LOG_PAGES).map_err(sql)?;
        }
        // This read makes sure that `-wal` and `-shm` exist. They stay as long as any process has the file open.
        validate::read_format(connection).map_err(sql)?;
        let mut tables = Tables::new(connection);
        // Prepared now, because a rollback must not fail.
        tables.rollback.get().map_err(sql)?;
        let (wal, shm) = (sibling(path, "-wal"), sibling(path, "-shm"));
        let now = Instant::now();
        Ok(Worker {
            path,
            connection,
            config,
            identity: Identity::of(path, &wal, &shm)?,
            wal,
            shm,
            tables,
            cache: ViewCache::default(),
            mailbox,
            subscribers: Subscribers::default(),
            listener: NotificationListener::new(path),
            durable: true,
            commits: 0,
            sweep_debt: first_sweep_debt(config.clock.now()),
            renew_at: now,
            check_at: now,
            ignore_until: now,
            lost: None,
        })
    }

    /// Serves requests until the mailbox is closed and empty. Returns the close requests, which the caller answers
    /// after it has closed the connection.
    pub(super) fn run(mut self) -> Vec<Pending<(), Result<(), BackendError>>> {
        let mut closing = Vec::new();
        let mailbox = self.mailbox.clone();
        let mut answered = Instant::now();
        while let Some(posted) = mailbox.take(self.config.max_group) {
            // If a request comes soon after the last reply, the next one probably will too: then the thread spins.
            let first = posted.iter().map(|posted| posted.since).min();
            let quick =
                first.is_some_and(|since| since < answered + WORKER_SPIN) && self.subscribers.is_empty();
            let alone = posted.len() == 1;
            self.serve(posted, &mut closing);
            answered = Instant::now();
            mailbox.set_caller_may_spin(
                quick && alone && first.is_some_and(|since| answered < since + CALLER_SPIN),
            );
            // Spins only without subscribers, so that waiters cost no CPU time.
            if quick && self.subscribers.is_empty() && mailbox.spin_until(answered + WORKER_SPIN) {
                continue;
            }
            self.serve_subscribers();
            let listens = !self.subscribers.is_empty() && self.ignore_until <= Instant::now();
            let time = self.time_to_sleep();
            mailbox.sleep(&mut self.listener, listens, time);
        }
        // Deletes the registrations of this store's waiters: no key must be reserved for a waiter that cannot be
        // woken.
        let now = Instant::now();
        let left = self.subscribers.registered().into_iter();
        self.write(left.map(|claim| (now, Write::Unwatch(claim))).collect());
        closing
    }

    /// Serves requests in order. Consecutive requests that write share a transaction.
    fn serve(&mut self, posted: VecDeque<Posted>, closing: &mut Vec<Pending<(), Result<(), BackendError>>>) {
        let mut group = Vec::new();
        for Posted { since, request } in posted {
            match request {
                Request::Unsubscribe(claim, signal) => {
                    if self.subscribers.unsubscribe(&claim, &signal) {
                        group.push((since, Write::Unwatch(claim)));
                    }
                }
                Request::Write(write) => group.push((since, write)),
                Request::Inspect(pending) => {
                    self.write(std::mem::take(&mut group));
                    let page = self.inspect(since, &pending.input);
                    pending.answer(page);
                }
                Request::Examine(pending) => {
                    self.write(std::mem::take(&mut group));
                    let findings = self.examine();
                    pending.answer(Ok(findings));
                }
                Request::Close(pending) => {
                    self.mailbox.close();
                    closing.push(pending);
                }
            }
        }
        self.write(group);
    }

    /// Runs the requests in one transaction. If another process keeps the write lock, requests older than
    /// `busy_limit` fail; the others try again.
    fn write(&mut self, mut group: Vec<(Instant, Write)>) {
        while let Some(oldest) = group.iter().map(|(since, _)| *since).min() {
            if let Some(error) = &self.lost {
                group.drain(..).for_each(|(_, write)| write.fail_lost(error));
                return;
            }
            let durable = group.iter().any(|(_, write)| write.must_sync());
            match self.begin(oldest, durable) {
                Ok(()) => return self.transact(group.into_iter().map(|(_, write)| write).collect()),
                Err(error) if busy::is_busy(&error) => {
                    let limit = self.config.busy_limit;
                    let error = blocked(self.path, limit, error::sqlite(self.path, error, Effect::None));
                    // The oldest request fails: `begin` has waited until its `busy_limit`. Requests that came soon
                    // after it may have reached theirs too.
                    let waited = |since: Instant| since == oldest || limit <= since.elapsed();
                    for (_, write) in group.extract_if(.., |(since, _)| waited(*since)) {
                        write.fail(&error);
                    }
                }
                Err(error) => {
                    let error = error::sqlite(self.path, error, Effect::None);
                    group.drain(..).for_each(|(_, write)| write.fail(&error));
                }
            }
        }
    }

    /// Begins a transaction and takes the write lock. Waits for other processes until `busy_limit` after `since`.
    pub(super) fn begin(&mut self, since: Instant, durable: bool) -> rusqlite::Result<()> {
        if self.durable != durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durable = durable;
        }
        busy::set_deadline(since, self.config.busy_limit);
        self.tables.begin.run()?;
        self.cache.check(&mut self.tables);
        Ok(())
    }

    /// Executes, commits and answers the requests. The caller has begun the transaction.
    fn transact(&mut self, mut group: Vec<Write>) {
        if let Err(error) = self.check_identity() {
            self.roll_back();
            let is_lost = self.lost.is_some();
            let fail = if is_lost { Write::fail_lost } else { Write::fail };
            group.into_iter().for_each(|write| fail(write, &error));
            return;
        }
        let done = match self.decide(&mut group) {
            Ok((decided, written)) => self.commit(written).map(|()| decided),
            Err(error) => {
                self.roll_back();
                Err(error::sqlite(self.path, error, Effect::None))
            }
        };
        match done {
            Ok(Decided { views, version }) => {
                self.wake(&views);
                if let Some(version) = version {
                    self.cache.insert(views, version);
                }
                group.into_iter().for_each(|write| self.answer(write));
            }
            Err(error) => group.into_iter().for_each(|write| write.fail(&error)),
        }
    }

    /// Deletes old rows if enough rows were inserted, then executes the requests. Does not commit.
    fn decide(&mut self, group: &mut [Write]) -> rusqlite::Result<(Decided, Written)> {
        let swept = self.sweep()?;
        let mut transaction = self.transaction();
        let executed = group
            .iter_mut()
            .try_for_each(|write| write.execute(&mut transaction));
        let (mut written, views) = (transaction.written, transaction.views);
        self.add_sweep_debt(written);
        written.any |= swept;
        let cache = views.values().any(View::is_worth_caching);
        let version = cache.then(|| self.tables.version()).transpose()?;
        executed.map(|()| (Decided { views, version }, written))
    }

    /// The current transaction, for the claim logic. Reads the clock, so the caller must hold the write lock.
    pub(super) fn transaction(&mut self) -> Transaction<'_, 'c> {
        Transaction {
            at: moment(&*self.config.clock),
            tables: &mut self.tables,
            cache: &mut self.cache,
            views: HashMap::new(),
            written: Written::default(),
        }
    }

    /// Commits the transaction; rolls back if the commit fails or nothing was written.
    fn commit(&mut self, written: Written) -> Result<(), BackendError> {
        if !written.any {
            self.roll_back();
            return Ok(());
        }
        self.tables.commit.run().map_err(|error| {
            self.roll_back();
            error::sqlite(self.path, error, Effect::Unknown)
        })?;
        self.commits = self.commits.saturating_add(1);
        if self.commits == FIRST_COMMITS {
            // If this fails, later commits also keep the log short, which makes them slower.
            let _ = connection::copy_log_at(self.connection, LONG_LOG_PAGES);
        }
        Ok(())
    }

    /// Adds the rows that the sweep must check because of these inserted rows.
    pub(super) fn add_sweep_debt(&mut self, written: Written) {
        let more = written.rows.saturating_mul(SWEPT_PER_ROW);
        self.sweep_debt = self.sweep_debt.saturating_add(more);
    }

    /// Deletes old rows if at least 64 rows must be checked. Returns whether it checked any.
    fn sweep(&mut self) -> rusqlite::Result<bool> {
        if self.sweep_debt < *SWEEP_ROWS.start() {
            return Ok(false);
        }
        let count = self.sweep_debt.min(*SWEEP_ROWS.end());
        self.sweep_debt -= count;
        if self.tables.sweep(count, self.config.clock.now())? > 0 {
            self.cache.clear();
        }
        Ok(true)
    }

    pub(super) fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.tables.rollback.run()
        {
            tracing::warn!(%error, path = %display_path(self.path), "a transaction could not be rolled back");
        }
    }

    /// Sends the results of a committed request. Granted and released claims are no longer registered for wake-ups.
    fn answer(&mut self, write: Write) {
        match &write {
            Write::Acquire(pending) if matches!(pending.result, Some(Ok(AcquireReply::Granted(_)))) => {
                self.subscribers.clear_registration(&pending.input.0.at);
            }
            Write::Release(pending) => {
                for request in &pending.input {
                    if let ReleaseTarget::Claim(claim) = &request.target {
                        self.subscribers.clear_registration(claim);
                    }
                }
            }
            _ => {}
        }
        let (subscribers, listener, mailbox) = (&mut self.subscribers, &mut self.listener, &self.mailbox);
        let is_first = subscribers.is_empty();
        let renew_at = &mut self.renew_at;
        write.answer(|claim| {
            if is_first {
                *renew_at = Instant::now() + RENEW_INTERVAL;
            }
            listener.start();
            subscribers.subscribe(claim, mailbox.clone())
        });
    }

    /// After the commit, wakes this store's waiters that should poll, and notifies other processes that may have
    /// waiters.
    fn wake(&mut self, views: &HashMap<LockKey, View>) {
        let mut has_others = false;
        for view in views.values().filter(|view| view.needs_wake()) {
            has_others = has_others || view.waiters().any(|id| !self.subscribers.contains(&view.key, id));
            self.subscribers.wake(view);
        }
        if has_others {
            self.notify();
        }
    }

    fn notify(&self) {
        if let Err(error) = notification::notify_processes(self.path) {
            // Without a notification, other processes still check their keys, at least every 500 ms.
            tracing::debug!(%error, path = %display_path(self.path), "waiters of other processes could not be notified");
        }
    }

    /// Checks that the files at the paths are still those that were opened. Otherwise all claims are lost, because
    /// processes that open the file later do not see them. If the files cannot be looked up, the claims are not lost.
    pub(super) fn check_identity(&mut self) -> Result<(), BackendError> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        if Identity::of(self.path, &self.wal, &self.shm)? == self.identity {
            return Ok(());
        }
        let error = BackendError::new(
            Fault::Store,
            Effect::None,
            format!(
                "the lock file {} (or its -wal or -shm) was deleted or replaced while it was in use, and all locks \
                 in it are lost: connect again, and never move a lock file that is in use",
                display_path(self.path)
            ),
        );
        self.subscribers.wake_all();
        self.lost = Some(error.clone());
        Err(error)
    }

    /// Takes SQLite's write lock and releases it. Fails if another process keeps it for longer than `limit`.
    fn try_write_lock(&mut self, limit: Duration) -> rusqlite::Result<()> {
        busy::set_deadline(Instant::now(), limit);
        let taken = self.tables.begin.run();
        self.roll_back();
        taken
    }

    fn examine(&mut self) -> Vec<Finding> {
        if let Err(error) = self.check_identity() {
            return match self.lost {
                Some(_) => examine::replaced(&error),
                None => examine::unusable(&error),
            };
        }
        let limit = examine::WRITE_LOCK_LIMIT.min(self.config.busy_limit);
        let write_lock_is_free = self.try_write_lock(limit).is_ok();
        examine::examine(self.path, self.connection, self.config, write_lock_is_free)
    }
}

/// The keys' views (their rows) after a transaction, and the file's `data_version` if some of the views are to be
/// cached.
struct Decided {
    views: HashMap<LockKey, View>,
    version: Option<i64>,
}

/// Reads the lease clock and the wall clock.
pub(super) fn moment(clock: &dyn Clock) -> Moment {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment {
        now: clock.now(),
        wall_micros: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
    }
}

/// Error for a write lock that another process keeps. Names that process if it can be found.
pub(super) fn blocked(path: &Path, limit: Duration, cause: BackendError) -> BackendError {
    let who = match write_lock::owner(path) {
        Some(owner) => format!("by {}", owner.describe()),
        None => "by a process that cannot be identified: look for one that uses the file and is stopped"
            .to_owned(),
    };
    let message = format!(
        "the lock file {} has been kept busy for {:.1} s {who}",
        display_path(path),
        limit.as_secs_f64()
    );
    BackendError::because(Fault::Unavailable, Effect::None, message, cause)
}

/// Enough for a sweep in one of [`OPENINGS_PER_SWEEP`] microseconds, otherwise 0. A sweep takes a tenth of the time of a
/// short `tenure run`, so most of them go without.
fn first_sweep_debt(now: tenure_backend::Instant) -> u32 {
    if (now.as_nanos() / 1000).is_multiple_of(OPENINGS_PER_SWEEP) {
        *SWEEP_ROWS.start()
    } else {
        0
    }
}
