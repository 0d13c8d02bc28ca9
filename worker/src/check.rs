//! The commands that say whether work is done, confined as the commands of a teammate are.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::checkout::Checkout;
use teamd_shared::fingerprint::{Baseline, Files};
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::job::Setting;
use crate::tools::{GOOD_END, LiveLog, Reader, Toolbox, ToolboxConfig};

/// How much of the output the owner is told, in characters.
const TOLD: usize = 4_000;

/// How a protected file was changed that the commands of a check have changed.
pub(crate) const BY_CHECK: &str = "changed while the check ran";

/// Runs a check.
pub(crate) async fn run(setting: &Setting, order: &CheckOrder, lock: File) -> anyhow::Result<CheckReport> {
    let toolbox = Toolbox::new(ToolboxConfig {
        workspace: PathBuf::from(&order.workspace),
        team_dir: setting.dir.clone(),
        name: Name::lead(),
        // No name of a teammate has a dot.
        temp_name: "check.".to_owned(),
        liveness_lock: lock,
        environment: order.environment.clone(),
        territory: order.territory.iter().map(PathBuf::from).collect(),
        sandbox: order.sandbox.clone(),
        shown: Checkout::shown(order.checkout.as_ref()),
        agent: None,
        sealed: Vec::new(),
        bounds: order.bounds,
        cgroup: setting.cgroup.clone(),
        confinement: setting.confinement.clone(),
    })?;
    let watch = Watch::begin(Path::new(&order.protect_in), &order.protect);
    let touched = watch.touched_since(order.protected.as_ref());
    let report = commands(toolbox, (order, ""), &begin_log(&setting.dir, order.task)?).await?;
    // Others write here: what they add counts, too.
    let touched = touched.or_else(|| watch.touched(BY_CHECK, true));
    Ok(CheckReport { touched_protected: touched, ..report })
}

/// Looks what the protected files are.
pub(crate) fn baseline(root: &Path, patterns: &[String]) -> Baseline {
    match Files::find(root, patterns) {
        Ok(files) => Baseline::Hash(files.hash()),
        Err(error) => Baseline::Unknown(error.to_string()),
    }
}

/// The protected files while a check runs. What cannot be looked at is not known to be untouched.
pub(crate) struct Watch<'a> {
    root: &'a Path,
    patterns: &'a [String],
    before: io::Result<Files>,
}

impl<'a> Watch<'a> {
    /// Looks at them before the first command runs.
    pub(crate) fn begin(root: &'a Path, patterns: &'a [String]) -> Self {
        Self { root, patterns, before: Files::find(root, patterns) }
    }

    /// Says in which way they are not as they were when the work was set.
    fn touched_since(&self, baseline: Option<&Baseline>) -> Option<String> {
        let unknown = |why: &str| format!("what they were when the task was set is not known: {why}");
        match (baseline, &self.before) {
            _ if self.patterns.is_empty() => None,
            (_, Err(error)) => Some(unreadable(error)),
            (None, _) => Some(unknown("they were not looked at")),
            (Some(Baseline::Unknown(why)), _) => Some(unknown(why)),
            (Some(Baseline::Hash(hash)), Ok(now)) => {
                (*hash != now.hash()).then(|| "changed since the task was set".to_owned())
            }
        }
    }

    /// Says which of them were changed since, and `how`; with `added` also which are new.
    pub(crate) fn touched(&self, how: &str, added: bool) -> Option<String> {
        match (&self.before, Files::find(self.root, self.patterns)) {
            (Ok(before), Ok(after)) => {
                after.changed_since(before, added).map(|files| format!("{how}: {files}"))
            }
            (Err(error), _) => Some(unreadable(error)),
            (_, Err(error)) => Some(unreadable(&error)),
        }
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("they cannot be looked at: {error}")
}

/// Returns a command that works in a folder below.
pub(crate) fn below(folder: &str, command: &str) -> String {
    match folder {
        "" => command.to_owned(),
        folder => format!("cd -- '{}' || exit\n{command}", folder.replace('\'', r"'\''")),
    }
}

/// Begins the log of a check: a new file, so that a follower of it sees that another check begins.
pub(crate) fn begin_log(dir: &TeamDir, task: TaskId) -> anyhow::Result<File> {
    let at = TeamPath::check_log(task);
    dir.remove(&at)?;
    Ok(dir.open_file(&at, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?)
}

/// Returns the end of an output, which the owner is told.
pub(crate) fn told(output: &str) -> String {
    let from = output.char_indices().rev().nth(TOLD - 1).map_or(0, |(at, _)| at);
    output[from..].to_owned()
}

/// Runs the commands of a check in a folder below the workspace, in turn.
pub(crate) async fn commands(
    mut toolbox: Toolbox,
    (order, folder): (&CheckOrder, &str),
    log: &File,
) -> anyhow::Result<CheckReport> {
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(order.timeout);
    let mut report = CheckReport::default();
    for (number, command) in order.commands.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let log = LiveLog::begin(log.try_clone()?, command);
        let ran = toolbox.run(below(folder, command), left.as_secs_f64(), Reader::Model(Some(log))).await?;
        let how = ran.failure.unwrap_or_else(|| GOOD_END.to_owned());
        report = CheckReport { command: number, exit: ran.exit, how, output: told(&ran.output), ..report };
        if ran.exit != Some(0) {
            break;
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}
