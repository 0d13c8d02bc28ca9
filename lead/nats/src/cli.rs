//! The command line of `teamd-nats`, which `teamd` runs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

use crate::dial::dial;
use crate::end::NatsError;
use crate::serve::serve;
use crate::server::ServerOptions;

/// Carries the links of a team over a NATS cluster: `teamd` runs it
#[derive(Debug, Parser)]
#[command(name = "teamd-nats", version)]
struct NatsCli {
    #[command(flatten)]
    server: ServerOptions,
    /// The subject of the link: SUBJECT.up.* and SUBJECT.down.* are its two ways
    #[arg(long, value_name = "SUBJECT", value_parser = subject)]
    link: String,
    #[command(subcommand)]
    command: NatsCommand,
}

#[derive(Debug, Subcommand)]
enum NatsCommand {
    /// Carry standard input and output to home
    Dial {
        /// What the host asks for
        line: String,
    },
    /// Run a command for each stream of the host, until standard input ends
    Serve {
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Refuses a subject with wildcards or empty tokens.
fn subject(text: &str) -> Result<String, String> {
    let is_token = |token: &str| {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        !token.is_empty() && token.chars().all(is_plain)
    };
    if text.split('.').all(is_token) {
        return Ok(text.to_owned());
    }
    Err("it is no subject".to_owned())
}

/// Runs the program.
pub fn run() -> ExitCode {
    let cli = NatsCli::parse();
    let runtime = Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .map_err(|error| NatsError::passing(format!("cannot begin: {error}")))
        .and_then(|runtime| {
            runtime.block_on(async {
                match cli.command {
                    NatsCommand::Dial { line } => dial(&cli.server, &cli.link, line).await,
                    NatsCommand::Serve { command } => serve(&cli.server, &cli.link, &command).await,
                }
            })
        });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where its output is not read, the exit code still says it.
            writeln!(io::stderr(), "error: {error}").ok();
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_no_wildcards() {
        assert!(subject("teamd.box.0f3a").is_ok());
        for bad in ["", "a..b", "a.*", "a.>", "a b", ".a"] {
            assert!(subject(bad).is_err(), "{bad:?}");
        }
    }
}
