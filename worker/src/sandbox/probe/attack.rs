//! What a confined child tries, to see that it is refused. Prints one JSON line an attempt.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, test_kill_process};
use teamd_shared::environment::Environment;
use teamd_shared::sandbox::{Attack, Promise};

use crate::args::AttackArgs;

/// What keys are called that are planted in the environment of the probe, and must not reach the child; a list of its own,
/// so that it is not only what the parting knows that is looked for.
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
pub(crate) fn attack_main(args: &AttackArgs) -> ExitCode {
    let attacks = if args.closed { without_network() } else { all(args) };
    let lines: Vec<String> = attacks.iter().filter_map(|attack| serde_json::to_string(attack).ok()).collect();
    match rustix::io::write(io::stdout(), (lines.join("\n") + "\n").as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn tried(promise: Promise, what: &str, refused: bool) -> Attack {
    Attack { promise, tried: what.to_owned(), refused }
}

fn all(args: &AttackArgs) -> Vec<Attack> {
    let (scratch, team, pid) = (&args.scratch, &args.scratch.join(&args.team), args.pid);
    let shared = args.shared.as_deref();
    let at = |name: &str| scratch.join(name);
    let appends = |path: &Path| OpenOptions::new().append(true).open(path).is_ok();
    let makes = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path).is_ok();
    let of_process = |file: &str| fs::read(format!("/proc/{pid}/{file}")).is_ok();
    let process = Pid::from_raw(pid);
    let planted = std::env::vars_os().any(|(_, value)| value == CANARY);
    let keys = planted || !Environment::of_self().secrets.is_empty();
    let mode = PermissionsExt::from_mode(0o600);
    let settings = at("work/.git/config");
    vec![
        tried(
            Promise::TeamDirectory,
            "append to a file of the team directory",
            !appends(&team.join("journal")),
        ),
        tried(Promise::TeamDirectory, "make a file there", !makes(&team.join("new"))),
        tried(Promise::TeamDirectory, "rename it", fs::rename(team, at("work/moved")).is_err()),
        tried(Promise::Outside, "make a file in the home directory", !makes(&at("home/new"))),
        tried(Promise::Outside, "append to one", !appends(&at("home/notes"))),
        tried(
            Promise::Outside,
            "append to a file in the shared memory of the machine",
            !shared.is_some_and(appends),
        ),
        tried(
            Promise::Commands,
            "make a Unix socket",
            socket(AddressFamily::UNIX, SocketType::STREAM, None).is_err(),
        ),
        tried(
            Promise::Processes,
            "signal a process",
            process.is_none_or(|it| test_kill_process(it).is_err()),
        ),
        tried(Promise::Processes, "read its environment", !of_process("environ")),
        tried(Promise::Processes, "read its memory's map", !of_process("maps")),
        tried(Promise::SetId, "make a setuid file", !makes_setuid(&at("temp/setuid"))),
        tried(Promise::Pipes, "write into a named pipe", !appends(&at("home/pipe"))),
        tried(Promise::Keys, "find a key in the environment", !keys),
        tried(Promise::Secrets, "read a key in ~/.ssh", fs::read(at("home/.ssh/key")).is_err()),
        tried(Promise::Settings, "append to .git/config", !appends(&settings)),
        tried(
            Promise::Metadata,
            "change the mode of a file",
            fs::set_permissions(at("home/notes"), mode).is_err(),
        ),
    ]
}

/// Tries it in the directory where a command may write in every case.
fn makes_setuid(path: &Path) -> bool {
    let mode = PermissionsExt::from_mode(0o4700);
    OpenOptions::new().write(true).create_new(true).open(path).is_ok()
        && fs::set_permissions(path, mode).is_ok()
}

/// An address of a network that is for documents only (RFC 5737): nothing is sent there.
fn without_network() -> Vec<Attack> {
    let reached = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9"));
    vec![tried(Promise::Network, "find a way to another machine", reached.is_err())]
}
