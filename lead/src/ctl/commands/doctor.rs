//! `teamctl doctor`: what a sandbox promises, what keeps it on this machine, and what came of trying to break it.
//!
//! It needs neither a team nor a daemon, and changes nothing.

use serde_json::{Value, json};
use teamd_shared::sandbox::{Attack, Namespaces, Probe, Promise};
use teamd_shared::team_dir::TeamDir;

use crate::ctl::context::Context;
use crate::ctl::render::{BAD, BOLD, DIM};
use crate::ctl::table::{Cell, Table};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::worker;

/// A promise, and what is to be said of it.
struct Finding {
    promise: Promise,
    held: bool,
    /// By what, or why not.
    because: String,
    /// What a confined child tried, and whether it was refused.
    attacks: Vec<Attack>,
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context) -> CommandResult {
    let probe = worker::probe(true).map_err(|why| {
        CommandError::new(ExitCode::Failed, why)
            .hint("install team-worker beside teamctl, of the same version")
    })?;
    // A team that does not exist yet would be made apart where that is needed.
    let apart = TeamDir::open(&context.path)
        .map_or(probe.layers.namespaces == Namespaces::None, |dir| !dir.root().starts_with(dir.workspace()));
    let findings: Vec<Finding> =
        Promise::ALL.into_iter().map(|promise| judge(promise, &probe, apart)).collect();
    if context.out.is_json() {
        let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        context.out.json(&json!({"layers": probe.layers, "missing": probe.missing, "promises": findings}))?;
    } else {
        context.out.text(table(&findings).render(context.out.width()))?;
        probe.missing.iter().for_each(|why| context.out.note(format_args!("missing: {why}")));
    }
    let broken = findings.iter().filter(|finding| !finding.held);
    if broken.clone().any(|finding| finding.promise.is_vital()) {
        context
            .out
            .hint("`teamd start` refuses here unless --allow-weak-sandbox is given; see docs/sandbox.md");
    }
    Ok(if broken.count() == 0 { ExitCode::Done } else { ExitCode::Failed })
}

fn judge(promise: Promise, probe: &Probe, apart: bool) -> Finding {
    let attacks: Vec<Attack> =
        probe.attacks.iter().filter(|attack| attack.promise == promise).cloned().collect();
    let kept = probe.layers.keep(promise, apart);
    let succeeded = attacks.iter().find(|attack| !attack.refused);
    let (held, because) = match (kept, succeeded) {
        (Ok(by), None) => (true, by.join(", ")),
        (Ok(_), Some(attack)) => (false, format!("a confined child could {}", attack.tried)),
        (Err(why), _) => (false, why.to_owned()),
    };
    Finding { promise, held, because, attacks }
}

impl Finding {
    fn to_json(&self) -> Value {
        json!({"promise": self.promise, "held": self.held, "because": self.because,
            "vital": self.promise.is_vital(), "attacks": self.attacks})
    }
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["PROMISE", "HELD", "TRIED", "BY, OR WHY NOT"]);
    for finding in findings {
        let held = match (finding.held, finding.promise.is_vital()) {
            (true, _) => Cell::styled("yes", BOLD),
            (false, true) => Cell::styled("NO", BAD),
            (false, false) => Cell::styled("no", BAD),
        };
        let refused = finding.attacks.iter().filter(|attack| attack.refused).count();
        let tried = match finding.attacks.len() {
            0 => Cell::styled("-", DIM),
            all => Cell::new(format!("{refused} of {all} refused")),
        };
        table.row(vec![Cell::new(finding.promise.describe()), held, tried, Cell::new(&finding.because)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_shared::sandbox::Layers;

    fn probe(refused: bool) -> Probe {
        let layers = Layers { namespaces: Namespaces::Own, landlock: 7, seccomp: true };
        let attack = Attack { promise: Promise::Outside, tried: "append to a file".to_owned(), refused };
        Probe { layers, missing: Vec::new(), attacks: vec![attack] }
    }

    #[test]
    fn a_promise_is_held_when_a_layer_keeps_it_and_no_attack_breaks_it() {
        let held = judge(Promise::Outside, &probe(true), false);
        assert_eq!((held.held, held.because.as_str()), (true, "namespaces, landlock"));
        let broken = judge(Promise::Outside, &probe(false), false);
        assert_eq!(
            (broken.held, broken.because.as_str()),
            (false, "a confined child could append to a file")
        );
    }

    #[test]
    fn the_table_tells_by_what_and_why_not() {
        let mut bare = probe(true);
        bare.layers.namespaces = Namespaces::None;
        let of = |promise| judge(promise, &bare, false);
        let findings = [of(Promise::TeamDirectory), of(Promise::Outside), of(Promise::Settings)];
        let shown = anstream::adapter::strip_str(&table(&findings).render(None)).to_string();
        insta::assert_snapshot!(shown, @r"
        PROMISE                                                  HELD  TRIED           BY, OR WHY NOT
        nothing in the team directory can be written             NO    -               the team directory lies in the workspace: without namespaces nothing parts them
        nothing outside the workspace can be written             yes   1 of 1 refused  landlock
        .git/hooks, .git/config and team.toml cannot be written  no    -               it takes namespaces
        ");
    }
}
