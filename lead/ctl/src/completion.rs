//! What a shell completes: names from the roster and ids of pending plans. It reads files, starts
//! nothing, and prints nothing. Where a file cannot be read, there is nothing to complete.

use std::io::{self, Write};

use clap_complete::env::{CompleteEnv, Shells};
use teamd_client::args::Completions;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;

/// The variable by which a shell asks for completions.
const VARIABLE: &str = "COMPLETE";

/// Answers a shell that asks for completions of a command line. Tells whether one did.
pub fn answer(command_line: impl Fn() -> clap::Command) -> bool {
    if std::env::var_os(VARIABLE).is_none_or(|shell| shell.is_empty()) {
        return false;
    }
    let current_dir = std::env::current_dir().ok();
    CompleteEnv::with_factory(command_line)
        .try_complete(std::env::args_os(), current_dir.as_deref())
        .unwrap_or(true)
}

/// Runs `completions`: prints what makes a shell ask the program.
pub fn run(context: &Context, args: &Completions, program: &str) -> CommandResult {
    let script = script(&args.shell.to_string(), program);
    context.out.write(
        &script.map_err(|error| CommandError::refused("cannot write the completions", &error))?,
    )?;
    Ok(ExitCode::Done)
}

fn script(shell: &str, program: &str) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    let completer = shells.completer(shell).ok_or(io::ErrorKind::Unsupported)?;
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
