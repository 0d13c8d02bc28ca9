//! `teamctl -H USER@HOST:DIR COMMAND`: the command on another machine's own team, as `systemctl -H`
//! does it. It is `ssh` that the caller could have typed, run with the rights of the caller alone, so
//! a teammate in its sandbox or an agent that leads gains nothing by it. What a person must decide,
//! the daemon there decides as for any login.
//!
//! The command line is read here first: a mistake costs no connection. What it names is meant for
//! the other machine: no team and no setting of this one counts.

mod line;
mod needs;
mod options;
mod ssh;
mod web;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{ExitCode as ProcessExit, Stdio};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use teamd_client::args::{At, Cli, TeamctlCommand};
use teamd_client::context::block_on;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::over_ssh::OverSsh;
use teamd_client::print::escape;
use teamd_client::print::output::Output;
use teamd_shared::environment::OVER_SSH;

pub(crate) use line::quoted;
use line::{FarLine, far_line};
use needs::{FarTerminalUse, ends_with_reader, files, reads_stdin, terminal_use};
use options::{SshConnection, login};
use ssh::{FarEnd, Signals, Ssh, SshEnds};

pub(crate) use ssh::become_ssh;

/// The exit code of a shell that cannot change to the directory: none of `teamctl`.
const NO_DIRECTORY: i32 = 121;
/// The exit codes of a shell for a program that it cannot run, or does not find.
const CANNOT_RUN: i32 = 126;
const NO_PROGRAM: i32 = 127;
/// The exit code of `ssh` itself, and of a command there that a signal has ended.
const SSH_FAILED: i32 = 255;

/// Gives the screen back that a view there has taken: frame, cursor, mouse, pasting, the screen
/// itself. None of it does anything where it was not taken.
const GIVE_SCREEN_BACK: &str = "\x1b[?2026l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?2004l\x1b[?47l";

/// A command for another machine.
pub(crate) struct FarCommand<'a> {
    at: &'a At,
    out: &'a Output,
    /// Of this program.
    version: &'a str,
    /// The command line without the machine.
    args: Vec<OsString>,
}

/// Runs the command there, if the command line names a machine.
pub(crate) fn run(cli: &Cli, out: &Output, version: &str) -> Option<ProcessExit> {
    let command = FarCommand {
        at: cli.at.as_ref()?,
        out,
        version,
        args: needs::without_machine(std::env::args_os().skip(1)),
    };
    let done = match &cli.command {
        TeamctlCommand::Web(args) => block_on(web::run(&command, args)),
        TeamctlCommand::Port(args) => Err(of_the_other_machine(args.port)),
        _ => block_on(command.run(cli)),
    };
    Some(exit(done, out))
}

/// Asks for the version there: `teamctl -H HOST --version`.
pub(crate) fn version(version: &str) -> Option<ProcessExit> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = needs::asks_for_version(&words)?;
    let out = Output::new(words.iter().any(|word| word == "--json"));
    let command = FarCommand {
        at: &at,
        out: &out,
        version,
        args: vec!["--version".into()],
    };
    let done = block_on(async {
        let until = SshEnds::default();
        let end = command
            .end(SshConnection::Usual, None, false, until)
            .await?;
        command.judge(end)
    });
    Some(exit(done, &out))
}

/// Makes the error of an address there, which leads nowhere here.
fn of_the_other_machine(port: u16) -> CommandError {
    let what = "`teamctl port` prints an address of the machine that it runs on";
    let hint = format!(
        "run it there with `--at {port}`, and forward that: `ssh -L {port}:127.0.0.1:{port} HOST`"
    );
    CommandError::new(ExitCode::Usage, what).hint(hint)
}

fn exit(done: Result<u8, CommandError>, out: &Output) -> ProcessExit {
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            out.error(&error);
            error.code().into()
        }
    }
}

impl FarCommand<'_> {
    async fn run(&self, cli: &Cli) -> Result<u8, CommandError> {
        let is_json = self.out.is_json();
        let terminal = terminal_use(&cli.command, is_json).filter(|it| it.is_possible());
        // What ssh would read is lost for the caller: a loop of a shell, say.
        let is_fed = terminal.is_some() || reads_stdin(&cli.command, &self.args);
        let connection = match &cli.command {
            // The daemon there knows an agent that leads by the process that has run `teamctl mcp`: in
            // a shared connection that is also above what the person runs.
            TeamctlCommand::Mcp(_) | TeamctlCommand::Acp(_) => SshConnection::Own,
            // What is fed has no other sign of the end here than that of its connection.
            _ if is_fed && terminal.is_none() => SshConnection::Own,
            _ => SshConnection::Usual,
        };
        let until = SshEnds {
            has_terminal: terminal.is_some(),
            ends_with_reader: ends_with_reader(&cli.command),
        };
        let end = self.end(connection, terminal, is_fed, until).await?;
        let code = self.judge(end)?;
        self.advise(cli, code);
        Ok(code)
    }

    /// Runs `ssh` to its end.
    async fn end(
        &self,
        connection: SshConnection<'_>,
        terminal: Option<FarTerminalUse>,
        is_fed: bool,
        until: SshEnds,
    ) -> Result<FarEnd, CommandError> {
        let line = self.line(&self.args, terminal.is_some(), is_fed)?;
        let words = options::words(connection, self.at, terminal.is_some(), line);
        let mut signals = Signals::begin()?;
        let before = terminal.and_then(|_| tcgetattr(io::stdin()).ok());
        let ssh = Ssh::start(&words, is_fed, Stdio::inherit())?;
        let end = ssh.until_end(&mut signals, until).await?;
        let was_cut = matches!(
            end,
            FarEnd::Code(SSH_FAILED) | FarEnd::Killed(_) | FarEnd::Told(_)
        );
        if was_cut && let Some(before) = before {
            // Neither a view there nor an ssh that was killed has given the terminal back.
            let screen = if terminal == Some(FarTerminalUse::Screen) {
                GIVE_SCREEN_BACK
            } else {
                ""
            };
            let mut stdout = io::stdout();
            let written = stdout.write_all(screen.as_bytes());
            let restored = tcsetattr(io::stdin(), OptionalActions::Now, &before);
            // A terminal that is gone needs nothing.
            written.and_then(|()| stdout.flush()).ok();
            restored.ok();
        }
        Ok(end)
    }

    /// Writes the command line for the shell there.
    fn line(
        &self,
        args: &[OsString],
        has_terminal: bool,
        is_fed: bool,
    ) -> Result<OsString, CommandError> {
        let told = OverSsh::of_here(self.version, !has_terminal, !is_fed).write();
        let mut variables = vec![(OVER_SSH, OsString::from(told))];
        // These belong to the person's terminal, and ssh takes only TERM along.
        for name in ["NO_COLOR", "COLORTERM"] {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            variables.extend(value.map(|value| (name, value)));
        }
        far_line(&FarLine {
            dir: self.at.dir.as_deref(),
            variables: &variables,
            args,
        })
    }

    /// Says what became of it. The exit code is that of the command there, if it has one.
    fn judge(&self, end: FarEnd) -> Result<u8, CommandError> {
        let machine = &self.at.destination;
        let login = login(self.at);
        let failed = |message: String| CommandError::new(ExitCode::Failed, message);
        let code = match end {
            FarEnd::Told(code) => return Ok(code.number()),
            FarEnd::Killed(signal) => {
                return Err(failed(format!("signal {signal} has ended ssh"))
                    .hint(format!("the command may be done all the same: look at {machine} before you repeat it")));
            }
            FarEnd::Code(code) => code,
        };
        match code {
            NO_DIRECTORY => {
                let dir = self.at.dir.clone().unwrap_or_default();
                let message = format!("{machine} has no directory {}", dir.display());
                Err(CommandError::new(ExitCode::Usage, message)
                    .hint("a DIR behind `-H HOST:` counts from your home there, and /DIR from the root"))
            }
            CANNOT_RUN => Err(failed(format!("teamctl on {machine} cannot be run"))
                .hint(format!("the line above says why; `{login} teamctl --version` tries it"))),
            NO_PROGRAM => Err(failed(format!("there is no teamctl on {machine}")).hint(format!(
                "install teamd there; it is looked for in ~/.local/bin, ~/.cargo/bin, and the PATH of `{login} env`: a shell that is no login shell"
            ))),
            SSH_FAILED => Err(failed(format!("ssh did not reach {machine}, or has lost it"))
                .hint(format!(
                    "`{login} true` shows why, and logs in; if the command had begun, look before you repeat it: it may be done"
                ))),
            code => Ok(u8::try_from(code).unwrap_or(ExitCode::Failed.number())),
        }
    }

    /// Says what may help where the command has failed for a reason that only this end knows.
    fn advise(&self, cli: &Cli, code: u8) {
        let machine = escape::line(&self.at.destination);
        if code == ExitCode::NotRunning.number()
            && self.at.dir.is_none()
            && cli.global.team_dir.is_none()
        {
            self.out.hint(format_args!(
                "the command ran in your home there: `-H {machine}:DIR` names the directory of the project"
            ));
        }
        if code == 0 {
            return;
        }
        let here = files(&cli.command).into_iter();
        if let Some(file) = here.into_iter().find(|file| file.is_file()) {
            let file = file.to_string_lossy();
            self.out.hint(format_args!(
                "paths are those of {machine}: `- < {}` sends the file of this machine",
                escape::line(&file)
            ));
        }
    }
}

impl FarTerminalUse {
    /// Tells whether there is a terminal for it here.
    fn is_possible(self) -> bool {
        let is_both = io::stdin().is_terminal() && io::stdout().is_terminal();
        // A question stands on stderr, which is one with stdout at a terminal there.
        is_both && (self == Self::Screen || io::stderr().is_terminal())
    }
}
