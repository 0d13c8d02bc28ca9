//! One process that is traced: each of its calls is seen when it begins and when it ends, and
//! changed where the tracer says so.

use std::collections::{HashMap, HashSet};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::faults::{Act, Call};
use crate::support::process;
use crate::syscalls::{Sort, lookup};
use crate::tracer::{Held, Tracer, options};

const PR_GET_DUMPABLE: u64 = libc::PR_GET_DUMPABLE.unsigned_abs() as u64;
const PR_SET_DUMPABLE: u64 = libc::PR_SET_DUMPABLE.unsigned_abs() as u64;

/// One process that is traced.
pub(crate) struct Trace<'a> {
    tracer: &'a Tracer,
    leader: Pid,
    /// The threads that are inside of a call, and what is to be done when it ends.
    inside: HashMap<Pid, Option<(Call, Option<Act>)>>,
    /// The descriptors that came from opening a path.
    files: HashSet<u64>,
    /// Whether the program itself runs, and not its loader any more.
    live: bool,
    over: bool,
    ended: Option<Option<i32>>,
    /// Whether the leader is not the victim, but starts it.
    starts_it: bool,
    /// Whether it did: it goes on beside the victim, and its calls are not seen.
    has_started_it: bool,
}

impl<'a> Trace<'a> {
    /// Traces a process that is seized.
    pub(crate) fn new(tracer: &'a Tracer, leader: Pid) -> Self {
        let inside = HashMap::new();
        let files = HashSet::new();
        Self {
            tracer,
            leader,
            inside,
            files,
            live: false,
            over: false,
            ended: None,
            starts_it: false,
            has_started_it: false,
        }
    }

    /// Traces the host daemon that a seized process starts, unless one runs already.
    pub(crate) fn of_its_daemon(tracer: &'a Tracer, leader: Pid) -> Self {
        Self {
            starts_it: true,
            ..Self::new(tracer, leader)
        }
    }

    /// Traces the process until it is gone, or released.
    pub(crate) fn run(mut self) {
        loop {
            match waitpid(
                Pid::from_raw(-1),
                Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD),
            ) {
                Ok(status) => self.step(status),
                // A signal that nix does not know stops a thread: it is not passed on.
                Err(Errno::EINTR | Errno::EINVAL) => {}
                Err(_) => break,
            }
        }
        if self.ended.is_none() {
            self.tracer.note(self.leader, Held::Released);
        }
    }

    fn step(&mut self, status: WaitStatus) {
        let (pid, signal) = match status {
            WaitStatus::PtraceSyscall(pid) => {
                self.syscall(pid);
                (pid, None)
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                if event == libc::PTRACE_EVENT_EXEC {
                    if self.starts_it && pid != self.leader && !self.is_its_daemon(pid) {
                        let gone = ptrace::detach(pid, None).is_err();
                        self.forget_if(gone, pid);
                        return;
                    }
                    if !self.starts_it {
                        self.begin(pid);
                    }
                }
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::Exited(pid, code) if pid == self.leader => {
                self.has_ended(Some(code));
                return;
            }
            WaitStatus::Signaled(pid, ..) if pid == self.leader => {
                self.has_ended(None);
                return;
            }
            _ => return,
        };
        if self.starts_it || self.has_started_it && !self.is_of_the_victim(pid) {
            let gone = ptrace::cont(pid, signal).is_err();
            self.forget_if(gone, pid);
            return;
        }
        let inside = self
            .inside
            .get(&pid)
            .is_some_and(|call| matches!(call, Some((_, Some(_)))));
        self.over = self.over || self.tracer.seen().over;
        let gone = if self.over && !inside {
            ptrace::detach(pid, signal)
        } else {
            ptrace::syscall(pid, signal)
        };
        self.forget_if(gone.is_err(), pid);
    }

    /// A thread that is gone meanwhile is seen at the next wait.
    fn forget_if(&mut self, gone: bool, pid: Pid) {
        if gone {
            self.inside.remove(&pid);
        }
    }

    /// A program begins in the victim.
    fn begin(&mut self, pid: Pid) {
        self.live = false;
        self.files.clear();
        self.tracer.order().begin(pid);
        self.inside.clear();
        self.inside.insert(pid, None);
    }

    fn has_ended(&mut self, code: Option<i32>) {
        self.ended = Some(code);
        self.tracer.note(self.leader, Held::Ended(code));
    }

    /// Takes a child of the leader for the victim, if it is the host daemon.
    fn is_its_daemon(&mut self, pid: Pid) -> bool {
        let line = process::command_line(pid.as_raw());
        if !line.contains(" serve ") || !line.contains(" --host-of ") {
            return false;
        }
        // What it starts is not traced. It is stopped, so it takes them.
        ptrace::setoptions(pid, options()).unwrap();
        self.leader = pid;
        self.starts_it = false;
        self.has_started_it = true;
        self.tracer.note(pid, Held::Yes);
        true
    }

    fn is_of_the_victim(&self, thread: Pid) -> bool {
        let leader = self.leader;
        std::path::Path::new(&format!("/proc/{leader}/task/{thread}")).exists()
    }

    fn syscall(&mut self, pid: Pid) {
        let Ok(mut regs) = ptrace::getregs(pid) else {
            return;
        };
        if let Some(call) = self.inside.remove(&pid) {
            if let Some((call, act)) = call {
                self.leave(pid, &mut regs, &call, act);
            }
            return;
        }
        let number = regs.orig_rax.cast_signed();
        if number == libc::SYS_prctl && regs.rdi == PR_SET_DUMPABLE {
            // It would be hidden which files its descriptors are: it asks instead whether that is
            // hidden.
            regs.rdi = PR_GET_DUMPABLE;
            set(pid, regs);
        }
        self.live = self.live || number == libc::SYS_sigaltstack;
        let Some((name, sort)) = lookup(number) else {
            self.inside.insert(pid, None);
            return;
        };
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let on_file = self.files.contains(&args[0]);
        let in_parts = on_file && sort == Sort::Write && !is_of_the_kernel(pid, args[0]);
        let call = Call {
            name,
            sort,
            args,
            on_file,
            in_parts,
        };
        if let Some(wrong) = self.tracer.order().enter(pid, &call) {
            self.tracer.seen().wrong.get_or_insert(wrong);
        }
        if name == "close" {
            // Now, and not when it ends: another thread may have opened a file under the same
            // number by then.
            self.files.remove(&args[0]);
        }
        let act = if self.live {
            self.tracer.decide(&call)
        } else {
            None
        };
        match act {
            Some(Act::Kill { both }) => {
                regs.orig_rax = u64::MAX;
                set(pid, regs);
                self.end();
                if both {
                    self.tracer.end_the_other();
                }
            }
            Some(Act::Fail(_)) => {
                regs.orig_rax = u64::MAX;
                set(pid, regs);
            }
            Some(Act::Halve { .. }) => {
                regs.rdx /= 2;
                set(pid, regs);
            }
            None => {}
        }
        self.inside.insert(pid, Some((call, act)));
    }

    /// A call ends.
    fn leave(
        &mut self,
        pid: Pid,
        regs: &mut libc::user_regs_struct,
        call: &Call,
        act: Option<Act>,
    ) {
        match act {
            Some(Act::Fail(errno)) => {
                regs.rax = i64::from(-errno).cast_unsigned();
                set(pid, *regs);
            }
            Some(Act::Halve { kill: true }) => return self.end(),
            Some(Act::Halve { kill: false }) => {
                // The caller sees its own arguments unchanged.
                regs.rdx = call.args[2];
                set(pid, *regs);
            }
            Some(Act::Kill { .. }) => return,
            None => {}
        }
        if let Some(wrong) = self.tracer.order().leave(pid, call, regs.rax.cast_signed()) {
            self.tracer.seen().wrong.get_or_insert(wrong);
        }
        if regs.rax.cast_signed() < 0 {
            return;
        }
        match (call.sort, call.name) {
            (Sort::Sync, _) => self.tracer.synced(pid, call.args[0]),
            (Sort::Open(_) | Sort::Open2, _) => {
                self.files.insert(regs.rax);
            }
            (_, "fcntl") if call.on_file && [0, 1030].contains(&call.args[1]) => {
                self.files.insert(regs.rax);
            }
            (_, "dup") if call.on_file => {
                self.files.insert(regs.rax);
            }
            (Sort::Make | Sort::Accept, _) => {
                self.files.remove(&regs.rax);
            }
            _ => {}
        }
    }

    /// Kills the victim. It is a stopped tracee: its pid is its own.
    fn end(&self) {
        self.tracer.note(self.leader, Held::Dying);
        assert!(kill(self.leader, Signal::SIGKILL).is_ok());
    }
}

/// Tells whether a descriptor is of a file of which the kernel itself is the reader.
fn is_of_the_kernel(pid: Pid, descriptor: u64) -> bool {
    let file = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
    file.is_ok_and(|file| file.starts_with("/sys") || file.starts_with("/proc"))
}

/// Sets the registers of a thread, unless it is gone meanwhile: the next wait tells.
fn set(pid: Pid, regs: libc::user_regs_struct) {
    ptrace::setregs(pid, regs)
        .or_else(|gone| {
            if gone == Errno::ESRCH {
                Ok(())
            } else {
                Err(gone)
            }
        })
        .unwrap();
}
