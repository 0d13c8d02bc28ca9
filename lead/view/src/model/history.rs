//! All that happened in a team, from the journal and the inboxes, read once.

use teamd_client::error::CommandError;
use teamd_client::read::tail::Tail;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::feed::Feed;
use super::steps::FeedStep;

/// Returns the steps since a time (seconds since 1970), oldest first, each once.
///
/// # Errors
/// If the journal cannot be read.
pub fn history(dir: &TeamDir, since: f64) -> Result<Vec<FeedStep>, CommandError> {
    let mut feed = Feed::whole();
    let mut steps = Vec::new();
    load(dir, Since::Start, |_, line| {
        steps.extend(FeedStep::of_line(line).filter(|step| step.at >= since))
    })?;
    let files = dir.list(TeamPath::inbox(&Name::lead()).folder())?;
    let owners = files
        .iter()
        .filter_map(|file| file.at.file_name().strip_suffix(".jsonl"));
    for owner in owners.filter_map(|owner| Name::of_inbox(owner).ok()) {
        let mut tail = Tail::new(dir, TeamPath::inbox(&owner));
        let lines = tail.read_all()?;
        let of_inbox = lines
            .iter()
            .filter_map(|line| FeedStep::of_message(&owner, line));
        steps.extend(of_inbox.filter(|step| step.at >= since));
    }
    feed.add(steps);
    Ok(feed.into_steps())
}
