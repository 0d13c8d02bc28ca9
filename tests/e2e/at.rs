//! `teamctl -H`: what `ssh` is given, and what is made of its end. The `ssh` here is a stub that runs
//! the line in a shell of this machine, as `sshd` does; `real` has a real one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::cgroup::note;
use crate::support::process::{descendants, stat};
use crate::support::sshd::make_program;
use crate::support::terminal::Terminal;
use crate::support::{Run, Running, Team, is_alive, poll_until, signal};

mod real;

/// Writes down what it was given, and runs the line in a shell, which finds another `teamctl`.
const STUB: &str = r#"#!/bin/sh
printf '%s\n' "$@" > "$FAR/given"
for line; do :; done
cd "$FAR/home" || exit 1
PATH=$FAR/bin:$FAR_PATH HOME=$FAR/home exec "${FAR_SHELL:-sh}" -c "$line"
"#;

/// Writes down its arguments, with a NUL behind each, and what it was told.
const FAR_TEAMCTL: &str = r#"#!/bin/sh
printf '%s\0' "$@" > "$FAR/args"
printf '%s' "$TEAMCTL_OVER_SSH" > "$FAR/told"
pwd > "$FAR/pwd"
eval "$FAR_DOES"
"#;

/// A machine that the stub reaches.
struct Far {
    here: Team,
    folder: PathBuf,
}

impl Far {
    fn new() -> Self {
        Self::of(Team::new())
    }

    fn of(here: Team) -> Self {
        let folder = here.temp().join("far");
        for name in ["near", "bin", "home/web", "home/-x y"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        make_program(&folder.join("near/ssh"), STUB);
        make_program(&folder.join("bin/teamctl"), FAR_TEAMCTL);
        let path = std::env::var("PATH").unwrap();
        let near = folder.join("near");
        let here = here
            .with("FAR", folder.to_str().unwrap())
            .with("FAR_PATH", &path)
            .with("PATH", &format!("{}:{path}", near.display()));
        Self { here, folder }
    }

    fn with(self, name: &str, value: &str) -> Self {
        Self {
            here: self.here.with(name, value),
            ..self
        }
    }

    fn teamctl(&self, args: &[&str]) -> Run {
        self.here.teamctl(args)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(name)).unwrap_or_default()
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    /// The words that `ssh` was given.
    fn given(&self) -> Vec<String> {
        self.text("given").lines().map(str::to_owned).collect()
    }

    /// The arguments that `teamctl` there was given.
    fn args(&self) -> Vec<OsString> {
        let bytes = self.bytes("args");
        let args = bytes.split_inclusive(|byte| *byte == 0);
        args.map(|arg| OsString::from_vec(arg[..arg.len() - 1].to_vec()))
            .collect()
    }

    fn was_reached(&self) -> bool {
        self.folder.join("given").exists()
    }
}

#[test]
fn the_words_for_the_other_machine_arrive_as_they_are_in_each_shell() {
    let long = "x".repeat(100_000);
    let texts = [
        "plain",
        "it's \"both\" `ls` $(touch pwned) $HOME ${HOME} ~ * ? [a] {a,b} ; & | < > # ! % ^ = ( )",
        "a\\",
        "\\\\",
        "\\'",
        "'; touch pwned; '",
        "\\'; touch pwned; \\'",
        "!x!!",
        "--looks-like-one",
        "-oProxyCommand=touch pwned",
        "\u{1b}[2J\t\u{202e}é",
        "=ls",
        &long,
    ];
    for shell in ["sh", "bash", "dash", "zsh", "fish", "tcsh"] {
        let is_here = std::process::Command::new(shell)
            .args(["-c", "true"])
            .status();
        if is_here.is_err() {
            note(&format!(
                "skipped in {shell}: it is not here (apt-get install {shell})"
            ));
            continue;
        }
        let far = Far::new().with("FAR_SHELL", shell);
        for text in texts {
            far.teamctl(&["-H", "box", "send", "alice", text]).ok();
            assert_eq!(far.args(), ["send", "alice", text], "{shell}");
        }
        // tcsh reads no string over two lines, and does nothing then.
        if shell != "tcsh" {
            far.teamctl(&["-H", "box:web", "send", "alice", "one\n'two'\n", "--queue"])
                .ok();
            assert_eq!(
                far.args(),
                ["send", "alice", "one\n'two'\n", "--queue"],
                "{shell}"
            );
        }
        far.teamctl(&["-H", "box:-x y", "--json", "task", "add", ""])
            .ok();
        assert_eq!(far.args(), ["--json", "task", "add", ""], "{shell}");
        assert!(far.text("pwd").ends_with("/home/-x y\n"), "{shell}");
        let dir = OsString::from_vec(b"a\xff'b".to_vec());
        let words = ["-H", "box", "--team-dir"].map(OsStr::new);
        let words = words
            .into_iter()
            .chain([dir.as_os_str(), OsStr::new("status")]);
        far.here.teamctl(words).ok();
        assert_eq!(far.args()[1].as_bytes(), b"a\xff'b", "{shell}");
        let made = std::process::Command::new("find")
            .arg(&far.folder)
            .args(["-name", "pwned"])
            .output();
        assert_eq!(
            String::from_utf8_lossy(&made.unwrap().stdout),
            "",
            "{shell}"
        );
        far.teamctl(&["-H", "box:gone", "status"]).exits(2);
    }
}

#[test]
fn ssh_gets_the_machine_as_no_option_and_none_of_what_a_login_does_beside() {
    let far = Far::new();
    far.teamctl(&["-H", "u@box:web", "status"]).ok();
    let given = far.given();
    let end = given.len() - 3;
    assert_eq!(given[end..end + 2], ["--", "u@box"], "{given:?}");
    assert!(
        given[end + 2].starts_with("cd ./web && exec env "),
        "{given:?}"
    );
    assert_eq!(given[0], "-T");
    for option in [
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
    ] {
        let at = given.iter().position(|word| word == option);
        assert_eq!(given[at.unwrap() - 1], "-o", "{given:?}");
    }
    assert!(
        !given
            .iter()
            .any(|word| word.contains("Control") || word.contains("BatchMode"))
    );
    far.teamctl(&["-H", "ssh://u@box:2222/~/web", "mcp", "list"])
        .ok();
    let given = far.given();
    let own = ["ControlMaster=no", "-p", "2222", "none"];
    assert!(
        own.iter().all(|own| given.iter().any(|word| word == own)),
        "{given:?}"
    );
    assert!(far.text("pwd").ends_with("/home/web\n"));
}

#[test]
fn a_name_that_is_no_machine_is_refused_and_ssh_is_not_run() {
    let far = Far::new();
    for name in [
        "-oProxyCommand=touch pwned",
        "-l root",
        "u@-x",
        "a b",
        "box;id",
        "$(touch pwned)",
        "`id`",
        "'box'",
        "\u{1b}[2Jbox",
        "box\nHost",
        "::1",
        "",
        "@box",
        "ssh://box:port",
    ] {
        let at = format!("--at={name}");
        for words in [vec!["-H", name, "status"], vec![&at, "status"]] {
            let run = far.teamctl(&words).exits(2);
            assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
            assert!(run.stderr.contains("hint: "), "{run:?}");
        }
    }
    for words in [
        &["status", "-H", "box"][..],
        &["send", "alice", "hi", "--at", "box"],
    ] {
        let run = far.teamctl(words).exits(2);
        assert!(run.stderr.contains("stands before the command"), "{run:?}");
    }
    let long = "x".repeat(131_000);
    far.teamctl(&["-H", "box", "send", "alice", &long]).exits(2);
    far.teamctl(&["-H", "box", "no-such-command"]).exits(2);
    far.teamctl(&["-H", "box", "send", "--help"]).ok();
    assert!(!far.was_reached());
}

#[test]
fn the_exit_code_is_that_of_the_command_there() {
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 130, 143] {
        let far = Far::new().with("FAR_DOES", &format!("exit {code}"));
        let run = far.teamctl(&["-H", "box:web", "status"]).exits(code);
        assert_eq!(run.stderr, "", "{code}");
    }
    let lost = Far::new().with("FAR_DOES", "exit 6");
    let run = lost.teamctl(&["-H", "box", "status"]).exits(6);
    assert!(run.stderr.contains("`-H box:DIR`"), "{run:?}");
    let killed = Far::new().with("FAR_DOES", "kill -9 $$");
    let run = killed.teamctl(&["-H", "box", "status"]).exits(1);
    assert!(run.stderr.contains("signal 9"), "{run:?}");
}

#[test]
fn what_ssh_itself_says_gets_the_next_step() {
    let far = Far::new();
    let status = &["-H", "u@box:web", "status"];
    std::fs::remove_file(far.folder.join("bin/teamctl")).unwrap();
    let run = far.teamctl(status).exits(1);
    for said in [
        "error: there is no teamctl on u@box",
        "~/.local/bin",
        "`ssh u@box env`",
    ] {
        assert!(run.stderr.contains(said), "{run:?}");
    }
    // As `cargo install` puts it there.
    let installed = far.folder.join("home/.cargo/bin");
    std::fs::create_dir_all(&installed).unwrap();
    make_program(&installed.join("teamctl"), FAR_TEAMCTL);
    far.teamctl(status).ok();
    make_program(
        &far.folder.join("near/ssh"),
        "#!/bin/sh\necho 'ssh: no route' >&2\nexit 255\n",
    );
    let run = far.teamctl(&["-H", "ssh://u@box:22", "status"]).exits(1);
    for said in [
        "ssh: no route",
        "did not reach u@box",
        "`ssh -p 22 u@box true`",
    ] {
        assert!(run.stderr.contains(said), "{run:?}");
    }
    let run = far.teamctl(&["-H", "box", "--json", "status"]).exits(1);
    let last = run.stderr.lines().last().unwrap();
    let error: Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "failed");
    std::fs::remove_file(far.folder.join("near/ssh")).unwrap();
    let no_ssh = far.here.with("PATH", "/nonexistent");
    let run = no_ssh.teamctl(["-H", "box", "status"]).exits(1);
    assert!(run.stderr.contains("openssh-client"), "{run:?}");
}

#[test]
fn nothing_of_this_machine_counts() {
    let far = Far::new()
        .with("TEAM_DIR", "/not/there")
        .with("TEAM_MAX_TURNS", "many");
    far.here.write("team.toml", "no = toml = at all");
    far.teamctl(&["-H", "box", "status"]).ok();
    assert_eq!(far.args(), ["status"]);
    far.teamctl(&["--team-dir=proj/.team", "-Hbox", "ls"]).ok();
    assert_eq!(far.args(), ["--team-dir=proj/.team", "ls"]);
    far.teamctl(&["-H", "box", "--version"]).ok();
    assert_eq!(far.args(), ["--version"]);
    assert!(!far.here.path("").exists());
}

#[test]
fn a_file_of_this_machine_is_sent_by_stdin_and_others_read_none() {
    let far = Far::new().with("FAR_DOES", "timeout 2 cat > \"$FAR/stdin\"; exit 1");
    far.here.write("plan.md", "- [ ] one\n");
    let run = far
        .teamctl(&["-H", "box", "task", "import", "plan.md"])
        .exits(1);
    assert!(
        run.stderr.contains("paths are those of box: `- < plan.md`"),
        "{run:?}"
    );
    for (args, is_read) in [
        (&["task", "import", "-"][..], true),
        (&["send", "alice", "-"], true),
        (&["task", "add", "x", "--description=-"], true),
        (&["chat"], true),
        (&["mcp"], true),
        (&["status"], false),
        (&["send", "alice", "hi"], false),
    ] {
        let args = [&["-H", "box"], args].concat();
        far.here.teamctl_with(&args, "what is fed").exits(1);
        let fed = if is_read { "what is fed" } else { "" };
        assert_eq!(far.text("stdin"), fed, "{args:?}");
    }
}

#[test]
fn a_terminal_is_asked_for_where_the_command_uses_one() {
    let far = Far::new();
    for (args, option) in [
        (&["top"][..], "-t"),
        (&["chat"], "-t"),
        (&["attach", "alice"], "-t"),
        (&["review", "1"], "-t"),
        (&["status", "--watch"], "-t"),
        (&["spawn", "alice"], "-t"),
        (&["approve", "alice"], "-t"),
        (&["status"], "-T"),
        (&["wait", "alice"], "-T"),
        (&["mcp"], "-T"),
        (&["--json", "chat"], "-T"),
    ] {
        let args = [&["-H", "box"], args].concat();
        let terminal = Terminal::teamctl_at(&far.here, &args, (90, 20));
        assert_eq!(terminal.finish(), Some(0), "{args:?}");
        assert_eq!(far.given()[0], option, "{args:?}");
        let told = far.text("told");
        let size = ",stdout=90c,stderr=90c,pipes";
        assert_eq!(told.contains(size), option == "-T", "{args:?}: {told}");
        // In a pipe, none has one.
        far.here.teamctl(&args).ok();
        assert_eq!(far.given()[0], "-T", "{args:?}");
        assert!(!far.text("told").contains("stdout="), "{args:?}");
    }
    let plain = far.with("NO_COLOR", "1");
    Terminal::teamctl_at(&plain.here, &["-H", "box", "status"], (90, 20)).finish();
    assert!(
        plain
            .text("told")
            .ends_with(",stdout=90,stderr=90,pipes,lifeline")
    );
    assert!(plain.given().last().unwrap().contains(" NO_COLOR=1 "));
}

/// The pid of the `ssh` of a command.
fn ssh_of(pid: i32, far: &Far) -> i32 {
    assert!(poll_until(&mut || far.folder.join("args").exists()));
    descendants(pid)[0]
}

#[test]
fn ssh_ends_with_the_command_however_that_ends() {
    for (which, code) in [
        (Signal::SIGTERM, Some(143)),
        (Signal::SIGINT, Some(130)),
        (Signal::SIGHUP, Some(130)),
        (Signal::SIGKILL, None),
    ] {
        let far = Far::new().with("FAR_DOES", "exec sleep 600");
        let running = far.here.start_teamctl(["-H", "box", "wait", "alice"]);
        let ssh = ssh_of(running.pid(), &far);
        running.signal(which);
        let run = running.finish();
        assert_eq!(run.code, code, "{which}: {run:?}");
        assert_eq!(run.stderr, "", "{which}");
        assert!(poll_until(&mut || !is_alive(ssh)), "{which}");
    }
}

/// Ctrl-C at a terminal goes to both at once, and `ssh` ends with its own code.
#[test]
fn ctrl_c_is_no_error_of_ssh() {
    let far = Far::new();
    make_program(
        &far.folder.join("near/ssh"),
        "#!/bin/sh\ntrap 'exit 255' INT\n: > \"$FAR/args\"\nwhile :; do sleep 0.05; done\n",
    );
    let running = far.here.start_teamctl(["-H", "box", "wait", "alice"]);
    ssh_of(running.pid(), &far);
    nix::sys::signal::killpg(nix::unistd::Pid::from_raw(running.pid()), Signal::SIGINT).unwrap();
    let run = running.finish().exits(130);
    assert_eq!(run.stderr, "");
}

#[test]
fn a_command_that_follows_ends_with_its_reader() {
    let far = Far::new().with("FAR_DOES", "exec sleep 600");
    let mut running = far.here.start_teamctl(["-H", "box", "events", "--follow"]);
    let ssh = ssh_of(running.pid(), &far);
    drop(running.stdout());
    running.finish().ok();
    assert!(!is_alive(ssh));
}

/// `~^Z`: a shell would wait for the command, and not for `ssh`.
#[test]
fn at_a_terminal_the_command_stops_with_ssh_and_goes_on_with_it() {
    let far = Far::new();
    make_program(
        &far.folder.join("near/ssh"),
        "#!/bin/sh\n: > \"$FAR/args\"\nkill -STOP $$\necho again\n",
    );
    let terminal = Terminal::teamctl(&far.here, &["-H", "box", "top"]);
    let state = |pid| stat(pid).map(|fields| fields[0].clone());
    assert!(poll_until(
        &mut || state(terminal.pid()).as_deref() == Some("T")
    ));
    signal(terminal.pid(), Signal::SIGCONT);
    terminal.until("again");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn the_terminal_is_given_back_where_neither_ssh_nor_the_view_has_done_it() {
    let far = Far::new().with(
        "FAR_DOES",
        "stty raw -echo; printf '\\033[?1049h\\033[?1000h\\033[?2004hview'; kill -9 $$",
    );
    let terminal = Terminal::teamctl(&far.here, &["-H", "box", "top"]);
    terminal.until("signal 9 has ended ssh");
    terminal.until_screen("the usual screen", |screen| screen.contains("error: "));
    assert!(terminal.shown().contains("\u{1b}[?1000l"));
    assert_eq!(terminal.finish(), Some(1));
}

#[test]
fn nothing_is_completed_from_this_machine_or_by_ssh() {
    let far = Far::of(Team::started());
    far.teamctl(&["spawn", "alice", "--model", "script"]).ok();
    for machine in [&["-H", "box"][..], &["-Hbox"], &["--at=box"]] {
        let words = [&["--", "teamctl"], machine, &["send", "a"]].concat();
        let mut command = far.here.command(env!("CARGO_BIN_EXE_teamctl"), &words);
        command
            .env("COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", (words.len() - 2).to_string())
            .env("_CLAP_IFS", "\n");
        let run = Running::start(command).finish().ok();
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    }
    assert!(!far.was_reached());
}

#[test]
fn another_version_there_says_which() {
    let told = ["TEAMCTL_OVER_SSH", "version=9.9.9,pipes"];
    let team = Team::new().with(told[0], told[1]);
    let run = team.teamctl(["status", "--no-such-flag"]).exits(2);
    assert!(run.stderr.contains("the command is of 9.9.9"), "{run:?}");
}

#[test]
fn a_page_that_does_not_come_is_an_error_and_a_flood_stops_nothing() {
    let url = "http://127.0.0.1:4000/#abc";
    for (does, said) in [
        ("exit 1", ""),
        ("printf '\\033[2Jx\\n'; exit 7", ""),
        // Its address is found, and no port is forwarded.
        (
            &format!("echo {url}; yes | head -c 10000000; sleep 600")[..],
            "does not forward port",
        ),
    ] {
        let far = Far::new().with("FAR_DOES", does);
        let run = far.teamctl(&["-H", "box", "web"]).run_failed();
        assert!(
            run.stderr.contains(said) && run.stdout.is_empty(),
            "{run:?}"
        );
        assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
        let given = far.given();
        assert!(
            !given.iter().any(|word| word == "-L") || !said.is_empty(),
            "{given:?}"
        );
        let left = std::fs::read_dir(far.here.temp()).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.filter(|name| name != "far").collect();
        assert!(names.is_empty(), "{names:?}");
    }
}
