//! Messages, turns with tools, and tasks.

use teamd_shared::journal::Team;
use teamd_shared::task::TaskStatus;

use crate::stage::{Checked, Stage, hold};

/// Three messages and a broadcast; each one makes its receiver leave a trace.
pub(super) fn send(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    for number in 1..=2 {
        stage.send(
            "alice",
            &|attempt| format!("/bash echo m{number}.{attempt} >> effects"),
            &[],
        )?;
    }
    stage.broadcast("to all")?;
    stage.send("alice", &|attempt| format!("last.{attempt}"), &[])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// One piece of work with tools that change something.
pub(super) fn turn(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    let orders = |attempt| {
        format!(
            "/bash echo t1.{attempt} >> effects\n/write_file notes.txt hello\n/send_message bob from alice {attempt}\n\
             /edit_file {{\"path\":\"notes.txt\",\"old_text\":\"hello\",\"new_text\":\"bye\"}}\n\
             /bash echo t2.{attempt} >> effects\nall is done"
        )
    };
    stage.send("alice", &orders, &[])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// Two messages to all of them.
pub(super) fn broadcast(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    stage.broadcast("for all")?;
    stage.broadcast("for all, again")?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// Tasks that a teammate takes by itself, and their checks.
pub(super) fn tasks(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &["--auto"])?;
    complete_a_task(stage, |_| "touch made".to_owned())
}

/// A task, and the one that an order makes when it is completed: one for each.
pub(super) fn orders(stage: &mut Stage) -> Checked {
    let order = "[[order]]\nname = 'next'\non = 'task.completed'\noverlap = 'queue'\n\
                 task = {subject = 'next', check = 'test -e made'}\n";
    stage.team.write("team.toml", order);
    stage.team.trust();
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &["--auto"])?;
    complete_a_task(stage, |_| "touch made".to_owned())?;
    stage.until("the order to have made one for each", |stage| {
        let Ok(team) = stage.fold() else {
            return false;
        };
        let (made, triggers) = ordered(&team);
        made == triggers && made > 0 && !team.has_open_tasks()
    })
}

/// Returns how many tasks orders have made, and how many others were completed.
pub(crate) fn ordered(team: &Team) -> (usize, usize) {
    let made = team.tasks.values().filter(|task| task.order.is_some());
    let others = team.tasks.values().filter(|task| task.order.is_none());
    let completed = others.filter(|task| task.status == TaskStatus::Completed);
    (made.count(), completed.count())
}

/// Tasks of a teammate with a checkout: its commits are merged, checked as merged, and the branch
/// moves.
pub(super) fn integrate(stage: &mut Stage) -> Checked {
    repository(stage)?;
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &["--auto", "--checkout"])?;
    complete_a_task(stage, commits)
}

/// Makes the workspace a repository.
pub(super) fn repository(stage: &Stage) -> Checked {
    let init = "git init -q -b main . && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m first";
    let made = stage.team.run_program("bash", ["-c", init]);
    hold(made.is_done(), || {
        format!("there is no repository: {made:?}")
    })
}

/// Work that is committed.
pub(super) fn commits(number: usize) -> String {
    format!("echo {number} > made; git add made; git commit -qm {number}")
}

/// Makes a task, which a teammate takes by itself, and waits until it is done.
pub(super) fn complete_a_task(stage: &mut Stage, work: impl Fn(usize) -> String) -> Checked {
    stage.mark();
    stage.achieve(
        "make a task",
        |stage, number| {
            stage.revive()?;
            let subject = format!("attempt {number}");
            let description = format!("/bash {}", work(number));
            stage.main(&[
                "task",
                "add",
                &subject,
                "--check",
                "test -e made",
                "--description",
                &description,
            ])
        },
        |_| false,
    )?;
    // The lead hears of it after the line is synced: until then the daemon can still end.
    stage.until("the tasks to be done", |stage| {
        stage
            .fold()
            .is_ok_and(|team| team.last_task > 0 && !team.has_open_tasks())
            && stage.team.inbox("lead").iter().any(|line| {
                line["content"].as_str().is_some_and(|text| {
                    text.contains("is completed") || text.contains("has failed")
                })
            })
    })
}
