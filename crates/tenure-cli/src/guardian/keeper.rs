//! The guardian itself: one thread, one command, one deadline.
//! It writes to no terminal and knows no lock; what it has to say goes to `tenure`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid};
use signal_hook::consts::SIGCHLD;

use super::deadline::{Due, Verdict};
use super::entry::{STUB, helper, own_binary};
use super::protocol::{Ended, Inflow, Launch, Order, Recipient, Report, line};
use super::sweep::{Left, Sweep, ended, reap, tell_all};
use super::{LONGEST_SLEEP, Why, handover, kin, now, signals, terminal};

/// What may wait for a `tenure` that does not read. Notes beyond it are dropped, the last word never.
const OUTBOX_LIMIT: usize = 64 * 1024;

pub(super) fn main() -> ExitCode {
    // Without a caller nobody is left to tell, and nothing was started.
    match Keeper::begin() {
        Ok(Some(keeper)) => keeper.keep(),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The socket to `tenure`.
struct Caller {
    socket: UnixStream,
    inflow: Inflow,
    outbox: Vec<u8>,
}

struct Keeper {
    caller: Caller,
    /// Readable after each SIGCHLD.
    child_changed: UnixStream,
    verdict: Verdict,
    command: Option<Command>,
}

struct Command {
    leader: Pid,
    /// The stub's socket, until the command runs.
    stub: Option<UnixStream>,
    stopped: bool,
    /// How many CONTs were ordered.
    continued: u64,
    terminal_owner: Option<Pid>,
}

/// What the loop does next.
enum Next {
    GoOn,
    /// The command, and all below us, must end; or it has ended.
    End(Option<Why>),
    /// There is no command and there will be none.
    Leave,
}

impl Keeper {
    fn begin() -> io::Result<Option<Keeper>> {
        signals::deafen()?;
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_child_subreaper(Some(getpid()))?;
            // Otherwise `ps` and `top` would show the name of the link that was executed.
            rustix::thread::set_name(c"tenure-guardian")?;
        }
        let (child_changed, waker) = UnixStream::pair()?;
        child_changed.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, waker)?;
        let socket = handover::own_socket()?;
        if handover::take_stdin(&socket)?.is_none() {
            return Ok(None);
        }
        socket.set_nonblocking(true)?;
        let caller = Caller {
            socket,
            inflow: Inflow::default(),
            outbox: Vec::new(),
        };
        Ok(Some(Keeper {
            caller,
            child_changed,
            verdict: Verdict::default(),
            command: None,
        }))
    }

    fn keep(mut self) -> ExitCode {
        loop {
            match self.step() {
                Next::GoOn => {}
                Next::End(why) => {
                    self.end(why);
                    return ExitCode::SUCCESS;
                }
                Next::Leave => {
                    self.caller.last_word();
                    return ExitCode::SUCCESS;
                }
            }
        }
    }

    fn step(&mut self) -> Next {
        if let Some(leader) = self.command.as_ref().map(|command| command.leader) {
            match self.verdict.due(now()) {
                Due::Kill(why) => return Next::End(Some(why)),
                Due::Term(why) => {
                    self.caller.tell(&Report::Terming { why });
                    tell_all(leader, Signal::TERM);
                    // A stopped process acts on TERM only when it is continued.
                    tell_all(leader, Signal::CONT);
                }
                Due::Nothing => {}
            }
        }
        self.sleep();
        match self.hear_orders() {
            Next::GoOn => self.look_at_children(),
            other => other,
        }
    }

    /// Sleeps until there is something to hear, to see or to do, and at most a second.
    fn sleep(&mut self) {
        let due = if self.command.is_some() {
            self.verdict.next_at()
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
        if let Some(stub) = self.command.as_ref().and_then(|command| command.stub.as_ref()) {
            polled.push(PollFd::new(stub, PollFlags::IN));
        }
        // Woken early or not at all, the loop looks at everything anyhow.
        let _ = poll(&mut polled, Some(&timespec(timeout)));
        drain(&self.child_changed);
        self.caller.flush();
    }

    fn hear_orders(&mut self) -> Next {
        loop {
            match self.caller.next_order() {
                Ok(Some(order)) => match self.obey(order) {
                    Next::GoOn => {}
                    other => return other,
                },
                Ok(None) => return Next::GoOn,
                Err(_) => return Next::End(Some(Why::CallerDied)),
            }
        }
    }

    fn obey(&mut self, order: Order) -> Next {
        match (order, &mut self.command) {
            (Order::Arm(deadline), _) => self.verdict.arm(deadline),
            (Order::Waive, _) => self.verdict.waive(),
            (Order::Start(launch), None) => return self.start(launch),
            (Order::Go, Some(command)) => {
                let given = command
                    .stub
                    .as_ref()
                    .map(|stub| handover::give_stdin(stub, rustix::stdio::stdin()));
                if matches!(given, Some(Err(_))) {
                    // The stub died; its end is seen as the command's.
                    command.stub = None;
                }
            }
            (Order::Signal { signal, to }, Some(command)) => command.forward(signal, to),
            (Order::Stop { why, grace }, Some(_)) => self.verdict.stop(why, grace, now()),
            (Order::Start(_), Some(_)) | (Order::Go | Order::Signal { .. } | Order::Stop { .. }, None) => {}
        }
        Next::GoOn
    }

    fn start(&mut self, launch: Launch) -> Next {
        if !self.verdict.may_start(now()) {
            self.caller.tell(&Report::Refused);
            return Next::Leave;
        }
        match spawn_stub(&launch) {
            Ok((leader, stub)) => {
                let terminal_owner = launch.terminal_owner.and_then(Pid::from_raw);
                self.command = Some(Command {
                    leader,
                    stub: Some(stub),
                    stopped: false,
                    continued: 0,
                    terminal_owner,
                });
                self.caller.tell(&Report::Spawned {
                    pid: leader.as_raw_pid(),
                });
                Next::GoOn
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                self.caller.tell(&Report::ExecFailed { errno });
                Next::Leave
            }
        }
    }

    fn look_at_children(&mut self) -> Next {
        let Some(command) = &mut self.command else {
            return Next::GoOn;
        };
        // Before the stub's word is read: what it said, it said before it ended.
        let leader_ended = ended(command.leader);
        match command.hear_stub() {
            Some(Ok(())) => self.caller.tell(&Report::Started),
            Some(Err(errno)) => {
                self.take_terminal_back();
                self.caller.tell(&Report::ExecFailed { errno });
                return Next::Leave;
            }
            None => {}
        }
        if leader_ended {
            return Next::End(self.verdict.why());
        }
        self.look_at_orphans();
        self.look_for_a_stop();
        Next::GoOn
    }

    /// Reaps what was handed to us by parents that ended.
    fn look_at_orphans(&self) {
        let leader = self.command.as_ref().map(|command| command.leader);
        kin::children()
            .into_iter()
            .filter(|&child| Some(child) != leader)
            .for_each(reap);
    }

    fn look_for_a_stop(&mut self) {
        let Some(command) = &mut self.command else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let Ok(Some(change)) = waitid(WaitId::Pid(command.leader), options) else {
            return;
        };
        command.stopped = change.stopped();
        if let Some(signal) = change.stopping_signal() {
            let continued = command.continued;
            self.take_terminal_back();
            self.caller.tell(&Report::Stopped { signal, continued });
        } else {
            self.caller.tell(&Report::Continued);
        }
    }

    fn take_terminal_back(&self) {
        if let Some(command) = &self.command
            && let Some(owner) = command.terminal_owner
        {
            terminal::take_back(command.leader, owner);
        }
    }

    /// Ends every process below us, and says so. Does nothing if no command was ever started.
    fn end(mut self, why: Option<Why>) {
        let Some(leader) = self.command.as_ref().map(|command| command.leader) else {
            return;
        };
        if let Some(why) = why {
            self.caller.tell(&Report::Killing { why });
        }
        // While the leader is unreaped its group exists, and can be joined.
        self.take_terminal_back();
        let mut sweep = Sweep::of(Some(leader), Vec::new());
        let unreached = loop {
            match sweep.round(now()) {
                Left::Unreachable(pids) => break pids,
                Left::Running(pause) => {
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
        self.caller.tell_surely(&Report::Ended(ended));
        self.caller.last_word();
    }
}

impl Command {
    fn forward(&mut self, signal: i32, to: Recipient) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        self.continued += u64::from(signal == Signal::CONT);
        // The leader is unreaped, so neither number can be another's; what is gone needs no signal.
        let _ = match to {
            Recipient::Group => kill_process_group(self.leader, signal),
            Recipient::Leader => kill_process(self.leader, signal),
        };
        if self.stopped && [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT].contains(&signal) {
            let _ = kill_process_group(self.leader, Signal::CONT);
        }
    }

    /// Whether the stub became the command: `Some(Ok)` once it did, `Some(Err)` once it could not.
    fn hear_stub(&mut self) -> Option<Result<(), i32>> {
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
    /// `Err` once `tenure` is gone.
    fn next_order(&mut self) -> io::Result<Option<Order>> {
        loop {
            match self.inflow.next() {
                Some(Ok(order)) => return Ok(Some(order)),
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            let mut chunk = [0; 16 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.inflow.buffer().extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells if there is room: a `tenure` that is stopped must not stop us.
    fn tell(&mut self, report: &Report) {
        if self.outbox.len() < OUTBOX_LIMIT {
            self.tell_surely(report);
        }
    }

    fn tell_surely(&mut self, report: &Report) {
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
                // `tenure` is gone: nobody is left to tell.
                Err(_) => self.outbox.clear(),
            }
        }
    }

    /// Waits until all was read, or nobody is left to read it.
    fn last_word(&mut self) {
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

/// Starts the stub in a process group of its own. It waits for its standard input.
fn spawn_stub(launch: &Launch) -> io::Result<(Pid, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let binary: OsString = own_binary()?.into();
    let child = helper(binary, STUB, OwnedFd::from(theirs))
        .arg(getpid().as_raw_pid().to_string())
        .args(&launch.argv)
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .spawn()?;
    Ok((Pid::from_child(&child), ours))
}

fn drain(mut woken: &UnixStream) {
    let mut bytes = [0; 64];
    while matches!(woken.read(&mut bytes), Ok(count) if count > 0) {}
}

fn timespec(span: Duration) -> Timespec {
    // Spans here are a second at most.
    Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
