//! The promises of the sandbox: which layer keeps each on this machine, and whether a confined
//! child could break it.
//!
//! It needs neither a team nor a daemon, and changes nothing.

use serde::Serialize;
use teamd_client::print::render::count;
use teamd_client::programs;
use teamd_shared::member::SandboxMode;
use teamd_shared::sandbox::{Attack, Layers, Namespaces, Probe, Promise};
use teamd_shared::team_dir::TeamDir;

use super::finding::{CheckFinding, DoctorCheck, run};
use super::snapshot::Snapshot;

/// What is known of the sandbox.
#[derive(Default, Serialize)]
pub(super) struct Confined {
    layers: Option<Layers>,
    /// What this machine lacks.
    pub(super) missing: Vec<String>,
    promises: Vec<JudgedPromise>,
    /// Why nothing is known.
    #[serde(skip)]
    error: Option<String>,
}

/// A promise, and whether it is held.
#[derive(Serialize)]
struct JudgedPromise {
    promise: Promise,
    held: bool,
    /// By which layers, or why not.
    because: String,
    /// Whether `teamd start` refuses without it.
    vital: bool,
    /// What a confined child tried, and whether it was refused.
    attacks: Vec<Attack>,
}

/// Has a confined child try to break out. A team directory that does not exist yet would be made
/// outside the workspace where that is needed.
pub(super) fn attack(dir: Option<&TeamDir>) -> Confined {
    match programs::attack() {
        Ok(probe) => {
            let apart = dir.map_or(probe.layers.namespaces == Namespaces::None, |dir| {
                !dir.root().starts_with(dir.workspace())
            });
            let promises = Promise::ALL
                .into_iter()
                .map(|promise| judge(promise, &probe, apart))
                .collect();
            Confined {
                layers: Some(probe.layers),
                missing: probe.missing,
                promises,
                error: None,
            }
        }
        Err(why) => Confined {
            error: Some(why),
            ..Confined::default()
        },
    }
}

fn judge(promise: Promise, probe: &Probe, apart: bool) -> JudgedPromise {
    let attacks: Vec<Attack> = probe
        .attacks
        .iter()
        .filter(|attack| attack.promise == promise)
        .cloned()
        .collect();
    let succeeded = attacks.iter().find(|attack| !attack.refused);
    let (held, because) = match (probe.layers.enforcement(promise, apart), succeeded) {
        (Ok(by), None) => (true, by.join(", ")),
        (Ok(_), Some(attack)) => (false, format!("a confined child could {}", attack.tried)),
        (Err(why), _) => (false, why.to_owned()),
    };
    JudgedPromise {
        promise,
        held,
        because,
        vital: promise.is_vital(),
        attacks,
    }
}

impl Confined {
    /// Returns each promise: by which layers it is held, or that it is not.
    pub(super) fn findings(&self) -> Vec<CheckFinding> {
        run("sandbox", |check| {
            if let Some(why) = &self.error {
                let means = "no teammate can be started, and nothing is known of the sandbox";
                let install = "install team-worker beside teamctl, of the same version";
                let next = programs::place_for_probe(why).unwrap_or(install);
                check.problem(why, means, next);
            }
            for promise in &self.promises {
                promise.report(check);
            }
            if let Some(layers) = self.layers {
                report_network(check, layers.namespaces);
            }
            None
        })
    }
}

impl JudgedPromise {
    fn report(&self, check: &mut DoctorCheck) {
        let promise = self.promise.describe();
        let because = &self.because;
        if self.held {
            let attempts = match self.attacks.len() {
                0 => String::new(),
                attempts => format!("; {} refused", count(attempts, "attempt")),
            };
            check.ok(format!("{promise} ({because}{attempts})"));
            return;
        }
        let what = format!("not held: {promise} ({because})");
        if self.vital {
            let next = "`teamd start --allow-weak-sandbox` starts nevertheless; docs/sandbox.md says what is lost";
            check.problem(what, "`teamd start` refuses here", next);
        } else {
            let means = "teams work; what a teammate runs is confined less than promised";
            check.problem(what, means, "docs/sandbox.md says what this machine lacks");
        }
    }
}

/// Reports whether the gate of an agent, and a list of hosts, are enforced.
fn report_network(check: &mut DoctorCheck, namespaces: Namespaces) {
    if namespaces == Namespaces::Own {
        check.ok("the gate of an agent changes while it runs, and behind it there is no network but the provider's own tools; `network` may list hosts, and a teammate may have a localhost of its own (namespaces)");
        return;
    }
    check.note(
        "the gate of an agent does not change while it runs, no list of hosts is enforced, and no teammate has a localhost of its own; an agent that has a key also reaches the network behind a closed gate (no namespaces of our own)",
        "when the gate closes, the agent is ended; a teammate with such a list is refused; `spawn` says what an agent reaches",
        "docs/agents.md says what is confined",
    );
}

/// Judges whether a tool call could change a program of the team by another name.
pub(super) fn programs(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let roster = snapshot.roster.as_ref().ok()?.as_ref()?;
    for member in roster.members.iter().filter(|member| {
        !member.status.is_ended() && member.sandbox.mode == SandboxMode::WorkspaceWrite
    }) {
        if let Some(program) = programs::with_another_name(member.where_it_writes()) {
            check.note(
                format!(
                    "{} has another name where {} may write",
                    program.display(),
                    member.name
                ),
                "a tool call can change it by that name, and you would run the changed program",
                programs::INSTALL_ELSEWHERE,
            );
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(refused: bool) -> Probe {
        let layers = Layers {
            namespaces: Namespaces::Own,
            landlock: 7,
            seccomp: true,
        };
        let attack = Attack {
            promise: Promise::Outside,
            tried: "append to a file".to_owned(),
            refused,
        };
        Probe {
            layers,
            missing: Vec::new(),
            attacks: vec![attack],
        }
    }

    #[test]
    fn a_promise_is_held_when_a_layer_keeps_it_and_no_attack_breaks_it() {
        let held = judge(Promise::Outside, &probe(true), false);
        assert_eq!(
            (held.held, held.because.as_str()),
            (true, "namespaces, landlock")
        );
        let broken = judge(Promise::Outside, &probe(false), false);
        assert_eq!(
            (broken.held, broken.because.as_str()),
            (false, "a confined child could append to a file")
        );
    }

    #[test]
    fn each_promise_is_shown_with_what_holds_it_or_why_not() {
        let mut bare = probe(true);
        bare.layers.namespaces = Namespaces::None;
        let promises = [Promise::TeamDirectory, Promise::Outside, Promise::Settings];
        let promises = promises.map(|promise| judge(promise, &bare, false)).into();
        let confined = Confined {
            promises,
            ..Confined::default()
        };
        let findings: Vec<String> = confined
            .findings()
            .into_iter()
            .map(|finding| format!("{:?} {}", finding.severity, finding.what))
            .collect();
        insta::assert_snapshot!(findings.join("\n"), @r"
        Problem not held: nothing in the team directory can be written (the team directory lies in the workspace: without namespaces nothing parts them)
        Ok nothing outside the workspace can be written (landlock; 1 attempt refused)
        Problem not held: .git/hooks and .git/config cannot be written (needs namespaces)
        ");
    }
}
