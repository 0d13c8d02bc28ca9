//! The commands that say whether work is done, confined as the commands of a teammate are.

mod watch;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::OFlags;
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::checkout::Checkout;
use teamd_shared::fingerprint::{Baseline, ProtectedFiles};
use teamd_shared::machine::MachineSettings;
use teamd_shared::name::Name;
use teamd_shared::state::StateDir;
use teamd_shared::task::TaskId;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::user_config::UserConfig;

use crate::JobSetting;
use teamd_worker_core::state::waits_for_memory;
use teamd_worker_sandbox::run::{
    AdmissionKind, AdmissionTicket, GOOD_END, LiveLog, OutputReader, Runner, RunnerConfig,
};
use teamd_worker_sandbox::{Keeps, accept};

pub(crate) use watch::ProtectedWatch;

/// How much of the output the owner gets to read, in characters.
const QUOTED: usize = 4_000;

/// How a protected file was changed that the commands of a check have changed.
pub(crate) const BY_CHECK: &str = "changed while the check ran";

/// Runs a check.
pub(crate) async fn run(
    setting: &JobSetting,
    order: &CheckOrder,
    lock: File,
) -> anyhow::Result<CheckReport> {
    let disk = rustix::fs::statvfs(&order.workspace)
        .with_context(|| format!("cannot look at {}", order.workspace))?;
    anyhow::ensure!(
        disk.f_bavail > 0,
        "no space is left where {} lies; free some space there",
        order.workspace
    );
    let caches = StateDir::of_environment(&order.environment)
        .ok()
        .map(|state| state.of_checks(&setting.dir));
    let of = format!("task {} submission {}", order.task, order.number);
    let sealed = setting.confinement.seals(&order.sandbox);
    let watch = ProtectedWatch::begin(Path::new(&order.protect_in), &order.protect, sealed);
    let runner = Runner::new(RunnerConfig {
        workspace: PathBuf::from(&order.workspace),
        team_dir: setting.dir.clone(),
        name: Name::lead(),
        incarnation: 0,
        // No name of a teammate has a dot.
        temp_name: "check.".to_owned(),
        liveness_lock: lock,
        environment: order.environment.clone(),
        territory: order.territory.iter().map(PathBuf::from).collect(),
        sandbox: order.sandbox.clone(),
        shown: Checkout::shown(order.checkout.as_ref()),
        sealed: watch.starts(),
        bounds: order.bounds,
        cgroup: setting.cgroup.clone(),
        confinement: setting.confinement.clone(),
        keeps: caches
            .clone()
            .map_or(Keeps::Nothing, |folder| Keeps::Checks {
                folder,
                of: of.clone(),
            }),
        machine: UserConfig::machine_over(
            &order.environment,
            MachineSettings::of_variable(&order.environment),
        ),
    })?;
    let touched = watch.touched_since(order.protected.as_ref());
    let report = commands(runner, (order, ""), &begin_log(&setting.dir, order.task)?).await?;
    // Others write here: what they add counts, too.
    let touched = touched.or_else(|| watch.touched(BY_CHECK, true));
    if report.exit == Some(0)
        && touched.is_none()
        && let Some(folder) = caches
    {
        accept(&folder, &of);
    }
    Ok(CheckReport {
        touched_protected: touched,
        ..report
    })
}

/// Reads the protected files as they are now.
pub(crate) fn baseline(root: &Path, patterns: &[String]) -> Baseline {
    match ProtectedFiles::find(root, patterns) {
        Ok(files) => Baseline::Hash(files.hash()),
        Err(error) => Baseline::Unknown(error.to_string()),
    }
}

/// Returns a command that works in a folder below.
pub(crate) fn below(folder: &str, command: &str) -> String {
    match folder {
        "" => command.to_owned(),
        folder => format!(
            "cd -- '{}' || exit\n{command}",
            folder.replace('\'', r"'\''")
        ),
    }
}

/// Begins the log of a check: a new file, so that a follower of it sees that another check begins.
pub(crate) fn begin_log(dir: &TeamDir, task: TaskId) -> anyhow::Result<File> {
    let at = TeamPath::check_log(task);
    dir.remove(&at)?;
    Ok(dir.open_file(&at, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?)
}

/// Returns the end of an output, which the owner gets to read.
pub(crate) fn end_of(output: &str) -> String {
    let from = output
        .char_indices()
        .rev()
        .nth(QUOTED - 1)
        .map_or(0, |(at, _)| at);
    output[from..].to_owned()
}

/// Runs the commands of a check in a folder below the workspace, in turn.
pub(crate) async fn commands(
    mut runner: Runner,
    (order, folder): (&CheckOrder, &str),
    log: &File,
) -> anyhow::Result<CheckReport> {
    let kind = if order.alone {
        AdmissionKind::CheckAlone
    } else {
        AdmissionKind::Check
    };
    let _admitted = admit(runner.ask(kind), log).await;
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(order.timeout);
    let mut report = CheckReport::default();
    for (number, command) in order.commands.iter().enumerate() {
        let left = until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let log = LiveLog::begin(log.try_clone()?, command);
        let ran = runner
            .run(
                below(folder, command),
                left.as_secs_f64(),
                OutputReader::Model(Some(log)),
            )
            .await?;
        let how = ran.failure.unwrap_or_else(|| GOOD_END.to_owned());
        if ran.is_fault {
            anyhow::bail!("`{command}` could not be run: {how}");
        }
        report = CheckReport {
            command: number,
            exit: ran.exit,
            how,
            output: end_of(&ran.output),
            starved: ran.killed_for_memory.is_some(),
            ..report
        };
        if ran.exit != Some(0) {
            break;
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Waits until a check may begin, and says so in its log. Returns what is to be kept until it is
/// over.
async fn admit(mut admission: Option<AdmissionTicket>, mut log: &File) -> Option<AdmissionTicket> {
    let asked = admission.as_mut()?;
    while let Some(before) = asked.before() {
        tell(&mut log, &waits_for_memory(before));
        asked.changed().await;
    }
    if let Some(waited) = asked.waited() {
        tell(
            &mut log,
            &format!("waited {} s for memory", waited.as_secs()),
        );
    }
    admission
}

/// Writes a line of our own into the log. A full disk costs the log, and not the check.
fn tell(log: &mut &File, text: &str) {
    if let Err(error) = writeln!(log, "[{text}]") {
        tracing::warn!("the log of a check is not whole: {error}");
    }
}
