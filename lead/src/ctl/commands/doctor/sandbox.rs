//! What a sandbox promises, what keeps it on this machine, and what came of trying to break it.
//!
//! It needs neither a team nor a daemon, and changes nothing.

use std::path::PathBuf;

use serde_json::{Value, json};
use teamd_shared::config::RosterMember;
use teamd_shared::member::SandboxMode;
use teamd_shared::sandbox::{Attack, Layers, Namespaces, Probe, Promise};
use teamd_shared::team_dir::TeamDir;

use super::finding::Finding;
use super::seen::Seen;
use crate::ctl::render::{BAD, BOLD, DIM};
use crate::ctl::table::{Cell, Table};
use crate::programs;

const CHECK: &str = "sandbox";

/// A promise, and what is to be said of it.
struct Held {
    promise: Promise,
    held: bool,
    /// By what, or why not.
    because: String,
    /// What a confined child tried, and whether it was refused.
    attacks: Vec<Attack>,
}

/// What was found out about the sandbox.
pub(super) struct Confined {
    layers: Option<Layers>,
    missing: Vec<String>,
    promises: Vec<Held>,
    error: Option<String>,
}

/// Lets a confined child try to break out. A team that does not exist yet would be made apart where that is needed.
pub(super) fn look(dir: Option<&TeamDir>) -> Confined {
    match programs::attack() {
        Ok(probe) => {
            let apart = dir.map_or(probe.layers.namespaces == Namespaces::None, |dir| {
                !dir.root().starts_with(dir.workspace())
            });
            let promises = Promise::ALL.into_iter().map(|promise| judge(promise, &probe, apart)).collect();
            Confined { layers: Some(probe.layers), missing: probe.missing, promises, error: None }
        }
        Err(why) => Confined { layers: None, missing: Vec::new(), promises: Vec::new(), error: Some(why) },
    }
}

/// Looks for programs of the team that a command could change by another name.
pub(super) fn judge_programs(seen: &Seen) -> Vec<Finding> {
    let Ok(Some(roster)) = &seen.roster else { return Vec::new() };
    let writes = |member: &&RosterMember| {
        !member.status.is_ended() && member.sandbox.mode == SandboxMode::WorkspaceWrite
    };
    let members = roster.members.iter().filter(writes);
    let changed =
        members.filter_map(|it| Some((&it.name, programs::with_another_name(it.where_it_writes())?)));
    let finding = |(name, program): (_, PathBuf)| {
        Finding::note("programs", format!("{} has another name where {name} may write", program.display()))
            .means("a command can change it by that name, and the next `teamd` or `teamctl` that you run would be its own")
            .next(programs::INSTALL_ELSEWHERE)
    };
    changed.map(finding).collect()
}

impl Confined {
    /// Returns what is wrong with it, or that nothing is.
    pub(super) fn findings(&self) -> Vec<Finding> {
        if let Some(why) = &self.error {
            return vec![
                Finding::problem(CHECK, why)
                    .means("no teammate can be started, and nothing is known of the sandbox")
                    .next("install team-worker beside teamctl, of the same version"),
            ];
        }
        let broken: Vec<_> = self.promises.iter().filter(|it| !it.held).map(Held::finding).collect();
        if !broken.is_empty() {
            return broken;
        }
        let layers = self.layers.map(|layers| layers.to_string()).unwrap_or_default();
        let (held, tried) =
            (self.promises.len(), self.promises.iter().map(|it| it.attacks.len()).sum::<usize>());
        vec![Finding::ok(
            CHECK,
            format!("{held} promises held by {layers}; {tried} attempts to break out refused"),
        )]
    }

    /// Returns the promises as a table; none if nothing is known of them.
    pub(super) fn table(&self) -> Option<Table> {
        (!self.promises.is_empty()).then(|| table(&self.promises))
    }

    /// Returns what is missing on this machine.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns it for programs.
    pub(super) fn to_json(&self) -> Value {
        let promises: Vec<Value> = self.promises.iter().map(Held::to_json).collect();
        json!({"layers": self.layers, "missing": self.missing, "promises": promises})
    }
}

fn judge(promise: Promise, probe: &Probe, apart: bool) -> Held {
    let attacks: Vec<Attack> =
        probe.attacks.iter().filter(|attack| attack.promise == promise).cloned().collect();
    let kept = probe.layers.keep(promise, apart);
    let succeeded = attacks.iter().find(|attack| !attack.refused);
    let (held, because) = match (kept, succeeded) {
        (Ok(by), None) => (true, by.join(", ")),
        (Ok(_), Some(attack)) => (false, format!("a confined child could {}", attack.tried)),
        (Err(why), _) => (false, why.to_owned()),
    };
    Held { promise, held, because, attacks }
}

impl Held {
    fn finding(&self) -> Finding {
        let finding =
            Finding::problem(CHECK, format!("not held: {} ({})", self.promise.describe(), self.because));
        match self.promise.is_vital() {
            true => finding.means("`teamd start` refuses here").next(
                "`teamd start --allow-weak-sandbox` starts nevertheless; docs/sandbox.md says what is lost",
            ),
            false => finding
                .means("teams work; what a teammate runs is confined less than promised")
                .next("docs/sandbox.md says what this machine lacks"),
        }
    }

    fn to_json(&self) -> Value {
        json!({"promise": self.promise, "held": self.held, "because": self.because,
            "vital": self.promise.is_vital(), "attacks": self.attacks})
    }
}

fn table(findings: &[Held]) -> Table {
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
        PROMISE                                       HELD  TRIED           BY, OR WHY NOT
        nothing in the team directory can be written  NO    -               the team directory lies in the workspace: without namespaces nothing parts them
        nothing outside the workspace can be written  yes   1 of 1 refused  landlock
        .git/hooks and .git/config cannot be written  no    -               it takes namespaces
        ");
    }
}
