//! The answer to a review that was given on the page, with comments on lines of the work.

use serde::Deserialize;
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::id::RequestId;

use crate::review::{Commits, LineComment, Reviewed, feedback};

/// The longest comment, in bytes.
const COMMENT: usize = 16 << 10;

/// An answer to a review, with comments on lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReviewAnswer {
    pub(super) id: RequestId,
    pub(super) approve: bool,
    pub(super) feedback: String,
    #[serde(default)]
    pub(super) code: Option<String>,
    /// What the page showed.
    work: String,
    comments: Vec<CommentForm>,
}

/// A comment on a line, which is named by its place in what the page showed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommentForm {
    since: bool,
    file: usize,
    hunk: usize,
    line: usize,
    text: String,
}

impl ReviewAnswer {
    /// Returns what the author is told.
    ///
    /// # Errors
    /// If a comment is on no line of the work, or if this is other work than the page showed.
    pub(super) fn feedback(&self, context: &Context) -> Result<String, CommandError> {
        if self.comments.is_empty() {
            return Ok(self.feedback.clone());
        }
        let reviewed = Reviewed::find(context, self.id.as_str())?;
        if self.work != name_of_work(reviewed.commits.as_ref()) {
            let message = "nothing was answered: the work has changed since it was shown";
            return Err(CommandError::new(ExitCode::Conflict, message)
                .hint("load the page again, and look"));
        }
        let comments = self.comments.iter().map(|it| it.on(&reviewed));
        let comments = comments.collect::<Result<Vec<_>, _>>()?;
        Ok(feedback(&self.feedback, comments))
    }
}

impl CommentForm {
    fn on(&self, reviewed: &Reviewed) -> Result<LineComment, CommandError> {
        let bad = |message: &str| {
            CommandError::new(ExitCode::Usage, format!("nothing was answered: {message}"))
        };
        let text = self.text.trim();
        if text.is_empty() {
            return Err(bad("a comment is empty").hint("remove it, or write what is to change"));
        }
        if text.len() > COMMENT {
            return Err(bad("a comment is longer than 16 KiB").hint("shorten it"));
        }
        let changes = match &reviewed.since {
            Some(since) if self.since => since,
            None if self.since => return Err(bad("there is no earlier submission")),
            _ => &reviewed.changes,
        };
        let file = changes.files.get(self.file);
        let line = file.and_then(|it| it.hunks.get(self.hunk)?.lines.get(self.line));
        let (Some(file), Some(line)) = (file, line) else {
            return Err(bad("a comment is on a line that the work does not have")
                .hint("load the page again, and look"));
        };
        Ok(LineComment::on(file, line, text))
    }
}

/// Names the work that is shown.
pub(super) fn name_of_work(commits: Option<&Commits>) -> String {
    let Some(commits) = commits else {
        return String::new();
    };
    let before = commits.before.as_deref().unwrap_or_default();
    format!("{} {} {before}", commits.base, commits.commit)
}
