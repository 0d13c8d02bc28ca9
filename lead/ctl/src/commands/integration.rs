//! `teamctl diff`, `sync` and `land`: what teammates with a checkout have changed, and the exchange
//! between the user's branch and the integration branch.

use serde_json::json;
use teamd_client::act::integration::{self, ask};
use teamd_client::args::{Branch, Diff};
use teamd_client::connection::unexpected;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_shared::control::{Done, IntegrationOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::merged::Landed;
use teamd_shared::task::Task;
use teamd_view::review::{Changes, coloured};

use super::task;

/// Shows what a teammate or a submission has changed.
pub(crate) fn diff(context: &Context, args: &Diff) -> CommandResult {
    let text = integration::diff(context, &args.of)?;
    let shown = if text.is_empty() {
        "nothing is changed".to_owned()
    } else if context.out.width().is_some() {
        coloured(context, &Changes::parse(&text, ""))
    } else {
        let lines = text.lines().map(escape::line);
        lines.collect::<Vec<_>>().join("\n")
    };
    context
        .out
        .result(&json!({"diff": text}), shown)
        .map(|()| ExitCode::Done)
}

/// Has the user's branch integrated, and waits for that.
pub(crate) fn sync(context: &Context, args: &Branch) -> CommandResult {
    match synced(context, args)? {
        Some(task) => context
            .out
            .result(&task, format!("{} is integrated", task.title())),
        None => context
            .out
            .result(&json!(null), "the branch is integrated already"),
    }
    .map(|()| ExitCode::Done)
}

/// Fast-forwards the user's branch to the integration branch. One that has commits of its own is
/// integrated first.
pub(crate) fn land(context: &Context, args: &Branch) -> CommandResult {
    let mut landed = try_to_land(context, args)?;
    if !landed.has_landed() {
        context.out.note(format_args!(
            "{} has commits that are not integrated: they are merged and checked first",
            landed.branch
        ));
        synced(context, args)?;
        landed = try_to_land(context, args)?;
    }
    let Landed {
        branch,
        before,
        after,
        tip,
        pointers,
    } = &landed;
    if !landed.has_landed() {
        let why = format!("{branch} has moved again meanwhile");
        return Err(CommandError::new(ExitCode::Conflict, why).hint("`teamctl land` once more"));
    }
    if !pointers.is_empty() {
        context.out.note(format_args!(
            "the content of these files of Git LFS is not in this repository, so they are pointers: {}",
            pointers.join(", ")
        ));
    }
    let text = if before == after {
        format!(
            "{branch} already contains the integration branch; it stays at {}",
            short(after)
        )
    } else {
        format!(
            "{branch} is at {} now (it was at {})",
            short(after),
            short(before)
        )
    };
    let json = json!({"branch": branch, "before": before, "after": after, "tip": tip, "pointers": pointers});
    context.out.result(&json, text).map(|()| ExitCode::Done)
}

fn try_to_land(context: &Context, args: &Branch) -> Result<Landed, CommandError> {
    let mut environment = Environment::of_self();
    environment.secrets.clear();
    // What is not trusted shows nothing; `land` continues without it.
    let visible = context
        .trusted_file()
        .map(|file| file.team.sandbox.visible.clone())
        .unwrap_or_default();
    let order = IntegrationOrder::Land {
        into: args.into.clone(),
        environment: Some(environment),
        visible,
    };
    match ask(context, order, args.timeout)? {
        Done::Landed(landed) => Ok(landed),
        other => Err(unexpected(&other)),
    }
}

/// Returns the task that has integrated the user's branch; none if nothing was to be done.
fn synced(context: &Context, args: &Branch) -> Result<Option<Task>, CommandError> {
    let order = IntegrationOrder::Sync {
        id: RandomIds.request(),
        into: args.into.clone(),
    };
    let tasks = match ask(context, order, args.timeout)? {
        Done::Tasks(tasks) => tasks,
        other => return Err(unexpected(&other)),
    };
    let Some(made) = tasks.into_iter().next() else {
        return Ok(None);
    };
    task::until_completed(context, (made.id, args.timeout)).map(Some)
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
