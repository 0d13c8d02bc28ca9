//! The process of an incarnation: connection, lock, welcome, and only then the session.
//!
//! Before the welcome the only visible act of the worker is to take the liveness lock.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use nix::sys::prctl::set_name;
use nix::sys::stat::Mode;
use teamd_shared::checkout::Checkout;
use teamd_shared::control::{Connection, FromWorker, Welcome};
use teamd_shared::id::RandomIds;
use teamd_shared::logging;
use teamd_shared::machine::MachineSettings;
use teamd_shared::member::{Agent, Protocol};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::process::{deny_tracing, survive_file_limit};
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::terms::{Terms, ToolGroup};
use teamd_shared::tool_set::ToolSet;
use teamd_shared::user_config::UserConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::begin::SessionParts;
use crate::connection::{DaemonLink, WorkerIdentity, await_welcome, take_from_stdin};
use crate::last_words::{LastWords, send_unable};
use crate::persona::{mcp_tools, persona};
use crate::session::Session;
use crate::tools::{Toolbox, Tools};
use crate::transcript::Transcript;
use teamd_worker_core::tools::Caller;
use teamd_worker_jobs::{JobArgs, Whose, born, for_checkout, remove_stale};
use teamd_worker_model::{Access, AgentMind, Model, OneShot, patience};
use teamd_worker_sandbox::Keeps;
use teamd_worker_sandbox::OwnCgroup;
use teamd_worker_sandbox::run::RunnerConfig;

/// Which incarnation.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The teammate
    #[arg(long, value_parser = Name::of_inbox)]
    pub name: Name,
    /// Which incarnation of it this is
    #[arg(long, value_name = "N")]
    pub incarnation: u32,
    /// Where and by which means it works
    #[command(flatten)]
    pub job: JobArgs,
}

/// Runs one incarnation. Returns 0 if it ended by itself, 1 if it could not begin or continue.
pub fn run(args: &RunArgs) -> ExitCode {
    logging::to_stderr();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{} cannot continue: {}", args.name, reason(&error));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &RunArgs) -> anyhow::Result<()> {
    let inherited = take_from_stdin().map_err(|error| {
        let error = anyhow!(error).context("cannot take the connection from descriptor 0");
        // The descriptor is still open.
        send_unable(rustix::stdio::stdin(), reason(&error));
        error
    })?;
    let prepared = prepare().and_then(|runtime| Ok((runtime, inherited.try_clone()?)));
    let (runtime, spare) = prepared.inspect_err(|error| send_unable(&inherited, reason(error)))?;
    runtime.block_on(async {
        let mut last_words = LastWords::Born {
            connection: spare,
            has_greeted: false,
        };
        let ended = live(args, inherited, &mut last_words).await;
        if let Err(error) = &ended {
            last_words.send(reason(error)).await;
        }
        ended
    })
}

fn prepare() -> anyhow::Result<tokio::runtime::Runtime> {
    // It fails in a process that already leads its group. Then the parent has made the session.
    if let Err(errno) = nix::unistd::setsid() {
        tracing::debug!("no session of its own: {errno}");
    }
    // For `ps`: it was started by a descriptor.
    set_name(c"team-worker").context("cannot name the process")?;
    deny_tracing();
    survive_file_limit().context("cannot catch a signal")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("cannot make the runtime")
}

/// Returns what went wrong and its causes, without repetitions.
fn reason(error: &anyhow::Error) -> String {
    let mut reason = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !reason.contains(&cause) {
            reason.push_str(&format!(": {cause}"));
        }
    }
    reason
}

async fn live(
    args: &RunArgs,
    inherited: OwnedFd,
    last_words: &mut LastWords,
) -> anyhow::Result<()> {
    let mut sigterm = catch(SignalKind::terminate())?;
    // In its own session, no terminal sends these. They are caught and not ignored, since commands
    // inherit ignored signals.
    let _ignored = [
        catch(SignalKind::interrupt())?,
        catch(SignalKind::hangup())?,
    ];
    let dir = Arc::new(TeamDir::open(&args.job.team_dir)?);
    logging::keep_bounded(&dir, TeamPath::log(args.name.as_str()));
    let mut transcript = Transcript::lock(&dir, &args.name)?;
    let mut connection =
        Connection::from_fd(inherited).context("descriptor 0 is not a connection to teamd")?;
    let identity = WorkerIdentity {
        name: args.name.clone(),
        incarnation: args.incarnation,
    };
    let welcome = tokio::select! {
        welcome = await_welcome(&mut connection, &identity, last_words) => welcome,
        _ = sigterm.recv() => {
            connection.send(&FromWorker::Leaving).await?;
            return Ok(());
        }
    };
    let mut welcome = match welcome {
        Ok(Some(welcome)) => welcome,
        Ok(None) => return Ok(()),
        Err(error) => {
            tracing::info!("not welcomed: {error}");
            return Ok(());
        }
    };
    let settings = Settings::from_env()?;
    // It holds for what its tools make.
    nix::sys::stat::umask(Mode::from_bits_truncate(welcome.environment.umask));
    remove_stale_locks(&transcript, &welcome.terms)?;
    let mut toolbox = make_toolbox(args, &dir, &transcript, &welcome)?;
    if welcome.terms.program.is_some()
        && let Some(listing) = toolbox.list_mcp_tools(welcome.directive.gate)
    {
        // An agent is told of all tools when it is started.
        listing.await;
    }
    let tools = tool_set(&mut transcript, &welcome, args.incarnation, &toolbox)?;
    toolbox.offer(tools.skills.clone());
    let model = make_model(args, &dir, &welcome, &toolbox, &tools)?;
    // The session and the connection share it: a worker that waits has one copy less.
    let environment = Arc::new(std::mem::take(&mut welcome.environment));
    let link = DaemonLink::start(
        connection,
        Arc::clone(&dir),
        identity.clone(),
        Arc::clone(&environment),
    );
    *last_words = link.last_words();
    let terminate = notify_of(sigterm);
    let ids = Box::new(RandomIds);
    let parts = SessionParts {
        dir,
        identity,
        transcript,
        terminate,
        toolbox,
        tools,
        model,
        link,
        ids,
        environment,
    };
    let mut session = Session::begin(parts, &settings, welcome)?;
    session.await_agent().await.map_err(anyhow::Error::msg)?;
    Ok(session.run().await?)
}

fn catch(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot catch a signal")
}

/// Removes the locks that a `git` of an earlier incarnation has left: under the liveness lock, none
/// of them runs any longer.
fn remove_stale_locks(transcript: &Transcript, terms: &Terms) -> anyhow::Result<()> {
    if let Some(checkout) = &terms.checkout {
        remove_stale(Path::new(&checkout.root), Whose::Teammates);
    } else if let Some(since) = born(&transcript.liveness_lock()?) {
        // The transcript is as old as the teammate.
        remove_stale(Path::new(&terms.workspace), Whose::Users { since });
    }
    Ok(())
}

fn make_toolbox(
    args: &RunArgs,
    dir: &Arc<TeamDir>,
    transcript: &Transcript,
    Welcome {
        terms,
        environment,
        territory,
        ..
    }: &Welcome,
) -> anyhow::Result<Toolbox> {
    let keeps = if terms.program.is_some() {
        Keeps::Agent(args.name.clone())
    } else {
        Keeps::Member(args.name.clone())
    };
    let machine = UserConfig::machine_over(environment, MachineSettings::of_variable(environment));
    let config = RunnerConfig {
        workspace: terms.workspace.clone().into(),
        team_dir: Arc::clone(dir),
        name: args.name.clone(),
        incarnation: args.incarnation,
        temp_name: args.name.to_string(),
        liveness_lock: transcript.liveness_lock()?,
        environment: for_checkout(environment, terms.checkout.as_ref()),
        territory: territory.iter().map(PathBuf::from).collect(),
        sandbox: terms.sandbox.clone(),
        shown: Checkout::shown(terms.checkout.as_ref()),
        sealed: Vec::new(),
        bounds: terms.bounds,
        cgroup: args.job.cgroup.clone().map(OwnCgroup::begin),
        confinement: args.job.confinement.clone(),
        keeps,
        machine,
    };
    Toolbox::new(config, terms.program.clone(), &terms.mcp)
}

/// Returns what the conversation is offered: what it began with, or what it begins with now. An
/// agent of another vendor has such tools of its own.
fn tool_set(
    transcript: &mut Transcript,
    welcome: &Welcome,
    incarnation: u32,
    toolbox: &Toolbox,
) -> anyhow::Result<ToolSet> {
    if welcome.terms.program.is_some() {
        return Ok(ToolSet::default());
    }
    if welcome.conversation != incarnation
        && let Some(recorded) = transcript.began_with(welcome.conversation)?
    {
        return Ok(recorded);
    }
    let groups = welcome.terms.groups.clone();
    let skills = if groups.contains(&ToolGroup::Skills) {
        toolbox.find_skills()
    } else {
        Vec::new()
    };
    Ok(ToolSet { groups, skills })
}

/// Names a model as an agent is told of it; none: it chooses itself. One that works with several
/// services is told which, too.
fn name_for(protocol: Protocol, spec: ModelSpec) -> Option<String> {
    if protocol != Protocol::Acp {
        return spec.model;
    }
    let provider = spec.provider;
    let default = provider.default_model().map(str::to_owned);
    let model = spec.model.or(default)?;
    Some(format!("{}/{model}", provider.as_str()))
}

fn make_model(
    args: &RunArgs,
    dir: &Arc<TeamDir>,
    welcome: &Welcome,
    toolbox: &Toolbox,
    tools: &ToolSet,
) -> anyhow::Result<Model> {
    let Welcome {
        terms, environment, ..
    } = &welcome;
    let catalog = toolbox.mcp_catalog();
    let persona = |room| {
        let guide = toolbox.guide(room);
        persona(dir, &args.name, terms, guide.as_ref(), (&catalog, tools))
    };
    let model = match &terms.program {
        Some(Agent {
            protocol: Protocol::Run,
            ..
        }) => Ok(Model::OneShot(OneShot::new(args.name.clone()))),
        Some(agent) => {
            let instructions = persona(0).system;
            let tools = Caller::of(&args.name)
                .team_tools()
                .chain(mcp_tools(&catalog));
            let model = terms
                .model
                .parse::<ModelSpec>()
                .ok()
                .and_then(|spec| name_for(agent.protocol, spec));
            patience(environment).map(|patience| {
                let mut mind = AgentMind::new(
                    agent.clone(),
                    args.name.clone(),
                    tools,
                    &instructions,
                    model,
                );
                mind.patience = patience;
                Model::Agent(Box::new(mind))
            })
        }
        None => {
            let fallback = terms.fallback_model.as_deref();
            Model::from_spec(&terms.model, fallback, persona, Access { dir, environment })
        }
    };
    model.map_err(|error| anyhow!("{error} ({})", error.hint()))
}

/// Returns what gets notified of each SIGTERM.
fn notify_of(mut sigterm: Signal) -> Arc<Notify> {
    let terminate = Arc::new(Notify::new());
    let notified = Arc::clone(&terminate);
    tokio::spawn(async move {
        while sigterm.recv().await.is_some() {
            notified.notify_one();
        }
    });
    terminate
}
