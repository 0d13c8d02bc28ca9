//! What a shell completes: names from the roster and ids of pending plans. It reads files, starts
//! nothing, and says nothing: where something cannot be read there is nothing to complete.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;

use super::args::{Completions, Global};
use super::context::Context;
use super::output::Output;
use super::{context, requests};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;

/// The variable by which a shell asks for completions.
const VARIABLE: &str = "COMPLETE";

/// Answers a shell that asks for completions. Tells whether one did.
pub(crate) fn answer<P: CommandFactory>() -> bool {
    if std::env::var_os(VARIABLE).is_none_or(|shell| shell.is_empty()) {
        return false;
    }
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(P::command)
        .try_complete(std::env::args_os(), here.as_deref())
        .unwrap_or(true)
}

/// Runs `completions`: prints what makes a shell ask the program.
pub(crate) fn run(context: &Context, args: &Completions, program: &str) -> CommandResult {
    let script = script(&args.shell.to_string(), program);
    context.out.write(
        &script.map_err(|error| CommandError::refused("cannot write the completions", &error))?,
    )?;
    Ok(ExitCode::Done)
}

fn script(shell: &str, program: &str) -> io::Result<Vec<u8>> {
    let known = Shells::builtins();
    let mut script = Vec::new();
    let completer = known.completer(shell).ok_or(io::ErrorKind::Unsupported)?;
    completer.write_registration(VARIABLE, program, program, program, &mut script)?;
    if shell == "zsh" {
        // At the first Tab, zsh loads the file from $fpath as the function that completes.
        let function = format!("_clap_dynamic_completer_{program}");
        writeln!(
            script,
            "\nif [ \"$funcstack[1]\" = _{program} ]; then {function} \"$@\"; fi"
        )?;
    }
    Ok(script)
}

/// Completes the names of teammates.
pub(crate) fn names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let roster = dir()
            .and_then(|dir| Roster::load(&dir).ok().flatten())
            .unwrap_or_default();
        roster
            .members
            .iter()
            .map(|it| {
                CompletionCandidate::new(it.name.as_str())
                    .help(Some(it.status.as_str().to_owned().into()))
            })
            .collect()
    })
}

/// Completes the ids of pending plans and reviews.
pub(crate) fn plans() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let all = dir()
            .and_then(|dir| requests::recent(&dir).ok())
            .unwrap_or_default();
        let plans = all
            .iter()
            .filter(|it| it.kind.is_judged() && it.is_pending());
        plans
            .map(|it| {
                CompletionCandidate::new(it.request_id.as_str()).help(Some(
                    format!("{} of {}", it.kind.noun(), it.from)
                        .to_owned()
                        .into(),
                ))
            })
            .collect()
    })
}

/// Opens the team directory that the command line names, or that is the nearest one, if it is
/// registered.
fn dir() -> Option<TeamDir> {
    let words: Vec<_> = std::env::args_os().collect();
    let after = words
        .iter()
        .position(|word| word == "--team-dir")
        .and_then(|at| words.get(at + 1));
    let named = after.cloned().or_else(|| std::env::var_os("TEAM_DIR"));
    let context = context::find(&Global {
        team_dir: named,
        json: false,
    })
    .ok()?(Output::new(false));
    context.dir().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_is_told_to_ask_the_program() {
        for shell in ["bash", "zsh", "fish"] {
            let script = String::from_utf8(script(shell, "teamctl").unwrap()).unwrap();
            assert!(script.contains("COMPLETE"), "{shell}");
            assert_eq!(script.contains("funcstack"), shell == "zsh");
        }
        assert!(script("tcsh", "teamctl").is_err());
    }
}
