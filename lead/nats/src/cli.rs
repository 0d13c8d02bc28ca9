//! The command line of `teamd-nats`, which `teamd` runs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use teamd_shared::host::NatsLink;
use tokio::runtime::Builder;

use crate::dial::dial;
use crate::end::NatsError;
use crate::serve::serve;

/// Carries the links of a team over a NATS cluster: `teamd` runs it
#[derive(Debug, Parser)]
#[command(name = "teamd-nats", version)]
struct NatsCli {
    /// The server: tls://HOST
    #[arg(long, value_name = "URL")]
    server: String,
    /// The file of the credentials: .creds, or the seed of an nkey
    #[arg(long, value_name = "FILE")]
    credentials: PathBuf,
    /// The certificate authority of the server [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The subject of the link: what is below SUBJECT.up and SUBJECT.down are its two ways
    #[arg(long, value_name = "SUBJECT")]
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

/// Runs the program.
pub fn run() -> ExitCode {
    let cli = NatsCli::parse();
    let runtime = Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .map_err(|error| NatsError::passing(format!("cannot begin: {error}")))
        .and_then(|runtime| runtime.block_on(carry_out(cli)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where its output is not read, the exit code still says it.
            writeln!(io::stderr(), "error: {error}").ok();
            ExitCode::from(error.exit_code())
        }
    }
}

async fn carry_out(cli: NatsCli) -> Result<(), NatsError> {
    let link = NatsLink {
        server: cli.server,
        credentials: cli.credentials,
        ca: cli.ca,
        subject: cli.link,
    };
    link.can_link()
        .map_err(|(why, next)| NatsError::needs_person(format!("{why}: {next}")))?;
    match cli.command {
        NatsCommand::Dial { line } => dial(&link, line).await,
        NatsCommand::Serve { command } => serve(&link, &command).await,
    }
}
