//! What a command may do: three sets of paths, and the network. Pure: it follows from the mode, the
//! gate and where things lie.
//!
//! A path is *writable*, *protected* below a writable one, or *hidden*, and so is all that lies
//! below it, down to the next path of a set. What is in no set can be read. How a set is enforced
//! is the business of other modules.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use teamd_shared::member::{Gate, Sandbox, SandboxMode};
use teamd_shared::sandbox::{Layers, Namespaces};

use super::CommandPlaces;
use super::git::{self, Elsewhere};
use super::place::Place;
use super::protected::{Missing, Protected};
use super::skills;

/// Something that a command may write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writable {
    /// What it is on the machine.
    pub(crate) place: Place,
    /// Where the command finds it.
    pub(crate) at: PathBuf,
    /// Whether only files and directories may be made there: no links, pipes and devices.
    pub(crate) plain: bool,
}

impl Writable {
    fn new(place: Place) -> Self {
        Self {
            at: place.path.clone(),
            place,
            plain: false,
        }
    }
}

/// Something that a command may not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hidden {
    pub(crate) path: PathBuf,
    /// Whether it belongs to a team: then a command may not even list it. A descriptor is enough
    /// to take an advisory lock, and such locks show the daemon which workers are alive.
    pub(crate) is_of_team: bool,
}

/// What lies where now: looked up before each command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Present {
    /// The secrets that are there, and what of a home no tool needs.
    pub(crate) secrets: Vec<PathBuf>,
    /// What of that is seen nevertheless.
    pub(crate) shown: Vec<PathBuf>,
    /// The team directories of the user, this one and others, and their registers, by every path.
    pub(crate) teams: Vec<PathBuf>,
    /// The repository of the workspace, if that lies elsewhere.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// The repositories that files `.git` name, and that a command may write anyway.
    pub(crate) inside: Vec<PathBuf>,
    /// The files that say where the repository of a writable directory is.
    pub(crate) git_files: Vec<PathBuf>,
}

/// What one command may do. The worker decides it; the shim and the sandbox init read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The layers that enforce it.
    pub(crate) layers: Layers,
    /// Whether the command has the network of the machine.
    pub network: bool,
    /// The temporary directory, which every command may write.
    pub(crate) temp: Writable,
    /// The state directory of an agent, which it may always write, too.
    pub(crate) state: Option<Writable>,
    /// What else it may write: the set of the gate, empty while that is closed.
    pub(crate) writable: Vec<Writable>,
    /// What it may not write of that.
    pub(crate) protected: Vec<Protected>,
    /// What it may not read.
    pub(crate) hidden: Vec<Hidden>,
    /// What of that it sees nevertheless. It can write there only what is writable.
    pub(crate) shown: Vec<PathBuf>,
    /// Where shims note which protected files were missing: no command reaches it.
    pub(crate) notes: PathBuf,
}

impl Policy {
    /// Returns what a command may do; none: all that the user may.
    pub(crate) fn of(
        sandbox: &Sandbox,
        gate: Gate,
        places: &CommandPlaces,
        present: Present,
        layers: Layers,
    ) -> Option<Self> {
        if sandbox.mode == SandboxMode::Off && gate == Gate::Open {
            return None;
        }
        let writes = gate == Gate::Open && sandbox.mode == SandboxMode::WorkspaceWrite;
        let Present {
            secrets,
            shown,
            teams,
            elsewhere,
            inside,
            git_files,
        } = present;
        // Without Landlock nothing keeps a link from being made there, and `git` of another tree
        // would follow it.
        let elsewhere = if layers.landlock > 0 { elsewhere } else { None };
        let mut writable = Vec::new();
        let mut protected = Vec::new();
        if writes {
            // Nothing of a team directory is ever allowed by name, and no program that others run.
            let named = places
                .writable
                .iter()
                .filter(|it| !is_below_any(&it.path, &teams))
                .filter(|it| !is_below_any(&it.path, &places.programs));
            for place in [&places.workspace].into_iter().chain(named) {
                protected.extend(git::protected_in(&place.path, &git_files));
                protected.extend(skills::protected_in(&place.path));
                writable.push(Writable::new(place.clone()));
            }
            for repository in elsewhere.iter() {
                protected.extend(git::protected_of(repository));
                let written = git::written_of(repository)
                    .into_iter()
                    .map(Place::of_this_call);
                writable.extend(written.map(|place| Writable {
                    plain: true,
                    ..Writable::new(place)
                }));
            }
            protected.extend(
                inside
                    .iter()
                    .flat_map(|it| git::protected_of_one_inside(it)),
            );
            let sealed = places.sealed.iter().map(|it| Protected {
                path: it.clone(),
                if_missing: Missing::Leave,
            });
            protected.extend(sealed);
            let programs = places.programs.iter().filter(|it| is_within(it, &writable));
            protected.extend(programs.map(|it| Protected {
                path: it.clone(),
                if_missing: Missing::Leave,
            }));
        }
        let secrets = secrets.into_iter().map(|path| Hidden {
            path,
            is_of_team: false,
        });
        let teams = teams.into_iter().map(|path| Hidden {
            path,
            is_of_team: true,
        });
        let mut hidden: Vec<_> = secrets.chain(teams).collect();
        let mut temp = Writable::new(places.temp.clone());
        if layers.namespaces != Namespaces::None && !needs_tmp(places, &writable) {
            // The command has another `/tmp`.
            hidden.retain(|it| !it.path.starts_with("/tmp"));
            temp.at = "/tmp".into();
        }
        Some(Self {
            layers,
            network: sandbox.has_network(gate) && sandbox.hosts.is_empty(),
            temp,
            state: places.state.clone().map(Writable::new),
            writable,
            protected,
            hidden,
            shown: [places.shown.clone(), shown].concat(),
            notes: places.team_dir.join("run"),
        })
    }

    /// Returns all that the command may write.
    pub(crate) fn all_writable(&self) -> impl Iterator<Item = &Writable> {
        [&self.temp]
            .into_iter()
            .chain(&self.state)
            .chain(&self.writable)
    }

    /// Tells whether a place is writable behind a closed gate, too.
    pub(super) fn is_always_writable(&self, at: &Path) -> bool {
        self.temp.at == at || self.state.as_ref().is_some_and(|state| state.at == at)
    }

    /// Tells whether the command has mounts of its own.
    pub(crate) fn has_mounts(&self) -> bool {
        self.layers.namespaces != Namespaces::None
    }

    /// Tells whether something lies in what the gate lets the command write.
    pub(crate) fn is_writable(&self, path: &Path) -> bool {
        is_within(path, &self.writable)
    }

    /// Returns why the layers cannot confine the command as promised; none if they can. `programs`
    /// are those of the team.
    pub(crate) fn weakness(&self, programs: &[PathBuf]) -> Option<String> {
        let hidden = self
            .hidden
            .iter()
            .map(|it| (&it.path, "is hidden from commands"));
        let programs = programs.iter().map(|it| (it, "is a program of the team"));
        let mut kept = hidden.chain(programs);
        if !self.has_mounts()
            && let Some((path, what)) = kept.find(|(path, _)| self.is_writable(path))
        {
            return Some(format!(
                "{} {what}, but lies in what it may write: it takes namespaces to part them",
                path.display()
            ));
        }
        self.layers.weakness(self.is_apart())
    }

    /// Tells whether nothing that the command may write holds a team directory, or lies in one.
    fn is_apart(&self) -> bool {
        for writable in self.all_writable() {
            let path = &writable.place.path;
            let is_shown = is_below_any(path, &self.shown);
            for team in self.hidden.iter().filter(|it| it.is_of_team) {
                if team.path.starts_with(path) || path.starts_with(&team.path) && !is_shown {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the temporary directory as the command sees it.
    pub(crate) fn temp_inside(&self) -> &Path {
        &self.temp.at
    }
}

fn is_within(path: &Path, writable: &[Writable]) -> bool {
    writable.iter().any(|it| path.starts_with(&it.at))
}

fn is_below_any(path: &Path, above: &[PathBuf]) -> bool {
    above.iter().any(|it| path.starts_with(it))
}

/// Tells whether something that a command needs lies below `/tmp`: then that cannot be its own.
fn needs_tmp(places: &CommandPlaces, writable: &[Writable]) -> bool {
    let tmp = Path::new("/tmp");
    let named = places
        .writable
        .iter()
        .chain([&places.workspace])
        .map(|it| &it.path);
    let linked = writable.iter().map(|it| &it.place.path);
    let state = places.state.iter().map(|it| &it.path);
    let mut needed = named
        .chain(linked)
        .chain(state)
        .chain(&places.homes)
        .chain([&places.team_dir]);
    needed.any(|path| path.starts_with(tmp) || tmp.starts_with(path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const LAYERS: Layers = Layers {
        namespaces: Namespaces::Own,
        landlock: 7,
        seccomp: true,
    };
    const BARE: Layers = Layers {
        namespaces: Namespaces::None,
        ..LAYERS
    };

    pub(crate) fn place(path: &str) -> Place {
        Place::of_this_call(path.into())
    }

    fn places(workspace: &str, team_dir: &str) -> CommandPlaces {
        CommandPlaces {
            workspace: place(workspace),
            team_dir: team_dir.into(),
            temp: place("/var/tmp/t"),
            homes: vec!["/home/u".into()],
            secrets: [
                ".ssh",
                ".docker/config.json",
                ".config/git/credentials",
                ".local/share/keyrings",
            ]
            .map(|secret| Path::new("/home/u").join(secret))
            .to_vec()
            .into(),
            ..CommandPlaces::default()
        }
    }

    fn of(sandbox: &Sandbox, gate: Gate, places: &CommandPlaces, layers: Layers) -> Option<Policy> {
        let teams = vec![places.team_dir.clone()];
        let present = Present {
            secrets: places.secrets.paths().unwrap().to_vec(),
            teams,
            ..Present::default()
        };
        Policy::of(sandbox, gate, places, present, layers)
    }

    fn open(places: &CommandPlaces, layers: Layers) -> Policy {
        of(&Sandbox::default(), Gate::Open, places, layers).unwrap()
    }

    /// A policy of a plain workspace.
    pub(crate) fn plain_policy() -> Policy {
        open(&places("/home/u/web", "/home/u/web/.team"), LAYERS)
    }

    fn writable(policy: &Policy) -> Vec<&str> {
        policy
            .writable
            .iter()
            .map(|it| it.at.to_str().unwrap())
            .collect()
    }

    fn teams(policy: &Policy) -> Vec<&str> {
        let teams = policy.hidden.iter().filter(|it| it.is_of_team);
        teams.map(|it| it.path.to_str().unwrap()).collect()
    }

    fn is_hidden(policy: &Policy, path: &str) -> bool {
        policy.hidden.iter().any(|it| it.path == Path::new(path))
    }

    fn protects(policy: &Policy, path: &Path, if_missing: Missing) -> bool {
        policy.protected.contains(&Protected {
            path: path.to_owned(),
            if_missing,
        })
    }

    #[test]
    fn an_open_gate_lets_the_workspace_be_written_but_not_what_git_runs_or_believes() {
        let policy = plain_policy();
        assert_eq!(writable(&policy), ["/home/u/web"]);
        let expected = [
            (".git/hooks", Missing::MakeEmpty),
            (".git/config", Missing::Leave),
            (".git/config.worktree", Missing::PutAside),
            (".git/commondir", Missing::PutAside),
            (".agents/skills", Missing::MakeEmpty),
            (".claude/skills", Missing::MakeEmpty),
        ];
        for (file, if_missing) in expected {
            assert!(
                protects(&policy, &Path::new("/home/u/web").join(file), if_missing),
                "{file}"
            );
        }
        assert_eq!(policy.protected.len(), expected.len());
        assert!(policy.network && is_hidden(&policy, "/home/u/.ssh"));
        // A file `.git` says where the repository is.
        let git_files = vec![PathBuf::from("/home/u/web/.git")];
        let present = Present {
            git_files,
            ..Present::default()
        };
        let places = places("/home/u/web", "/home/u/web/.team");
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &places, present, LAYERS).unwrap();
        assert!(
            policy.protected.len() == 3
                && protects(&policy, Path::new("/home/u/web/.git"), Missing::Leave)
        );
    }

    #[test]
    fn a_closed_gate_leaves_the_temporary_directory_and_no_network_in_every_mode() {
        for mode in [
            SandboxMode::WorkspaceWrite,
            SandboxMode::ReadOnly,
            SandboxMode::Off,
        ] {
            let mut places = places("/home/u/web", "/home/u/web/.team");
            places.writable = vec![place("/home/u/.cargo")];
            let sandbox = Sandbox {
                mode,
                ..Sandbox::default()
            };
            let closed = of(&sandbox, Gate::Closed, &places, LAYERS).unwrap();
            assert!(
                closed.writable.is_empty() && closed.protected.is_empty() && !closed.network,
                "{mode:?}"
            );
            assert_eq!(closed.all_writable().count(), 1, "{mode:?}");
        }
        let sandbox = Sandbox {
            mode: SandboxMode::ReadOnly,
            ..Sandbox::default()
        };
        let places = places("/home/u/web", "/home/u/web/.team");
        let closed = of(&Sandbox::default(), Gate::Closed, &places, LAYERS);
        assert_eq!(of(&sandbox, Gate::Open, &places, LAYERS), closed);
    }

    #[test]
    fn only_what_is_off_by_name_is_not_confined() {
        let off = Sandbox {
            mode: SandboxMode::Off,
            ..Sandbox::default()
        };
        assert_eq!(
            of(
                &off,
                Gate::Open,
                &places("/home/u/web", "/home/u/web/.team"),
                LAYERS
            ),
            None
        );
    }

    #[test]
    fn what_is_allowed_by_name_may_be_written_and_the_network_taken_away() {
        let mut places = places("/home/u/web", "/home/u/.local/state/teamd/1");
        let named = [
            "/home/u/.cargo",
            "/home/u/.local/state/teamd/1",
            "/home/u/.local/state/teamd/1/run",
        ];
        places.writable = named.map(place).into();
        let sandbox = Sandbox {
            no_network: true,
            ..Sandbox::default()
        };
        let policy = of(&sandbox, Gate::Open, &places, LAYERS).unwrap();
        assert_eq!(writable(&policy), ["/home/u/web", "/home/u/.cargo"]);
        assert!(!policy.network && policy.is_apart());
        places.writable.push(place("/home/u/.local"));
        let above = of(&sandbox, Gate::Open, &places, LAYERS).unwrap();
        assert!(is_hidden(&above, "/home/u/.local/state/teamd/1") && !above.is_apart());
    }

    #[test]
    fn the_team_directory_is_hidden_wherever_it_lies_by_every_path() {
        for (team_dir, apart) in [
            ("/home/u/web/.team", false),
            ("/home/u/.local/state/teamd/1", true),
        ] {
            for gate in [Gate::Open, Gate::Closed] {
                let places = places("/home/u/web", team_dir);
                let policy = of(&Sandbox::default(), gate, &places, LAYERS).unwrap();
                assert_eq!(teams(&policy), [team_dir]);
                assert_eq!(policy.is_apart(), apart || gate == Gate::Closed);
            }
        }
        let by_two = ["/home/u/web/.team", "/workspaces/web/.team"];
        let present = Present {
            teams: by_two.map(PathBuf::from).to_vec(),
            ..Present::default()
        };
        let places = places("/workspaces/web", "/home/u/web/.team");
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &places, present, LAYERS).unwrap();
        assert!(teams(&policy) == by_two && !policy.is_apart());
    }

    #[test]
    fn only_mounts_keep_the_programs_of_the_team_where_a_command_writes() {
        let mut places = places("/home/u/web", "/var/lib/team");
        let program = PathBuf::from("/home/u/web/target/release/teamd");
        places.programs = vec![program.clone(), "/usr/bin/teamctl".into()];
        let policy = open(&places, LAYERS);
        assert!(
            protects(&policy, &program, Missing::Leave)
                && policy.weakness(&places.programs).is_none()
        );
        assert!(!protects(
            &policy,
            Path::new("/usr/bin/teamctl"),
            Missing::Leave
        ));
        let weakness = open(&places, BARE).weakness(&places.programs).unwrap();
        assert!(
            weakness.contains("teamd is a program of the team"),
            "{weakness}"
        );
        let closed = of(&Sandbox::default(), Gate::Closed, &places, BARE).unwrap();
        assert_eq!(closed.weakness(&places.programs), None);
    }

    #[test]
    fn of_the_repository_of_a_linked_tree_only_what_commits_need_is_written() {
        let places = places("/home/u/tree", "/home/u/tree/.team");
        let common = PathBuf::from("/home/u/web/.git");
        let elsewhere = Some(Elsewhere {
            own: common.join("worktrees/tree"),
            common: common.clone(),
        });
        let of = |gate, layers| {
            let present = Present {
                elsewhere: elsewhere.clone(),
                ..Present::default()
            };
            Policy::of(&Sandbox::default(), gate, &places, present, layers).unwrap()
        };
        let policy = of(Gate::Open, LAYERS);
        let plain: Vec<_> = policy
            .writable
            .iter()
            .filter(|it| it.plain)
            .map(|it| it.at.clone())
            .collect();
        assert_eq!(
            plain,
            ["worktrees/tree", "objects", "refs", "logs"].map(|name| common.join(name))
        );
        let blind = of(
            Gate::Open,
            Layers {
                landlock: 0,
                ..LAYERS
            },
        );
        assert_eq!(writable(&blind), ["/home/u/tree"]);
        for (path, if_missing) in [
            ("worktrees/tree/commondir", Missing::Leave),
            ("worktrees/tree/gitdir", Missing::Leave),
            ("worktrees/tree/config.worktree", Missing::PutAside),
            ("refs/replace", Missing::MakeEmpty),
            ("objects/info", Missing::MakeEmpty),
        ] {
            assert!(protects(&policy, &common.join(path), if_missing), "{path}");
        }
        assert!(of(Gate::Closed, LAYERS).writable.is_empty());
    }

    #[test]
    fn a_repository_that_lies_apart_is_written_but_not_what_git_runs_or_believes() {
        let places = places("/home/u/lib", "/home/u/lib/.team");
        let own = PathBuf::from("/home/u/web/.git/modules/lib");
        let present = Present {
            elsewhere: Some(Elsewhere {
                own: own.clone(),
                common: own.clone(),
            }),
            inside: vec!["/home/u/lib/.bare".into()],
            ..Present::default()
        };
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &places, present, LAYERS).unwrap();
        let plain: Vec<_> = policy
            .writable
            .iter()
            .filter(|it| it.plain)
            .map(|it| it.at.clone())
            .collect();
        assert_eq!(plain, std::slice::from_ref(&own));
        for (path, if_missing) in [
            ("hooks", Missing::MakeEmpty),
            ("config", Missing::Leave),
            ("config.worktree", Missing::PutAside),
            ("commondir", Missing::PutAside),
            ("refs/replace", Missing::MakeEmpty),
            ("objects/info", Missing::MakeEmpty),
            ("worktrees", Missing::Leave),
            ("modules", Missing::Leave),
        ] {
            assert!(protects(&policy, &own.join(path), if_missing), "{path}");
        }
        for path in ["hooks", "config"] {
            assert!(
                policy
                    .protected
                    .iter()
                    .any(|it| it.path == Path::new("/home/u/lib/.bare").join(path))
            );
        }
    }

    #[test]
    fn other_teams_and_the_register_are_hidden_and_never_written() {
        let mut places = places("/home/u/web", "/home/u/.local/state/teamd/web-1");
        places.writable = ["/home/u/api/.team/inbox", "/home/u/.local"]
            .map(place)
            .into();
        let all = [
            "/home/u/.local/state/teamd/web-1",
            "/home/u/.local/state/teamd",
            "/home/u/api/.team",
        ];
        let present = Present {
            teams: all.map(PathBuf::from).to_vec(),
            ..Present::default()
        };
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &places, present, LAYERS).unwrap();
        assert_eq!(teams(&policy), all);
        assert_eq!(writable(&policy), ["/home/u/web", "/home/u/.local"]);
    }

    #[test]
    fn only_mounts_hide_a_secret_where_a_command_writes_around_it() {
        let places = places("/home/u", "/var/lib/team");
        let weakness = open(&places, BARE).weakness(&[]).unwrap();
        assert!(
            weakness
                .starts_with("/home/u/.ssh is hidden from commands, but lies in what it may write"),
            "{weakness}"
        );
        let closed = of(&Sandbox::default(), Gate::Closed, &places, BARE).unwrap();
        assert_eq!(
            (closed.weakness(&[]), open(&places, LAYERS).weakness(&[])),
            (None, None)
        );
    }

    #[test]
    fn tmp_is_the_commands_own_unless_something_lies_there() {
        let inside = open(&places("/tmp/x/work", "/tmp/x/work/.team"), LAYERS);
        assert_eq!(inside.temp_inside(), Path::new("/var/tmp/t"));
        let named = CommandPlaces {
            writable: vec![place("/tmp")],
            ..places("/w", "/w/.team")
        };
        assert_eq!(open(&named, LAYERS).temp_inside(), Path::new("/var/tmp/t"));
        let mut elsewhere = places("/w", "/w/.team");
        elsewhere.secrets = vec!["/tmp/key".into()].into();
        let own = open(&elsewhere, LAYERS);
        assert!(own.temp_inside() == Path::new("/tmp") && !is_hidden(&own, "/tmp/key"));
        let bare = open(&elsewhere, BARE);
        assert!(bare.temp_inside() == Path::new("/var/tmp/t") && is_hidden(&bare, "/tmp/key"));
    }
}
