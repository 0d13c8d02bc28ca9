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

use super::finding::{Check, CheckFinding, Severity, run};
use super::seen::Seen;

/// What is known of the sandbox.
#[derive(Default, Serialize)]
pub(super) struct Confined {
    layers: Option<Layers>,
    /// What this machine lacks.
    pub(super) missing: Vec<String>,
    promises: Vec<Judged>,
    /// Why nothing is known.
    #[serde(skip)]
    error: Option<String>,
}

/// A promise, and whether it is held.
#[derive(Serialize)]
struct Judged {
    promise: Promise,
    held: bool,
    /// By which layers, or why not.
    because: String,
    /// Whether `teamd start` refuses without it.
    vital: bool,
    /// What a confined child tried, and whether it was refused.
    attacks: Vec<Attack>,
}

/// Lets a confined child try to break out. A team that does not exist yet would be made apart where
/// that is needed.
pub(super) fn look(dir: Option<&TeamDir>) -> Confined {
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

fn judge(promise: Promise, probe: &Probe, apart: bool) -> Judged {
    let attacks: Vec<Attack> = probe
        .attacks
        .iter()
        .filter(|it| it.promise == promise)
        .cloned()
        .collect();
    let succeeded = attacks.iter().find(|attack| !attack.refused);
    let (held, because) = match (probe.layers.enforcement(promise, apart), succeeded) {
        (Ok(by), None) => (true, by.join(", ")),
        (Ok(_), Some(attack)) => (false, format!("a confined child could {}", attack.tried)),
        (Err(why), _) => (false, why.to_owned()),
    };
    Judged {
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
                check.problem(
                    why,
                    means,
                    programs::place_for_probe(why).unwrap_or(install),
                );
            }
            for it in &self.promises {
                if it.held {
                    let by = match it.attacks.len() {
                        0 => it.because.clone(),
                        tried => format!("{}; {} refused", it.because, count(tried, "attempt")),
                    };
                    check.add(
                        Severity::Ok,
                        format!("{} ({by})", it.promise.describe()),
                        "",
                        "",
                    );
                    continue;
                }
                let (means, next) = if it.vital {
                    (
                        "`teamd start` refuses here",
                        "`teamd start --allow-weak-sandbox` starts nevertheless; docs/sandbox.md says what is lost",
                    )
                } else {
                    (
                        "teams work; what a teammate runs is confined less than promised",
                        "docs/sandbox.md says what this machine lacks",
                    )
                };
                check.problem(
                    format!("not held: {} ({})", it.promise.describe(), it.because),
                    means,
                    next,
                );
            }
            match self.layers.map(|layers| layers.namespaces) {
                None => {}
                Some(Namespaces::Own) => {
                    let live = "the gate of an agent changes while it runs, and behind it there is no network but the provider's own tools; `network` may list hosts (namespaces)";
                    check.add(Severity::Ok, live, "", "");
                }
                Some(Namespaces::None | Namespaces::Bubblewrap) => check.note(
                    "the gate of an agent does not change while it runs, and no list of hosts is enforced; an agent that has a key reaches the network behind a closed gate, too (no namespaces of our own)",
                    "when the gate closes, the agent is ended; a teammate with such a list is refused; `spawn` says what an agent reaches",
                    "docs/agents.md says what is confined",
                ),
            }
            None
        })
    }
}

/// Judges whether a tool call could change a program of the team by another name.
pub(super) fn programs(seen: &Seen, check: &mut Check) -> Option<String> {
    let roster = seen.roster.as_ref().ok()?.as_ref()?;
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
    fn each_promise_is_told_by_what_it_is_held_or_why_not() {
        let mut bare = probe(true);
        bare.layers.namespaces = Namespaces::None;
        let promises = [Promise::TeamDirectory, Promise::Outside, Promise::Settings];
        let promises = promises.map(|promise| judge(promise, &bare, false)).into();
        let told = Confined {
            promises,
            ..Confined::default()
        }
        .findings();
        let told: Vec<String> = told
            .into_iter()
            .map(|it| format!("{:?} {}", it.severity, it.what))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @r"
        Problem not held: nothing in the team directory can be written (the team directory lies in the workspace: without namespaces nothing parts them)
        Ok nothing outside the workspace can be written (landlock; 1 attempt refused)
        Problem not held: .git/hooks and .git/config cannot be written (needs namespaces)
        ");
    }
}
