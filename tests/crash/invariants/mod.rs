//! What must hold at the end of every run, whatever died, and when.

pub(crate) mod agents;
mod decided;
mod effects;
mod gates;
mod hosts;
pub(crate) mod incarnations;
mod mail;
pub(crate) mod processes;
mod quiet;
mod records;
mod returned;
mod tasks;
pub(crate) mod told;
mod work;

use crate::stage::{Checked, Stage, Violation, hold};

/// Lets the team come to rest, shows that everything can still be done, ends it, and reads its
/// files.
pub(crate) fn finish(stage: &mut Stage) -> Checked {
    stage.tracer.unmark();
    stage.tracer.until_killed();
    stage.ensure_daemon()?;
    quiet::check(stage)?;
    still_works(stage)?;
    quiet::check(stage)?;
    stage.stop(false)?;
    stage.end_the_host()?;
    processes::check_none(stage)?;
    let fold = stage.fold()?;
    records::check_ended(stage, &fold)?;
    incarnations::check(stage)?;
    gates::check(stage)?;
    mail::check(stage, &fold)?;
    hosts::check(stage)?;
    decided::check(stage)?;
    returned::check(stage)?;
    for name in fold.members.keys() {
        decided::notices(stage, name.as_str())?;
        told::check_background(stage, name.as_str())?;
    }
    tasks::check(stage, &fold)?;
    work::check(stage)?;
    effects::check(stage)?;
    agents::check(stage)?;
    told::check_logs(stage)?;
    told::check_order(stage)
}

/// After the fault, a teammate can be spawned, spoken to, and sent away.
fn still_works(stage: &mut Stage) -> Checked {
    let spawned = stage.ctl(&["spawn", "zoe"])?;
    hold(spawned.is_done(), || {
        format!("afterwards no teammate can be spawned: {spawned:?}")
    })?;
    stage.send_plain("zoe", "/bash echo z1 >> effects", &[])?;
    let told = stage.ledger.sent.last().is_some_and(|sent| sent.told);
    hold(told, || "afterwards no message can be sent".to_owned())?;
    stage.until_read("zoe")?;
    stage.ledger.asked_to_leave.push("zoe".to_owned());
    let gone = stage.ctl(&["shutdown", "zoe"])?;
    hold(gone.is_done(), || {
        format!("afterwards no teammate can be shut down: {gone:?}")
    })?;
    match stage.status("zoe").as_str() {
        "shutdown" => Ok(()),
        other => Err(Violation(format!("zoe was shut down, and is {other}"))),
    }
}
