//! `teamctl port`: what a teammate serves on a localhost of its own, in a browser of the user.
//!
//! The browser sees a host of its own for each port of each teammate, and so shares no cookie and no
//! storage with another service of this machine. The process in the teammate's network namespace
//! hands over one connection for each request ([`teamd_shared::localhost`]).

mod guard;
mod head;
mod loopback;
mod server;

use std::io::{self, ErrorKind};
use std::net::TcpStream as Connected;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::json;
use teamd_client::args::PortArgs;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::{self, roster};
use teamd_shared::localhost;
use teamd_shared::member::Localhost;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use tokio::net::TcpStream;
use tokio::signal::unix::SignalKind;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::act;
use guard::PortGuard;
use loopback::Loopback;
use server::PortSite;

/// A port of a teammate.
#[derive(Debug)]
pub(crate) struct FarPort {
    dir: TeamDir,
    name: Name,
    port: u16,
}

impl FarPort {
    /// Connects to it.
    ///
    /// # Errors
    /// Why there is no connection, for the user.
    async fn connect(self: &Arc<Self>) -> Result<TcpStream, String> {
        let far = Arc::clone(self);
        let asked = spawn_blocking(move || localhost::connect(&far.dir, &far.name, far.port)).await;
        let asked = asked.unwrap_or_else(|error| Err(io::Error::other(error)));
        let Self { name, port, .. } = &**self;
        let connected = match asked {
            Ok(Ok(connected)) => in_runtime(connected),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(format!("nothing listens on port {port} of {name}"));
            }
            Ok(Err(error)) => Err(error),
            Err(error) if is_gone(&error) => return Err(format!("{name} is not running")),
            Err(error) => Err(error),
        };
        connected.map_err(|error| format!("cannot reach port {port} of {name}: {error}"))
    }

    /// Says what to know if nothing listens there yet; none if something does.
    fn advice(&self, served: &[u16]) -> Option<String> {
        let Self { name, port, .. } = self;
        if served.contains(port) {
            return None;
        }
        let ports: Vec<_> = served.iter().map(u16::to_string).collect();
        let others = if ports.is_empty() {
            "nothing listens there yet".to_owned()
        } else {
            format!("only {} so far", ports.join(", "))
        };
        Some(format!("{name} does not listen on {port}: {others}"))
    }
}

/// Tells whether no process answers.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

fn in_runtime(connected: Connected) -> io::Result<TcpStream> {
    connected.set_nonblocking(true)?;
    TcpStream::from_std(connected)
}

/// Runs the command, until it is interrupted.
pub fn run(context: &Context, args: &PortArgs) -> CommandResult {
    let dir = context.dir()?;
    block_on(serve(context, dir, args))
}

async fn serve(context: &Context, dir: TeamDir, args: &PortArgs) -> CommandResult {
    let mut int = act::on_signal(SignalKind::interrupt())?;
    let mut term = act::on_signal(SignalKind::terminate())?;
    let served = serves(&dir, &args.name)?;
    let far = FarPort {
        dir,
        name: args.name.clone(),
        port: args.port,
    };
    let advice = far.advice(&served);
    let far = Arc::new(far);
    let listener = Loopback::bind(args.at).await.map_err(|error| {
        CommandError::refused(&format!("cannot listen on 127.0.0.1:{}", args.at), &error)
            .hint("without `--at`, a free port is taken")
    })?;
    let at = listener.address;
    let served: Pin<Box<dyn Future<Output = ()>>> = if args.tcp {
        let text = at.to_string();
        context.out.result(&json!({"address": text}), &text)?;
        context.out.note(
            "every program and every web page on this machine reaches that port while this runs",
        );
        Box::pin(server::pass_through(listener, far))
    } else {
        let (name, port) = (&args.name, args.port);
        let guard = PortGuard::new(name, port, at.port(), &key(), &label());
        let url = guard.first_url();
        context.out.result(&json!({"url": url}), &url)?;
        context.out.note(format!(
            "what a browser shows there is {name}'s: give it no password of yours. Ctrl-C ends the address, not port {port}"
        ));
        Box::pin(server::serve(listener, PortSite::new(guard, far)))
    };
    if let Some(advice) = advice {
        context.out.note(advice);
    }
    tokio::select! {
        Some(()) = int.recv() => Ok(ExitCode::Interrupted),
        Some(()) = term.recv() => Ok(ExitCode::Terminated),
        () = served => Ok(ExitCode::Failed),
    }
}

/// Makes what no other address has in its host: browsers send the cookies of a host to each of its
/// ports.
fn label() -> String {
    let mut label = Uuid::new_v4().simple().to_string();
    label.truncate(8);
    label
}

fn key() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Returns what a teammate serves that runs and has a localhost of its own.
fn serves(dir: &TeamDir, name: &Name) -> Result<Vec<u16>, CommandError> {
    let roster = roster::load_one(dir, name)?;
    let member = roster::find_one(dir, &roster, name)?;
    if member.status.is_ended() {
        let hint = format!("`teamctl spawn {name} --resume` starts it again");
        return Err(
            CommandError::new(ExitCode::Conflict, format!("{name} is not running")).hint(hint),
        );
    }
    if member.sandbox.localhost == Localhost::Own {
        return Ok(read::localhost::served(dir, member));
    }
    let what = format!("{name} has no localhost of its own");
    let hint = format!(
        "`teamctl spawn {name} --localhost own` gives it one; what it serves with `network = true` is on your 127.0.0.1 as it is"
    );
    Err(CommandError::new(ExitCode::Conflict, what).hint(hint))
}
