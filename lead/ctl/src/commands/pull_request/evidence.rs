//! The body of a pull request: per task what was checked, how that ended, what it was checked on,
//! and who approved it. Texts of models stand in blocks of code in which nothing works. No log, no
//! path, and no cost unless it is asked for. Pure.

use std::path::PathBuf;

use teamd_client::print::clock;
use teamd_shared::member::ApproveBy;
use teamd_shared::task::{Task, TaskId};

use crate::github::{fenced, harmless};

/// How long a body may be, in characters: GitHub takes 65,536.
const MOST: usize = 60_000;

/// How much of one text is shown, in characters.
const MOST_TEXT: usize = 2_000;

/// What is known of a task that is integrated.
pub(super) struct TaskEvidence<'a> {
    pub(super) task: &'a Task,
    /// The tree of the commit that was checked, which is the one that was integrated.
    pub(super) tree: String,
    /// Who approved the submission; none if no review was asked for.
    pub(super) approved_by: Option<ApproveBy>,
    /// In dollars, if that is to be shown.
    pub(super) cost: Option<String>,
}

/// Writes the body. `places`: directories of this machine, which texts may name.
pub(super) fn body(tasks: &[TaskEvidence<'_>], places: &[PathBuf]) -> String {
    let mut body = "What the daemon of the team recorded for each task. Texts in blocks were written by models or by others.\n"
        .to_owned();
    let mut length = body.chars().count();
    for (done, task) in tasks.iter().enumerate() {
        let section = section(task, places);
        length += section.chars().count();
        if length > MOST {
            let left = tasks.len() - done;
            body.push_str(&format!("\n{left} more tasks are left out here.\n"));
            break;
        }
        body.push_str(&section);
    }
    body
}

/// Names the tasks in the title of a pull request, in no words of a model.
pub(super) fn title(team_name: &str, ids: &[TaskId]) -> String {
    let named: Vec<String> = ids.iter().take(5).map(ToString::to_string).collect();
    let more = if ids.len() > named.len() {
        " and more"
    } else {
        ""
    };
    let noun = if ids.len() == 1 { "task" } else { "tasks" };
    let team: String = harmless(team_name).chars().take(60).collect();
    format!("{team}: {noun} {}{more}", named.join(", "))
}

fn section(evidence: &TaskEvidence<'_>, places: &[PathBuf]) -> String {
    let TaskEvidence {
        task,
        tree,
        approved_by,
        cost,
    } = evidence;
    let block = |text: &str| fenced(&shortened(&without(places, text)));
    let mut lines = vec![
        format!("\n### Task {}\n", task.id),
        block(&task.subject),
        String::new(),
    ];
    let submission = task.submission.as_ref();
    let result = task.result.as_ref();
    let check = result.and_then(|result| result.check.as_ref());
    let verified = result.map_or("no", |result| result.verified());
    lines.push(match check {
        Some(check) => {
            let exit = check.exit.map_or("ended by a signal".to_owned(), |exit| {
                format!("exit code {exit}")
            });
            let time = clock::span(check.seconds);
            format!("- check: {exit} after {time}, verified: {verified}")
        }
        None => "- check: none ran, so nothing is verified".to_owned(),
    });
    lines.push(format!("- checked tree: `{tree}`"));
    lines.push(match approved_by {
        // It was submitted by the person whose branch it is.
        None if task.branch.is_some() => "- a branch of a person".to_owned(),
        Some(ApproveBy::Person) => "- approved by: a person".to_owned(),
        Some(ApproveBy::Lead) => "- approved by: the lead, who may be a model".to_owned(),
        None => "- approved by: nobody, no review was asked for".to_owned(),
    });
    lines.extend(cost.as_ref().map(|cost| format!("- cost: {cost}")));
    let commands: Vec<&str> = submission
        .iter()
        .flat_map(|submission| &submission.checks)
        .map(|check| check.command.as_str())
        .collect();
    if check.is_some() && !commands.is_empty() {
        lines.push(format!(
            "\nChecked with:\n\n{}",
            block(&commands.join("\n"))
        ));
    }
    let summary = result.map_or("", |result| result.summary.trim());
    if !summary.is_empty() {
        lines.push(format!(
            "\nIts author, a model, says:\n\n{}",
            block(summary)
        ));
    }
    lines.join("\n") + "\n"
}

/// Returns a text without the directories of this machine.
fn without(places: &[PathBuf], text: &str) -> String {
    let mut names: Vec<String> = places
        .iter()
        .map(|place| place.to_string_lossy().trim_end_matches('/').to_owned())
        .filter(|place| place.len() > 1)
        .collect();
    // What lies in another one comes first.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = text.to_owned();
    for name in names {
        text = text.replace(&name, "…");
    }
    text
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MOST_TEXT).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> Task {
        serde_json::from_value(json!({
            "id": 3, "subject": "fixes #1 for @acme", "description": "", "status": "completed", "owner": null,
            "blocked_by": [], "blocks": [], "for": null, "priority": 0, "check": null, "review": "person",
            "attempts": 0, "max_attempts": 3, "returns": 0, "reminders": 0, "idle_releases": 0,
            "created_by": "user", "created_at": 0.0, "updated_at": 0.0,
            "submission": {"number": 1, "by": "alice", "summary": "s", "checks": [{"command": "/home/u/web/try", "set_by": "user"}],
                "stage": "integrating"},
            "result": {"submission": 1, "summary": "see /home/u/web/.team/log\n````\nCloses #2", "verified": "checked",
                "check": {"command": "/home/u/web/try", "set_by": "user", "exit": 0, "seconds": 12.0, "log": "log/task-3.log"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_body_has_the_evidence_and_nothing_in_it_works() {
        let task = task();
        let places = ["/home/u", "/home/u/web", "/"].map(PathBuf::from);
        let evidence = |cost: Option<&str>| TaskEvidence {
            task: &task,
            tree: "f00d".to_owned(),
            approved_by: Some(ApproveBy::Person),
            cost: cost.map(str::to_owned),
        };
        let shown = body(&[evidence(None)], &places);
        for part in [
            "### Task 3",
            "exit code 0 after 12s, verified: checked",
            "checked tree: `f00d`",
            "approved by: a person",
            "…/try",
            "see …/.team/log",
            "`````text\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for absent in [
            "/home",
            "log/task-3",
            "@acme",
            "#1",
            "#2",
            "fixes",
            "Closes",
            "cost",
        ] {
            assert!(!shown.contains(absent), "{absent}: {shown}");
        }
        assert!(body(&[evidence(Some("$0.12"))], &places).contains("- cost: $0.12"));
        let many: Vec<_> = (0..500).map(|_| evidence(None)).collect();
        let shown = body(&many, &places);
        assert!(shown.chars().count() < 65_536 && shown.contains("more tasks are left out"));
    }

    #[test]
    fn a_title_has_no_words_of_a_model() {
        assert_eq!(title("web", &[3]), "web: task 3");
        assert_eq!(
            title("web", &[1, 2, 3, 4, 5, 6]),
            "web: tasks 1, 2, 3, 4, 5 and more"
        );
        assert!(!title("@acme", &[1]).contains("@acme"));
    }
}
