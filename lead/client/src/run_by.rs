//! The process that runs this server: the agent, or the editor, that reaches the team by it.

use std::io;

use rustix::process::{Pid, getpgid, getpgrp, getppid};
use teamd_shared::process::{Identity, Stat};

/// Shells that a client starts a server by.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "busybox"];

/// The program that takes over what has lost its parent, and that starts everything of a user.
const INIT: &str = "systemd";

/// Returns it: the parent, or what is above it if that is a shell that only wraps this server. A
/// server without a parent of its own is run by itself: what an init starts is not one program.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn process() -> io::Result<Identity> {
    let mut above = getppid();
    while let Some(pid) = above {
        let number = number(pid);
        if !wraps(pid, number) {
            break;
        }
        let parent = Stat::of(number)?.parent;
        above = i32::try_from(parent).ok().and_then(Pid::from_raw);
    }
    match above.map(number) {
        Some(pid) if pid > 1 && program(pid) != INIT => Identity::of(pid),
        _ => Identity::of_self(),
    }
}

/// Tells whether a process is a shell that waits for this server. One at which a person types gives
/// each command a process group of its own.
fn wraps(pid: Pid, number: u32) -> bool {
    let is_of_group = getpgid(Some(pid)).is_ok_and(|group| group == getpgrp());
    is_of_group && SHELLS.contains(&program(number).as_str())
}

fn program(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
