//! What one run of the server keeps: who runs it, where the lead's inbox ended when it began, and
//! whether the daemon could be started.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use teamd_client::act::{auto_start, lead_connection};
use teamd_client::connection::Client;
use teamd_client::context::{Context, block_on};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::lead_mail;
use teamd_shared::control::{Command, Done};
use teamd_shared::process::Identity;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::Notify;

/// How long a call waits for the daemon: some clients give up after a minute.
const PATIENCE: Duration = Duration::from_secs(50);

/// One run of the server.
pub(super) struct LeadSession {
    run_by: Identity,
    no_start: bool,
    /// The place behind the last message that was there when it began.
    began_at: u64,
    /// The place behind the last message that the lead has got.
    read: AtomicU64,
    /// Whether the daemon ran, or could be started, when it began.
    started: OnceLock<Result<(), CommandError>>,
    /// A daemon may run that did not run before.
    may_run: Notify,
}

impl LeadSession {
    /// Begins a run.
    ///
    /// # Errors
    /// If the lead's inbox cannot be read.
    pub(super) fn begin(
        context: &Context,
        run_by: Identity,
        no_start: bool,
    ) -> Result<Self, CommandError> {
        let began_at = if context.is_missing() {
            0
        } else {
            match context.dir() {
                Ok(dir) => lead_mail::end(&dir)?,
                // Each call reports it.
                Err(_) => 0,
            }
        };
        Ok(Self {
            run_by,
            no_start,
            began_at,
            read: AtomicU64::new(began_at),
            started: OnceLock::new(),
            may_run: Notify::new(),
        })
    }

    /// Returns the place behind the last message that was there when the server began.
    pub(super) fn began_at(&self) -> u64 {
        self.began_at
    }

    /// Starts the daemon if none runs, once. A call that comes meanwhile waits for that. Where there
    /// is no team, that is left to the first call: a client may start servers that it never uses.
    pub(super) fn start(&self, context: &Context) {
        if !context.is_missing() {
            self.started.get_or_init(|| self.ensure_daemon(context));
        }
    }

    /// Starts the daemon if none runs: for a call that has something done.
    ///
    /// # Errors
    /// As `teamd start`.
    pub(super) fn ensure_daemon(&self, context: &Context) -> Result<(), CommandError> {
        let ensured = auto_start::ensure_daemon(context, self.no_start, |_| Ok(()));
        self.may_run.notify_one();
        ensured.map(drop)
    }

    /// Opens the team directory.
    ///
    /// # Errors
    /// Why the daemon could not be started if there is none, else as [`Context::dir`].
    pub(super) fn dir(&self, context: &Context) -> Result<TeamDir, CommandError> {
        let started = self.started.get_or_init(|| self.ensure_daemon(context));
        context
            .dir()
            .map_err(|error| started.clone().err().unwrap_or(error))
    }

    /// Records how far the lead has got its inbox, so that no command that waits for it gives it the
    /// same again.
    pub(super) fn record_read(&self, dir: &TeamDir, place: u64) {
        if self.read.swap(place, Ordering::Relaxed) == place {
            return;
        }
        // Where no daemon runs, none waits. The next one is told when it is there.
        if let Err(error) = self.order(dir, Command::LeadRead { place }) {
            tracing::debug!("cannot record what the lead has got: {error}");
        }
    }

    /// Gives the daemon a command, and waits for its answer.
    ///
    /// # Errors
    /// As the daemon refuses, or [`ExitCode::TimedOut`]: then it may still be done.
    pub(super) fn order(&self, dir: &TeamDir, command: Command) -> Result<Done, CommandError> {
        block_on(async {
            let calling = async {
                let mut client = Client::connect_as_lead(dir, self.run_by.clone()).await?;
                Ok(client.call_and_wait(command).await?)
            };
            match tokio::time::timeout(PATIENCE, calling).await {
                Ok(answer) => answer,
                Err(_) => Err(CommandError::new(
                    ExitCode::TimedOut,
                    "the daemon has not answered yet: it may still be done",
                )
                .hint("team_status shows how it stands; do not repeat the call before")),
            }
        })
    }
}

/// Keeps a connection to the daemon, whichever runs: by it the daemon knows that this lead is there.
pub(super) async fn hold(context: &Context, session: &LeadSession) -> Infallible {
    loop {
        session.may_run.notified().await;
        let Ok(dir) = context.dir() else {
            continue;
        };
        let poll = context.settings.poll;
        let says = || Command::LeadRead {
            place: session.read.load(Ordering::Relaxed),
        };
        lead_connection::keep(&dir, &session.run_by, poll, says).await;
    }
}
