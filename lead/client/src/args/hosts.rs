//! The command line of `teamctl host`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use teamd_shared::name::Name;

use super::value::host;

#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(subcommand)]
    pub command: HostCommand,
}

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Add a host, after a look at its login and its version of teamd
    Add {
        /// What the team calls it
        #[arg(value_parser = host)]
        name: Name,
        /// Where ssh finds it [default: as before, else the name]
        #[arg(long, value_name = "[USER@]HOST")]
        ssh: Option<String>,
        /// Run teammates there even if it cannot sandbox their commands as promised
        #[arg(long)]
        allow_weak_sandbox: bool,
        /// Install the programs of this version there first, in ~/.local/share/teamd
        #[arg(long)]
        install: bool,
        /// Take those programs from a directory, as for another architecture
        #[arg(long, value_name = "DIR", requires = "install", value_hint = ValueHint::DirPath)]
        programs: Option<PathBuf>,
    },
    /// Add a host that home cannot reach: it dials home
    ///
    /// Makes a key that can open this link and nothing else, and prints what to do with it. Nothing
    /// outside of the team directory and that key file is changed.
    Invite {
        /// What the team calls it
        #[arg(value_parser = host)]
        name: Name,
        /// Let in a key of that host, and make none: the line of its `.pub` file
        #[arg(long, value_name = "KEY")]
        public_key: Option<String>,
        #[command(flatten)]
        nats: NatsArgs,
        /// Run teammates there even if it cannot sandbox their commands as promised
        #[arg(long)]
        allow_weak_sandbox: bool,
    },
    /// Log in to a host in this terminal, to answer what ssh asks, and connect again
    Login {
        /// The host
        #[arg(value_parser = host)]
        name: Name,
    },
    /// Have a host obey this team directory, if the one that it has obeyed is gone for good
    Take {
        /// The host
        #[arg(value_parser = host)]
        name: Name,
    },
    /// List the hosts, their links, and what they have to give
    List,
    /// Remove a host that has no teammates
    Remove {
        /// The host
        #[arg(value_parser = host)]
        name: Name,
    },
}

/// How home listens on a NATS cluster.
#[derive(Debug, Args)]
pub struct NatsArgs {
    /// Let it dial over a NATS cluster, without ssh: a server that speaks TLS
    #[arg(
        long,
        value_name = "tls://HOST[:PORT]",
        conflicts_with = "public_key",
        requires = "credentials"
    )]
    pub nats: Option<String>,
    /// The credentials of home there: a .creds file, or one with the seed of an nkey
    #[arg(long, value_name = "FILE", requires = "nats", value_hint = clap::ValueHint::FilePath)]
    pub credentials: Option<PathBuf>,
    /// The certificate authority of that server [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "nats", value_hint = clap::ValueHint::FilePath)]
    pub ca: Option<PathBuf>,
}
