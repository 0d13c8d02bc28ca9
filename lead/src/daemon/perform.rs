//! What follows from a line of the journal outside of it: inbox lines, quarantine, files into the archive.
//!
//! Everything here can be done again: the ids of the lines stand in the journal, a quarantined line is known
//! by its offset, and a file that was moved is not there any more.

use teamd_shared::inbox::{self, AppendError, Durability, Rejected};
use teamd_shared::journal::{Line, MemberEvent, Record};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use super::effects::messages;

/// Why an effect is not complete yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum EffectError {
    #[error("cannot append to the inbox of {to}: {why}")]
    Append { to: Name, why: AppendError },
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Does what follows from a line. `again` looks first whether an inbox line is there already.
pub(super) fn effects(
    dir: &TeamDir,
    line: &Line,
    durability: Durability,
    again: bool,
) -> Result<(), EffectError> {
    match &line.record {
        Record::Team(record) => {
            for bad in &record.rejected {
                let (offset, line_text, reason) = (bad.offset, bad.line.clone(), bad.reason.clone());
                inbox::quarantine(
                    dir,
                    &Name::lead(),
                    &Rejected { line: line_text, offset, reason, at: line.at },
                )?;
            }
        }
        Record::Member(record) if record.event == MemberEvent::Forgotten => {
            archive(dir, &record.member.name, line.seq)?;
        }
        Record::Member(_) | Record::Request(_) => {}
    }
    for (to, message) in messages(line) {
        let known = |id| again && inbox::holds(dir, &to, id).unwrap_or(false);
        if message.id.is_some_and(known) {
            continue;
        }
        match inbox::append(dir, &to, &message, durability) {
            Ok(_) => {}
            // Its owner was forgotten: there is nobody to tell.
            Err(AppendError::NoInbox(_)) => tracing::info!("{to} has no inbox: not told"),
            Err(why) => return Err(EffectError::Append { to, why }),
        }
    }
    Ok(())
}

fn files_of(name: &Name) -> [TeamPath; 5] {
    [
        TeamPath::inbox(name),
        TeamPath::rejected(name),
        TeamPath::transcript(name),
        TeamPath::transcript_torn(name),
        TeamPath::log(name.as_str()),
    ]
}

fn archived(file: &TeamPath, seq: u64) -> TeamPath {
    let folder = file.relative().parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    TeamPath::archive(&format!("{seq}.{folder}.{}", file.file_name()))
}

/// Returns the names that the files of a member have in the archive, if it is forgotten with this `seq`.
pub(super) fn archive_names(name: &Name, seq: u64) -> Vec<String> {
    files_of(name).iter().map(|file| archived(file, seq).to_string()).collect()
}

fn archive(dir: &TeamDir, name: &Name, seq: u64) -> Result<(), DirError> {
    for file in files_of(name) {
        match dir.rename(&file, &archived(&file, seq)) {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
