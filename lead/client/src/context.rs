//! What every command starts from: where to print, which team, which settings. And the way from
//! `main` into a command and out again, the same for both programs.

use std::cell::Cell;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, ValueHint};
use teamd_shared::process::set_signals;
use teamd_shared::register::Register;
use teamd_shared::settings::Settings;
use teamd_shared::spawn::Widening;
use teamd_shared::suggest;
use teamd_shared::team_dir::{DirError, Located, TeamDir, locate};
use teamd_shared::team_file::{TeamFile, TeamFileError};
use teamd_shared::variable::SettingError;
use tokio::runtime::Runtime;

use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::over_ssh::OverSsh;
use crate::print::escape;
use crate::print::output::Output;
use crate::print::render::count;
use crate::registered;

/// The keys that can have long lists.
const LISTS: [&str; 3] = ["sandbox.writable", "sandbox.visible", "sandbox.env"];

/// The heading of the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// The options of every command of both programs.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Team directory [default: the nearest .team here or above, else ./.team]
    #[arg(
        long,
        value_name = "DIR",
        global = true,
        env = "TEAM_DIR",
        hide_env_values = true
    )]
    #[arg(value_hint = ValueHint::DirPath, help_heading = EVERYWHERE)]
    pub team_dir: Option<OsString>,

    /// Print JSON: one object, or one per line with --follow; errors as JSON on stderr
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
}

/// What a command starts from.
pub struct Context {
    /// Where it prints.
    pub out: Output,
    /// The team directory, whether it is there or not.
    pub path: PathBuf,
    /// The settings of this process: without those of `team.toml`, where that has a mistake.
    pub settings: Settings,
    /// `team.toml`.
    pub file: Result<TeamFile, TeamFileError>,
    /// Which team directories are used.
    pub register: Register,
    /// Team directories nearer than that which are not.
    pub(crate) passed_over: Vec<PathBuf>,
    /// What was needed to find the team, and is left for the command.
    pub(crate) kept: Kept,
}

/// What a command need not make again.
#[derive(Default)]
pub(crate) struct Kept {
    /// The team directory, open and registered.
    dir: Cell<Option<TeamDir>>,
    /// The event loop in which the signals were set.
    runtime: Cell<Option<Runtime>>,
}

impl Context {
    /// Makes a context of the same team that prints elsewhere, perhaps in another thread. It reads
    /// `team.toml` again: a view runs for long.
    pub fn elsewhere(&self) -> impl FnOnce(Output) -> Self + Send + 'static {
        let Self {
            path,
            settings,
            register,
            passed_over,
            ..
        } = self;
        let path = path.clone();
        let settings = settings.clone();
        let register = register.clone();
        let passed_over = passed_over.clone();
        |out| {
            let file = team_file_of(&path);
            // A mistake of the environment was an error when the view began.
            let settings = settings_by(&file).unwrap_or(settings);
            Self {
                out,
                path,
                settings,
                file,
                register,
                passed_over,
                kept: Kept::default(),
            }
        }
    }

    /// Makes a limit on the size of files an error like others, instead of the end of the command,
    /// and lets the command see how the programs end that it starts.
    pub fn set_signals(&self) {
        if let Err(error) = self.try_set_signals() {
            self.out.note(format_args!(
                "a limit on the size of files ends this command without a word, and how a program \
                 ends may not be seen: {error}"
            ));
        }
    }

    fn try_set_signals(&self) -> std::io::Result<()> {
        let runtime = new_runtime()?;
        let inside = runtime.enter();
        set_signals()?;
        drop(inside);
        self.kept.runtime.set(Some(runtime));
        Ok(())
    }

    /// As [`block_on`], in the event loop of the command.
    ///
    /// # Errors
    /// As [`block_on`].
    pub fn block_on<T>(
        &self,
        command: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let Some(runtime) = self.kept.runtime.take() else {
            return block_on(command);
        };
        let result = runtime.block_on(command);
        self.kept.runtime.set(Some(runtime));
        result
    }

    /// Opens the team directory.
    ///
    /// # Errors
    /// [`ExitCode::NotRunning`] if there is none that is registered, else as [`TeamDir::open`].
    pub fn dir(&self) -> Result<TeamDir, CommandError> {
        if let Some(dir) = self.kept.dir.take() {
            return Ok(dir);
        }
        let dir = TeamDir::open(&self.path)?;
        registered::check(&self.register, &dir, ExitCode::NotRunning)?;
        Ok(dir)
    }

    /// Tells whether nothing is where the team directory would be.
    pub fn is_missing(&self) -> bool {
        matches!(TeamDir::open(&self.path), Err(DirError::Missing(_)))
    }

    /// Says which team directories were passed over.
    pub fn note_passed_over(&self) {
        for path in &self.passed_over {
            self.out.note(format_args!(
                "{} is not used: it was not created by `teamd start` of this user (using the team of {})",
                escape::line(&path.to_string_lossy()),
                escape::line(&self.path.to_string_lossy())
            ));
        }
    }

    /// Returns `team.toml`, for a command that must not continue without it.
    ///
    /// # Errors
    /// [`ExitCode::Usage`] if it cannot be read, or has a mistake.
    pub fn team_file(&self) -> Result<&TeamFile, CommandError> {
        Ok(self.file.as_ref().map_err(Clone::clone)?)
    }

    /// Returns `team.toml`, for a command that starts something by it.
    ///
    /// # Errors
    /// As [`Context::team_file`], or [`ExitCode::Rejected`] if it has keys that widen and that the
    /// user has not trusted.
    pub fn trusted_file(&self) -> Result<&TeamFile, CommandError> {
        let keys = self.untrusted()?;
        if keys.is_empty() {
            return self.team_file();
        }
        let path = self.team_file()?.path.display();
        let message = format!("{path} widens what the team may do, and you have not trusted it");
        Err(CommandError::new(ExitCode::Rejected, message)
            .candidates(keys)
            .hint("read it; `teamd trust` trusts these keys with these values"))
    }

    /// As [`Context::trusted_file`], and asks the person at the terminal first, if there is one.
    ///
    /// # Errors
    /// As there, or if what is trusted cannot be written down.
    pub fn ask_for_trust(&self) -> Result<(), CommandError> {
        self.name_what_has_gone()?;
        let keys = self.untrusted()?;
        if !keys.is_empty() && self.out.can_ask() {
            let path = self.team_file()?.path.display().to_string();
            self.out.note(format_args!(
                "{} widens what the team may do:",
                escape::line(&path)
            ));
            // What weighs most is next to the question, however long a list is.
            let (lists, single): (Vec<_>, Vec<_>) = keys
                .iter()
                .partition(|key| LISTS.iter().any(|list| key.contains(list)));
            let shown = lists.into_iter().chain(single);
            for key in shown {
                self.out.aside(format_args!("  {}", escape::line(key)));
            }
            let these = if keys.len() == 1 {
                "this".to_owned()
            } else {
                format!("these {}", keys.len())
            };
            if self.out.ask(&format!("Trust {these}?"))? {
                self.widening()?.trust(self.register.state())?;
            }
        }
        self.trusted_file().map(drop)
    }

    /// Returns the keys of `team.toml` that widen.
    ///
    /// # Errors
    /// As [`Context::team_file`], or if the state directory cannot be read.
    pub fn widening(&self) -> Result<Widening, CommandError> {
        Ok(Widening::of(self.team_file()?)?)
    }

    /// Names the keys that narrowed the team when the user trusted the file, and no longer do: a
    /// tool may have taken them out.
    fn name_what_has_gone(&self) -> Result<(), CommandError> {
        let mut path = self.team_file()?.path.clone();
        let mut widening = self.widening()?;
        if path.as_os_str().is_empty() {
            path = TeamFile::locate(&self.path, |name| std::env::var(name).ok());
            // Where not even its directory is there, nothing was trusted.
            let Ok(missing) = Widening::of_missing(&path) else {
                return Ok(());
            };
            widening = missing;
        }
        let gone = widening.gone(self.register.state())?;
        if gone.is_empty() {
            return Ok(());
        }
        let path = path.display().to_string();
        let keys: Vec<_> = gone.iter().map(|key| escape::line(key)).collect();
        self.out.note(format_args!(
            "{} narrows the team less than when you trusted it: {}",
            escape::line(&path),
            keys.join(", ")
        ));
        self.out
            .hint("read the file; `teamd trust` takes it as it is now");
        Ok(())
    }

    fn untrusted(&self) -> Result<Vec<String>, CommandError> {
        Ok(self.widening()?.untrusted(self.register.state())?)
    }

    /// Warns about what in `team.toml` does not count, for a command that continues without it.
    pub fn warn_of_team_file(&self) {
        let Err(error) = self.trusted_file() else {
            return;
        };
        let keys = error.choices().len();
        if keys > 0 {
            // In one line: it precedes each command until the person has decided.
            let keys = count(keys, "key");
            return self.out.note(format_args!(
                "team.toml is not trusted: {keys} without effect; see `teamd trust`"
            ));
        }
        let why = escape::line(error.message());
        self.out.note(format_args!(
            "the settings of team.toml do not count: {why}"
        ));
        if let Some(hint) = error.next_step() {
            self.out.hint(hint);
        }
    }
}

/// Runs a program from its command line to its exit code. `first_help` lays out the help of the
/// program itself; `elsewhere` does what concerns no team of this machine.
pub fn run<P: Parser>(
    version: &'static str,
    first_help: fn(clap::Command) -> clap::Command,
    global: impl Fn(&P) -> Global,
    elsewhere: impl FnOnce(&P, &Output) -> Option<std::process::ExitCode>,
    command: impl FnOnce(P, &Context) -> CommandResult,
) -> std::process::ExitCode {
    let mut parsed = parse::<P>(P::command().version(version));
    // Laying it out takes longer than parsing, so it is done only for those who read it.
    if parsed.as_ref().is_err_and(|error| is_help(error.kind())) {
        parsed = parse(first_help(P::command().version(version)));
    }
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error, version).into(),
    };
    let global = global(&parsed);
    let out = Output::new(global.json);
    if let Some(code) = elsewhere(&parsed, &out) {
        return code;
    }
    match find(&global) {
        Ok(found) => {
            let context = found(out);
            end(command(parsed, &context), &context.out).into()
        }
        Err(error) => end(Err(error), &out).into(),
    }
}

fn parse<P: Parser>(command: clap::Command) -> Result<P, clap::Error> {
    P::from_arg_matches_mut(&mut command.try_get_matches()?)
}

fn is_help(kind: ErrorKind) -> bool {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand};
    matches!(kind, DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Runs what waits for sockets, timers or Ctrl-C.
///
/// # Errors
/// As what is run, or [`ExitCode::Failed`] if the system has nothing left to wait with.
pub fn block_on<T>(
    command: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = new_runtime().map_err(|error| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot start the event loop: {error}"),
        )
    })?;
    runtime.block_on(command)
}

fn new_runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Finds the team directory and the settings.
///
/// # Errors
/// If the current directory is gone, or a setting of the environment is wrong.
pub fn find(global: &Global) -> Result<impl FnOnce(Output) -> Context + use<>, CommandError> {
    let current_dir = std::env::current_dir().map_err(|error| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot find the current directory: {error}"),
        )
        .hint("change to a directory that exists")
    })?;
    // An empty variable counts as unset.
    let flag = global
        .team_dir
        .as_deref()
        .filter(|path| !path.is_empty())
        .map(Path::new);
    let register = registered::register()?;
    let registered = Cell::new(None);
    let Located { path, passed_over } = locate(flag, &current_dir, |path| {
        let dir = TeamDir::open(path);
        let dir = dir.ok().filter(|dir| register.knows(dir).unwrap_or(false));
        let is_registered = dir.is_some();
        registered.set(dir);
        is_registered
    });
    let file = team_file_of(&current_dir.join(&path));
    let settings = settings_by(&file)?;
    // Without `.` in between: messages show it.
    let path = path.components().collect();
    Ok(|out| Context {
        out,
        path,
        settings,
        file,
        register,
        passed_over,
        kept: Kept {
            dir: registered,
            runtime: Cell::default(),
        },
    })
}

/// Reads `team.toml` of a team directory.
fn team_file_of(team_dir: &Path) -> Result<TeamFile, TeamFileError> {
    let at = TeamFile::locate(team_dir, variable);
    let at = std::path::absolute(&at).unwrap_or(at);
    TeamFile::load(&at, &variable)
}

/// Returns the settings of a file, and of the environment.
fn settings_by(file: &Result<TeamFile, TeamFileError>) -> Result<Settings, SettingError> {
    let of_file = file.as_ref().map(|file| file.settings.clone());
    of_file.unwrap_or_default().with_environment(&variable)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn end(result: CommandResult, out: &Output) -> ExitCode {
    result.unwrap_or_else(|error| {
        out.error(&error);
        error.code()
    })
}

/// Ends where the command line makes no sense, or asks for help or the version.
fn usage(error: &clap::Error, version: &str) -> ExitCode {
    let json = std::env::args_os()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json");
    let out = Output::new(json);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            end(out.text(error.render()).map(|()| ExitCode::Done), &out)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !json => {
            out.help(error.render());
            ExitCode::Usage
        }
        _ => {
            let far = OverSsh::told().filter(|far| far.version != version);
            let other = far.map(|far| {
                format!(
                    "this is teamctl {version}, and the command is of {}",
                    far.version
                )
            });
            let explained = other.into_iter().fold(explain(error), CommandError::hint);
            end(Err(explained), &out)
        }
    }
}

/// Turns an error of clap into one like all others: what is wrong, then what to do.
pub fn explain(error: &clap::Error) -> CommandError {
    let meant = value_meant(error);
    let rendered = error.render().to_string();
    let message = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let message = message.split("\n\n").next().unwrap_or_default().trim_end();
    let usage = rendered
        .lines()
        .find_map(|line| line.strip_prefix("Usage: "));
    let verb = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) => command_of(verb),
        _ => None,
    };
    let mut explained = CommandError::new(ExitCode::Usage, message);
    if let Some(meant) = meant {
        explained = explained.hint(meant);
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && ["-H", "--at"].contains(&flag.as_str())
    {
        explained =
            explained.hint("it stands before the command: `teamctl -H USER@HOST:DIR COMMAND`");
    }
    if let Some(command) = verb {
        return explained.hint(command).hint("`--help` shows the commands");
    }
    // No value of ours begins with a hyphen where clap advises to write `-- VALUE`. Possible values
    // are listed already.
    let tips = rendered
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("tip: "));
    explained = tips
        .filter(|tip| {
            !tip.starts_with("to pass ") && !tip.contains("similar value") && is_near(error, tip)
        })
        .fold(explained, CommandError::hint);
    if let Some(usage) = usage {
        explained = explained.hint(format!("usage: {usage}"));
    }
    explained.hint("see `--help`")
}

/// Tells whether a tip of clap names something near to the command that was given: to clap `exec`
/// is similar to `reject`.
fn is_near(error: &clap::Error, tip: &str) -> bool {
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else {
        return true;
    };
    tip.split('\'')
        .skip(1)
        .step_by(2)
        .any(|word| suggest::nearest(verb, [word].into_iter()).is_some())
}

/// Suggests a value where one of a list was expected.
fn value_meant(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) else {
        return None;
    };
    // Of words as short as that, most are near.
    let wrong = Some(wrong).filter(|wrong| wrong.len() > 3)?;
    let near = suggest::nearest(wrong, values.iter().map(String::as_str))?;
    Some(format!("did you mean {near}?"))
}

/// Returns the counterpart of a command that other programs have. (Those that mean the same as one
/// of ours are its aliases.)
fn command_of(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "start" => "`teamctl spawn NAME` starts a teammate, `teamd start` the daemon",
        "stop" => "`teamctl shutdown NAME` ends a teammate, `teamd stop` the whole team",
        "kill" => "`teamctl shutdown NAME --force` ends a teammate even if it refuses",
        "restart" => "`teamctl shutdown NAME`, then `teamctl spawn NAME --resume`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::args::Cli;
    use super::*;

    fn explained(line: &str) -> (String, String) {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        let error = explain(&error);
        assert_eq!(error.code(), ExitCode::Usage);
        (
            error.message().to_owned(),
            error.next_step().unwrap().to_owned(),
        )
    }

    #[test]
    fn a_wrong_command_line_is_explained_like_every_other_error() {
        let (message, hint) = explained("teamctl send alice hi --quue");
        assert_eq!(message, "unexpected argument '--quue' found");
        let similar = "a similar argument exists: '--queue'; usage: teamctl send --queue <NAME> <TEXT>; see `--help`";
        assert_eq!(hint, similar);
        for (line, meant) in [
            (
                "teamctl spawn a --sandbox raed-only",
                "did you mean read-only? ",
            ),
            ("teamctl spawn a --approve-by laed", "did you mean lead? "),
            ("teamctl wait a --for idel", "did you mean idle? "),
            (
                "teamctl task add x --review pearson",
                "did you mean person? ",
            ),
        ] {
            assert!(
                explained(line).1.starts_with(meant),
                "{line}: {}",
                explained(line).1
            );
        }
        assert!(
            explained("teamctl spawn a --model scirpt")
                .0
                .contains("did you mean script?")
        );
        let (message, _) = explained("teamctl spawn Alice");
        assert!(
            message.contains("\"Alice\" is not a name: 1 to 32 of a-z"),
            "{message}"
        );
        let (_, hint) = explained("teamctl spwan alice");
        assert!(hint.contains("'spawn'"), "{hint}");
        assert!(!explained("teamctl exec alice").1.contains("reject"));
        assert!(!explained("teamctl completions ksh").1.contains("zsh"));
        let (_, hint) = explained("teamctl kill alice");
        assert!(
            hint.starts_with("`teamctl shutdown NAME --force`"),
            "{hint}"
        );
        for line in ["teamctl plans --xyz", "teamctl inbox --last -3"] {
            let (_, hint) = explained(line);
            assert!(!hint.contains("as a value"), "{hint}");
        }
    }
}
