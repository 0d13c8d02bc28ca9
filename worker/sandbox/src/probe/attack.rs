//! What a confined child tries, to see that it is refused. Prints one JSON line an attempt.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open, test_kill_process,
};
use teamd_shared::environment::Environment;
use teamd_shared::sandbox::{Attack, Promise};

use crate::args::AttackArgs;

/// What keys are called that are planted in the environment of the probe, and must not reach the
/// child; a list of its own, so that it is not only what the parting knows that is looked for.
pub(super) const PLANTED: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_OPENAI_KEY",
    "db_password",
    "Client_Secret",
];

/// Their value.
pub(super) const CANARY: &str = "teamd-probe-canary";

/// Attacks: the whole program behind the hidden subcommand.
pub fn attack_main(args: &AttackArgs) -> ExitCode {
    let tried = if args.closed {
        without_network()
    } else {
        all(args)
    };
    let attacks = tried.into_iter().map(|(promise, what, succeeded)| Attack {
        promise,
        tried: what.to_owned(),
        refused: !succeeded,
    });
    let lines: Vec<String> = attacks
        .filter_map(|attack| serde_json::to_string(&attack).ok())
        .collect();
    match rustix::io::write(io::stdout(), (lines.join("\n") + "\n").as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The promise that an attempt would break, what is tried, and whether it succeeded.
type Attempt = (Promise, &'static str, bool);

fn all(args: &AttackArgs) -> Vec<Attempt> {
    let team = &args.scratch.join(&args.team);
    let pid = args.pid;
    let work = args.scratch.join("work");
    let home = args.scratch.join("home");
    let process = Path::new("/proc").join(pid.to_string());
    let signals = Pid::from_raw(pid).is_some_and(|process| test_kill_process(process).is_ok());
    let planted = std::env::vars_os().any(|(_, value)| value == CANARY);
    let has_key = planted || Environment::of_self().holds_keys();
    let opens_socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).is_ok();
    // In the directory where a command may write in every case.
    let setuid = args.scratch.join("temp/setuid");
    let makes_setuid = makes(&setuid) && sets_mode(&setuid, 0o4700);
    // Of this one, since no process is nearer.
    let writes_process = OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")
        .is_ok();
    let takes_descriptor = pidfd_open(getpid(), PidfdFlags::empty())
        .is_ok_and(|process| pidfd_getfd(process, 0, PidfdGetfdFlags::empty()).is_ok());
    let writes_memory = args.shared.as_deref().is_some_and(appends);
    vec![
        (
            Promise::TeamDirectory,
            "append to a file of the team directory",
            appends(&team.join("journal")),
        ),
        (
            Promise::TeamDirectory,
            "make a file there",
            makes(&team.join("new")),
        ),
        (
            Promise::TeamDirectory,
            "rename it",
            fs::rename(team, work.join("moved")).is_ok(),
        ),
        (
            Promise::Outside,
            "make a file in the home directory",
            makes(&home.join("new")),
        ),
        (
            Promise::Outside,
            "append to one",
            appends(&home.join("notes")),
        ),
        (
            Promise::Outside,
            "append to a file in the shared memory of the machine",
            writes_memory,
        ),
        (Promise::Commands, "make a Unix socket", opens_socket),
        (
            Promise::Agents,
            "write the memory of a process",
            writes_process,
        ),
        (
            Promise::Agents,
            "take a descriptor of a process",
            takes_descriptor,
        ),
        (Promise::Processes, "signal a process", signals),
        (
            Promise::Processes,
            "read its environment",
            reads(&process.join("environ")),
        ),
        (
            Promise::Processes,
            "read its memory's map",
            reads(&process.join("maps")),
        ),
        (Promise::SetId, "make a setuid file", makes_setuid),
        (
            Promise::Pipes,
            "write into a named pipe",
            appends(&home.join("pipe")),
        ),
        (Promise::Keys, "find a key in the environment", has_key),
        (
            Promise::Secrets,
            "read a key in ~/.ssh",
            reads(&home.join(".ssh/key")),
        ),
        (
            Promise::Settings,
            "append to .git/config",
            appends(&work.join(".git/config")),
        ),
        (
            Promise::Metadata,
            "change the mode of a file",
            sets_mode(&home.join("notes"), 0o600),
        ),
    ]
}

fn appends(path: &Path) -> bool {
    OpenOptions::new().append(true).open(path).is_ok()
}

fn makes(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).open(path).is_ok()
}

fn reads(path: &Path) -> bool {
    fs::read(path).is_ok()
}

fn sets_mode(path: &Path, mode: u32) -> bool {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).is_ok()
}

/// An address of a network that is for documents only (RFC 5737): nothing is sent there.
fn without_network() -> Vec<Attempt> {
    let reached = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9"));
    vec![(
        Promise::Network,
        "find a way to another machine",
        reached.is_ok(),
    )]
}
