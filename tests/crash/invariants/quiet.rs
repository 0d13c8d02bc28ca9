//! At rest: the daemon runs, no command asks it for anything, and what it has decided comes to its
//! end by itself. A command would hide what was left undone, since it is completed with the next
//! line of the journal.

use std::time::{Duration, Instant};

use super::{decided, gates, hosts, incarnations, processes, records, work};
use crate::stage::{Checked, PATIENCE, Stage, Violation};

/// Waits, doing nothing, until all that was decided has happened; nothing else may be true then.
pub(super) fn check(stage: &Stage) -> Checked {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    while let Err(Violation(why)) = rests(stage) {
        if began.elapsed() > PATIENCE {
            return Err(Violation(format!(
                "left to itself, the team does not come to rest: {why}"
            )));
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(15));
    }
    records::requests_were_made(stage)?;
    incarnations::check(stage)?;
    gates::check(stage)
}

/// One look; the processes belong to the roster only if that is the same after it.
fn rests(stage: &Stage) -> Checked {
    let before = stage.roster();
    let fold = stage.fold()?;
    records::compare(&before, &fold, false)?;
    records::all_members_rest(&before, &fold)?;
    decided::check(stage)?;
    work::is_done(stage)?;
    hosts::is_complete(stage)?;
    records::archive(stage)?;
    processes::check_alive(stage, &before)?;
    if stage.roster()["seq"] == before["seq"] {
        Ok(())
    } else {
        Err(Violation("the team changes".to_owned()))
    }
}
