//! The guardian process: one thread, one command, one deadline. It makes no call to the store and prints nothing: it
//! sends reports to `tenure`, which prints them.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid};
use signal_hook::consts::SIGCHLD;

use super::deadline::{DeadlineState, Due};
use super::protocol::{Ended, Launch, MessageBuffer, Order, Recipient, Report, line};
use super::stub::Stub;
use super::sweep::{RoundResult, Sweep, ended, reap, signal_all};
use super::{LONGEST_SLEEP, StopReason, now, process_tree, signals, stdin_passing, terminal};

/// Limit, in bytes, of the reports that are queued while the socket is full. Beyond it only `Ended` is queued.
const OUTBOX_LIMIT: usize = 64 * 1024;

pub(super) fn main() -> ExitCode {
    // `None`: `tenure` is gone, so there is no command to start. An error is not printed: `tenure` sees the exit.
    match Guardian::begin() {
        Ok(Some(guardian)) => guardian.run(),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The connection to `tenure`.
struct Caller {
    socket: UnixStream,
    incoming: MessageBuffer,
    outbox: Vec<u8>,
}

struct Guardian {
    caller: Caller,
    /// Becomes readable after each SIGCHLD.
    child_changed: UnixStream,
    deadline_state: DeadlineState,
    /// The stub that will become the command. It starts while `tenure` waits for the lock.
    idle_stub: Option<Stub>,
    command: Option<Command>,
}

struct Command {
    leader: Pid,
    /// The stub's socket, until the stub has become the command or died.
    stub: Option<UnixStream>,
    input: Input,
    stopped: bool,
    /// Number of CONT signals that `tenure` has ordered, for the report `Stopped`.
    continued: u64,
    terminal_owner: Option<Pid>,
}

/// Whether the stub has its standard input, with which it becomes the command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Input {
    /// `Go` has not been received.
    Awaited,
    /// `Go` has been received, but the stub's socket has not taken the standard input yet.
    Due,
    Given,
}

/// The next step of the main loop.
enum Next {
    GoOn,
    /// Kill all descendants: for this reason, or, with `None`, because the command has ended by itself.
    End(Option<StopReason>),
    /// Exit: the command was not started.
    Exit,
}

impl Guardian {
    fn begin() -> io::Result<Option<Guardian>> {
        // Start the stub first, so that it gets ready at the same time as the guardian. If this fails, `start` tries
        // again and reports the error.
        let idle_stub = Stub::spawn().ok();
        signals::ignore_terminal_signals()?;
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_child_subreaper(Some(getpid()))?;
            // Without this name `ps` and `top` would show `exe`, the name of the link that was executed.
            rustix::thread::set_name(c"tenure-guardian")?;
        }
        let (child_changed, waker) = UnixStream::pair()?;
        child_changed.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, waker)?;
        let socket = stdin_passing::own_socket()?;
        if stdin_passing::receive_stdin(&socket)?.is_none() {
            return Ok(None);
        }
        socket.set_nonblocking(true)?;
        let caller = Caller {
            socket,
            incoming: MessageBuffer::default(),
            outbox: Vec::new(),
        };
        Ok(Some(Guardian {
            caller,
            child_changed,
            deadline_state: DeadlineState::default(),
            idle_stub,
            command: None,
        }))
    }

    fn run(mut self) -> ExitCode {
        loop {
            match self.step() {
                Next::GoOn => {}
                Next::End(why) => {
                    self.end(why);
                    return ExitCode::SUCCESS;
                }
                Next::Exit => {
                    self.caller.flush_all();
                    return ExitCode::SUCCESS;
                }
            }
        }
    }

    fn step(&mut self) -> Next {
        if let Some(leader) = self.command.as_ref().map(|command| command.leader) {
            match self.deadline_state.due(now()) {
                Due::Kill(why) => return Next::End(Some(why)),
                Due::Term(why) => {
                    self.caller.report(&Report::TermSent { why });
                    signal_all(leader, Signal::TERM);
                    // A stopped process handles TERM only after CONT.
                    signal_all(leader, Signal::CONT);
                }
                Due::Nothing => {}
            }
        }
        self.sleep();
        let next = match self.read_orders() {
            Next::GoOn => self.go(),
            other => other,
        };
        match next {
            Next::GoOn => self.check_children(),
            other => other,
        }
    }

    /// Sleeps until an order or a message of the stub arrives, a child changes, a signal is due, the stub can take its
    /// standard input, or `tenure` can take queued reports, but at most one second. Then sends the reports.
    fn sleep(&mut self) {
        let due = if self.command.is_some() {
            self.deadline_state.next_at()
        } else {
            None
        };
        let timeout = due.map_or(LONGEST_SLEEP, |at| (at - now()).min(LONGEST_SLEEP));
        let caller_flags = if self.caller.outbox.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let mut polled = vec![
            PollFd::new(&self.caller.socket, caller_flags),
            PollFd::new(&self.child_changed, PollFlags::IN),
        ];
        if let Some(command) = &self.command
            && let Some(stub) = &command.stub
        {
            let flags = if command.input == Input::Due {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            polled.push(PollFd::new(stub, flags));
        }
        // The result does not matter: the loop checks everything after each wake-up.
        let _ = poll(&mut polled, Some(&timespec(timeout)));
        drain(&self.child_changed);
        self.caller.flush();
    }

    fn read_orders(&mut self) -> Next {
        loop {
            match self.caller.next_order() {
                Ok(Some(order)) => match self.execute(order) {
                    Next::GoOn => {}
                    other => return other,
                },
                Ok(None) => return Next::GoOn,
                Err(_) => return Next::End(Some(StopReason::CallerDied)),
            }
        }
    }

    fn execute(&mut self, order: Order) -> Next {
        match (order, &mut self.command) {
            (Order::Arm(deadline), _) => self.deadline_state.arm(deadline),
            (Order::Waive, _) => self.deadline_state.waive(),
            (Order::Start(launch), None) => return self.start(launch),
            (Order::Go, Some(command)) => {
                if command.input == Input::Awaited {
                    command.input = Input::Due;
                }
            }
            (Order::Signal { signal, to }, Some(command)) => command.forward(signal, to),
            (Order::Stop { why, grace }, Some(_)) => self.deadline_state.stop(why, grace, now()),
            (Order::Start(_), Some(_)) | (Order::Go | Order::Signal { .. } | Order::Stop { .. }, None) => {}
        }
        Next::GoOn
    }

    fn start(&mut self, launch: Launch) -> Next {
        if !self.deadline_state.may_start(now()) {
            self.caller.report(&Report::Refused);
            return Next::Exit;
        }
        let stub = match self.idle_stub.take() {
            Some(stub) if !ended(stub.pid) => Ok(stub),
            dead => {
                dead.map(|stub| stub.pid).into_iter().for_each(reap);
                Stub::spawn()
            }
        };
        let stub = stub.and_then(|mut stub| stub.take(&launch).map(|()| stub));
        match stub {
            Ok(Stub {
                pid: leader,
                socket: stub,
            }) => {
                let terminal_owner = launch.terminal_owner.and_then(Pid::from_raw);
                // `Spawned` is sent before `Go` is read. So `tenure` knows the leader of each command that may have begun.
                self.command = Some(Command {
                    leader,
                    stub: Some(stub),
                    input: Input::Awaited,
                    stopped: false,
                    continued: 0,
                    terminal_owner,
                });
                self.caller.report(&Report::Spawned {
                    pid: leader.as_raw_pid(),
                });
                Next::GoOn
            }
            Err(error) => {
                self.caller.report(&exec_failed(&error));
                Next::Exit
            }
        }
    }

    /// Lets the stub become the command, if `Go` has ordered that. Tries again later while the stub still has to read its
    /// command line, which can fill the socket. Exits if the deadline has passed meanwhile.
    fn go(&mut self) -> Next {
        let due = |command: &&mut Command| command.input == Input::Due;
        let Some(command) = self.command.as_mut().filter(due) else {
            return Next::GoOn;
        };
        let Some(stub) = &command.stub else {
            return Next::GoOn;
        };
        let failure = if !self.deadline_state.may_start(now()) {
            Report::Refused
        } else {
            match stdin_passing::send_stdin(stub, rustix::stdio::stdin()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::GoOn,
                Err(error) if !has_ended(&error) => exec_failed(&error),
                // If the stub has ended, `check_children` reports how.
                _ => {
                    command.input = Input::Given;
                    return Next::GoOn;
                }
            }
        };
        // The stub dies with the guardian, before it becomes the command.
        self.take_terminal_back();
        self.caller.report(&failure);
        Next::Exit
    }

    fn check_children(&mut self) -> Next {
        let Some(command) = &mut self.command else {
            return Next::GoOn;
        };
        // Check first whether the stub has ended, and read its message afterwards: an ended stub has already sent its
        // message, so none is missed.
        let leader_ended = ended(command.leader);
        match command.read_stub() {
            Some(Ok(())) => self.caller.report(&Report::Started),
            Some(Err(errno)) => {
                self.take_terminal_back();
                self.caller.report(&Report::ExecFailed { errno });
                return Next::Exit;
            }
            None => {}
        }
        if leader_ended {
            return Next::End(self.deadline_state.why());
        }
        self.reap_orphans();
        self.check_stopped();
        Next::GoOn
    }

    /// Reaps dead descendants that became children of the guardian when their parents ended.
    fn reap_orphans(&self) {
        let leader = self.command.as_ref().map(|command| command.leader);
        // If /proc cannot be read, the next check reaps them.
        process_tree::children()
            .unwrap_or_default()
            .into_iter()
            .filter(|&child| Some(child) != leader)
            .for_each(reap);
    }

    fn check_stopped(&mut self) {
        let Some(command) = &mut self.command else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let Ok(Some(change)) = waitid(WaitId::Pid(command.leader), options) else {
            return;
        };
        command.stopped = change.stopped();
        if let Some(signal) = change.stopping_signal() {
            let continued = command.continued;
            self.take_terminal_back();
            self.caller.report(&Report::Stopped { signal, continued });
        } else {
            self.caller.report(&Report::Continued);
        }
    }

    fn take_terminal_back(&self) {
        if let Some(command) = &self.command
            && let Some(owner) = command.terminal_owner
        {
            terminal::take_back(command.leader, owner);
        }
    }

    /// Reports `KillSent` if there is a reason, kills every descendant, and reports `Ended`. Does nothing if no command
    /// was started.
    fn end(mut self, why: Option<StopReason>) {
        let Some(leader) = self.command.as_ref().map(|command| command.leader) else {
            return;
        };
        if let Some(why) = why {
            self.caller.report(&Report::KillSent { why });
        }
        // Must come before the leader is reaped. To move the terminal, the guardian joins the foreground's process
        // group. That is usually the leader's, which is sure to exist only until the leader is reaped.
        self.take_terminal_back();
        let mut sweep = Sweep::of(Some(leader), Vec::new());
        let unreached = loop {
            match sweep.round(now()) {
                RoundResult::Unreachable(pids) => break pids,
                RoundResult::Running(pause) => {
                    let mut polled = [PollFd::new(&self.child_changed, PollFlags::IN)];
                    let _ = poll(&mut polled, Some(&timespec(pause)));
                    drain(&self.child_changed);
                }
            }
        };
        let ended = Ended {
            status: sweep.status(),
            stopped_by: why,
            unreached,
            while_suspended: false,
        };
        self.caller.report_always(&Report::Ended(ended));
        self.caller.flush_all();
    }
}

impl Command {
    fn forward(&mut self, signal: i32, to: Recipient) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        self.continued += u64::from(signal == Signal::CONT);
        // The leader is not reaped, so its process id and group id cannot have been reused. An error means that it has
        // ended, or runs as another user.
        let _ = match to {
            Recipient::Group => kill_process_group(self.leader, signal),
            Recipient::Leader => kill_process(self.leader, signal),
        };
        if self.stopped && [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT].contains(&signal) {
            let _ = kill_process_group(self.leader, Signal::CONT);
        }
    }

    /// Returns what became of the stub, and returns it only once: `Some(Ok)` if the stub has become the command or
    /// died, `Some(Err)` with the error number if `exec` failed. Returns `None` before and afterwards.
    fn read_stub(&mut self) -> Option<Result<(), i32>> {
        let mut errno = [0; 4];
        let read = self.stub.as_mut()?.read(&mut errno);
        if let Err(error) = &read
            && [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
        {
            return None;
        }
        self.stub = None;
        match read {
            Ok(4) => Some(Err(i32::from_ne_bytes(errno))),
            _ => Some(Ok(())),
        }
    }
}

impl Caller {
    /// Returns the next order, `None` if none has arrived. An error means that `tenure` is gone, or has sent
    /// something that is no order.
    fn next_order(&mut self) -> io::Result<Option<Order>> {
        loop {
            match self.incoming.next() {
                Some(Ok(order)) => return Ok(Some(order)),
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            let mut chunk = [0; 16 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.incoming.buffer().extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues a report if there is space. A stopped `tenure` reads nothing, and must not block the guardian.
    fn report(&mut self, report: &Report) {
        if self.outbox.len() < OUTBOX_LIMIT {
            self.report_always(report);
        }
    }

    fn report_always(&mut self, report: &Report) {
        self.outbox.extend(line(report));
        self.flush();
    }

    fn flush(&mut self) {
        use io::Write;
        while !self.outbox.is_empty() {
            match self.socket.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // `tenure` is gone, so the reports have no reader.
                Err(_) => self.outbox.clear(),
            }
        }
    }

    /// Waits until the socket has taken all reports, or `tenure` is gone.
    fn flush_all(&mut self) {
        self.flush();
        while !self.outbox.is_empty() {
            let _ = poll(
                &mut [PollFd::new(&self.socket, PollFlags::OUT)],
                Some(&timespec(LONGEST_SLEEP)),
            );
            self.flush();
        }
    }
}

/// Returns whether an error of a socket means that the process at the other end has ended.
fn has_ended(error: &io::Error) -> bool {
    [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind())
}

/// The report of an error that kept the stub from becoming the command.
fn exec_failed(error: &io::Error) -> Report {
    Report::ExecFailed {
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

fn drain(mut woken: &UnixStream) {
    let mut bytes = [0; 64];
    while matches!(woken.read(&mut bytes), Ok(count) if count > 0) {}
}

fn timespec(span: Duration) -> Timespec {
    // The seconds fit: all callers pass one second at most.
    Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
