//! What a command may do, pure: from the mode, the gate and where things lie.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use teamd_shared::member::{Gate, Sandbox, SandboxMode};
use teamd_shared::sandbox::{Layers, Namespaces};

use super::linked::LinkedTree;
use super::{Known, Surroundings};

/// What of a repository is run or believed by the next `git` of the user: the rest of `.git` may be written.
const GIT_SETTINGS: [(&str, Guard); 5] = [
    // As a file it says where the repository is.
    (GIT, Guard::IfFile),
    // An empty directory is no hook.
    (".git/hooks", Guard::MadeEmpty),
    (".git/config", Guard::IfThere),
    (".git/config.worktree", Guard::IfThere),
    // It says where hooks and settings are, if they are not there (`gitrepository-layout(5)`).
    (".git/commondir", Guard::NeverMade),
];

/// What of the repository of a linked working tree is run or believed by `git` for other trees too, though it lies where
/// a command of that tree writes: in the tree's own directory, and in the whole.
const OF_A_LINKED_TREE: [(&str, Guard); 3] =
    [("commondir", Guard::IfThere), ("gitdir", Guard::IfThere), ("config.worktree", Guard::NeverMade)];
const OF_ITS_REPOSITORY: [(&str, Guard); 2] =
    // The first replaces any object for each reader, the second says where else objects lie.
    [("refs/replace", Guard::MadeEmpty), ("objects/info", Guard::MadeEmpty)];

/// A repository, or a file that says where it is.
pub(crate) const GIT: &str = ".git";

/// Tells whether a path within a workspace is one of a repository that no tool writes, or below one.
pub(crate) fn git_believes(way: &Path) -> bool {
    let stays = GIT_SETTINGS.iter().filter(|(_, guard)| *guard != Guard::IfFile);
    stays.map(|(file, _)| file).any(|file| way.starts_with(file))
}

/// How something is kept from being written that lies below what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Guard {
    /// If it is there.
    IfThere,
    /// If it is a file.
    IfFile,
    /// Always: where only it is missing, an empty directory is made, which stays.
    MadeEmpty,
    /// If it is there; without mounts no command is run that could replace it.
    Program,
    /// If it is there; else what the command has made of it is removed: nothing can stand in for it meanwhile.
    NeverMade,
}

/// Something that a command may not write, though it lies below something that it may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Protected {
    pub(crate) path: PathBuf,
    pub(crate) guard: Guard,
}

/// What lies where now: looked at before each command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Present {
    /// The secrets that are there.
    pub(crate) secrets: Vec<PathBuf>,
    /// The team directories of the user, this one and others, and their registers, by every path.
    pub(crate) teams: Vec<PathBuf>,
    /// The repository of the workspace, if that is a linked working tree.
    pub(crate) linked: Option<LinkedTree>,
}

/// What one command may do. Read by the helper from its command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policy {
    /// The layers to enforce it with.
    pub(crate) layers: Layers,
    /// Where it begins.
    pub(crate) workspace: PathBuf,
    /// The directory for what is temporary.
    pub(crate) temp: PathBuf,
    /// Whether that directory is `/tmp` for it.
    pub(crate) private_tmp: bool,
    /// What it may write, with all that lies below.
    pub(crate) writable: Vec<PathBuf>,
    /// Where of that it makes files and directories, and nothing else.
    pub(crate) plain: Vec<PathBuf>,
    /// What stood at those paths when the life began: a command is refused where something else does.
    pub(crate) known: Vec<Known>,
    /// What it may not write, though it lies below one of those.
    pub(crate) protected: Vec<Protected>,
    /// Where keepers note what must not be made: no command reaches it.
    pub(crate) notes: PathBuf,
    /// What lies on the way from a writable directory to one of those: it stays where it is.
    pub(crate) pinned: Vec<PathBuf>,
    /// What it may not read.
    pub(crate) hidden: Vec<PathBuf>,
    /// Those of them that it may not even list: an advisory lock needs no more than that, and of those locks life and
    /// death of workers and daemons are told.
    pub(crate) sealed: Vec<PathBuf>,
    /// Whether it has the network of the machine.
    pub(crate) network: bool,
}

impl Policy {
    /// Says what a command may do; none: whatever the user may.
    pub(crate) fn of(
        sandbox: &Sandbox,
        gate: Gate,
        around: &Surroundings,
        Present { secrets, teams, linked }: Present,
        layers: Layers,
    ) -> Option<Self> {
        if sandbox.mode == SandboxMode::Off && gate == Gate::Open {
            return None;
        }
        let writes = gate == Gate::Open && sandbox.mode == SandboxMode::WorkspaceWrite;
        let mut writable = vec![around.temp.clone()];
        if writes {
            writable.push(around.workspace.clone());
            // Nothing of a team directory is ever allowed by name.
            let is_of_team = |path: &Path| teams.iter().any(|team| path.starts_with(team));
            let named = around.writable.iter().filter(|path| !is_of_team(path));
            writable.extend(named.cloned());
        }
        let (mut protected, mut plain) = (Vec::new(), Vec::new());
        // A link there would lead what `git` of another tree writes: only Landlock keeps one from being made.
        let linked = linked.filter(|_| layers.landlock > 0);
        if writes {
            let mut protect = |above: &Path, what: &[(&str, Guard)]| {
                let guarded = what.iter().map(|&(file, guard)| Protected { path: above.join(file), guard });
                protected.extend(guarded);
            };
            for above in [&around.workspace].into_iter().chain(&around.writable) {
                protect(above, &GIT_SETTINGS);
            }
            if let Some(tree) = &linked {
                plain.extend(tree.written());
                writable.extend(plain.iter().cloned());
                protect(&tree.own, &OF_A_LINKED_TREE);
                protect(&tree.common, &OF_ITS_REPOSITORY);
            }
            let programs =
                around.programs.iter().filter(|it| writable.iter().any(|above| it.starts_with(above)));
            protected.extend(programs.map(|it| Protected { path: it.clone(), guard: Guard::Program }));
        }
        let sealed = teams;
        // What lies in something hidden is hidden with it, and nothing can be mounted on it.
        let is_topmost =
            |path: &PathBuf| !sealed.iter().any(|other| path != other && path.starts_with(other));
        let mut hidden: Vec<_> =
            secrets.iter().chain(&sealed).filter(|path| is_topmost(path)).cloned().collect();
        let private_tmp = !needs_tmp(around, &writable);
        if private_tmp && layers.namespaces != Namespaces::None {
            // The command has another one.
            hidden.retain(|path| !path.starts_with("/tmp"));
        }
        // What is guarded as a file only is a directory that is written, otherwise.
        let stays = protected.iter().filter(|it| it.guard != Guard::IfFile).map(|it| &it.path);
        let pinned = on_the_way(&writable, stays.chain(&hidden));
        Some(Self {
            layers,
            workspace: around.workspace.clone(),
            temp: around.temp.clone(),
            private_tmp,
            network: writes && !sandbox.no_network,
            hidden,
            sealed,
            known: around
                .known
                .iter()
                .filter(|known| writable.iter().any(|path| path == known.path()))
                .cloned()
                .collect(),
            writable,
            plain,
            protected,
            notes: around.team_dir.join("run"),
            pinned,
        })
    }

    /// Tells whether it may write anything but its temporary directory.
    pub(crate) fn writes(&self) -> bool {
        self.writable.iter().any(|path| *path != self.temp)
    }

    /// Tells whether nothing that the command may write holds the team directory, by any path.
    pub(crate) fn is_apart(&self) -> bool {
        let holds =
            |above: &PathBuf, sealed: &PathBuf| sealed.starts_with(above) || above.starts_with(sealed);
        !self.writable.iter().any(|above| self.sealed.iter().any(|sealed| holds(above, sealed)))
    }

    /// Returns what the command may not read though it lies in what it may write, if that cannot be kept from it: only
    /// mounts can.
    pub(crate) fn exposed(&self) -> Option<&Path> {
        let bare = self.layers.namespaces == Namespaces::None;
        self.hidden.iter().find(|path| self.is_writable(path)).filter(|_| bare).map(PathBuf::as_path)
    }

    /// Tells whether it is a team directory in what the command may write: `git` would clean up what it takes for an empty one.
    pub(crate) fn is_in_the_way_of_git(&self, path: &PathBuf) -> bool {
        self.sealed.contains(path) && self.is_writable(path)
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|above| path.starts_with(above))
    }

    /// Returns a program of the team that the command could replace: only mounts keep it as it is.
    pub(crate) fn replaceable(&self) -> Option<&Path> {
        let bare = self.layers.namespaces == Namespaces::None;
        let program = self.protected.iter().find(|it| it.guard == Guard::Program).filter(|_| bare)?;
        Some(&program.path)
    }

    /// Returns the directory for what is temporary as the command sees it.
    pub(crate) fn temp_inside(&self) -> &Path {
        let own = self.private_tmp && self.layers.namespaces != Namespaces::None;
        if own { Path::new("/tmp") } else { &self.temp }
    }
}

/// Tells whether something that a command needs lies below `/tmp`: then that cannot be its own.
fn needs_tmp(around: &Surroundings, writable: &[PathBuf]) -> bool {
    let tmp = Path::new("/tmp");
    let places = [around.workspace.as_path(), &around.team_dir].into_iter();
    let named = around.writable.iter().chain(writable.iter().filter(|path| **path != around.temp));
    let mut needed = places.chain(around.homes.iter().chain(named).map(PathBuf::as_path));
    needed.any(|path| path.starts_with(tmp) || tmp.starts_with(path))
}

/// Returns the directories strictly between a writable one and a protected one below it, from the top down. If one of
/// them could be renamed, another could take its name, and what is protected would be replaced.
fn on_the_way<'a>(writable: &[PathBuf], protected: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for protected in protected {
        for above in writable.iter().filter(|above| protected.starts_with(above)) {
            let between = protected.ancestors().skip(1).take_while(|path| path != above);
            found.extend(between.map(Path::to_owned));
        }
    }
    found.sort();
    found.dedup();
    found.retain(|path| !writable.contains(path));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: Layers = Layers { namespaces: Namespaces::Own, landlock: 7, seccomp: true };
    fn around(workspace: &str, team_dir: &str) -> Surroundings {
        Surroundings {
            workspace: workspace.into(),
            team_dir: team_dir.into(),
            temp: "/var/tmp/t".into(),
            writable: Vec::new(),
            known: Vec::new(),
            homes: vec!["/home/u".into()],
            programs: Vec::new(),
            secrets: [".ssh", ".docker/config.json", ".config/git/credentials", ".local/share/keyrings"]
                .map(|secret| Path::new("/home/u").join(secret))
                .into(),
            registers: Vec::new(),
        }
    }

    fn of(sandbox: &Sandbox, gate: Gate, around: &Surroundings, layers: Layers) -> Option<Policy> {
        let teams = vec![around.team_dir.clone()];
        let present = Present { secrets: around.secrets.clone(), teams, linked: None };
        Policy::of(sandbox, gate, around, present, layers)
    }

    fn policy(sandbox: &Sandbox, gate: Gate) -> Option<Policy> {
        of(sandbox, gate, &around("/home/u/web", "/home/u/web/.team"), LAYERS)
    }

    fn paths(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn an_open_gate_lets_the_workspace_be_written_but_not_what_commands_or_settings_stand_in() {
        let policy = policy(&Sandbox::default(), Gate::Open).unwrap();
        assert_eq!(paths(&policy.writable), ["/var/tmp/t", "/home/u/web"]);
        let expected = [
            (GIT, Guard::IfFile),
            (".git/hooks", Guard::MadeEmpty),
            (".git/config", Guard::IfThere),
            (".git/config.worktree", Guard::IfThere),
            (".git/commondir", Guard::NeverMade),
        ];
        let expected =
            expected.map(|(file, guard)| Protected { path: Path::new("/home/u/web").join(file), guard });
        assert_eq!(policy.protected, expected);
        assert_eq!(paths(&policy.pinned), ["/home/u/web/.git"]);
        assert!(policy.network && policy.private_tmp);
        assert!(policy.hidden.contains(&"/home/u/.ssh".into()));
    }

    #[test]
    fn a_closed_gate_leaves_the_temporary_directory_and_no_network_in_every_mode() {
        for mode in [SandboxMode::WorkspaceWrite, SandboxMode::ReadOnly, SandboxMode::Off] {
            let mut around = around("/home/u/web", "/home/u/web/.team");
            around.writable = vec!["/home/u/.cargo".into()];
            let sandbox = Sandbox { mode, ..Sandbox::default() };
            let closed = of(&sandbox, Gate::Closed, &around, LAYERS).unwrap();
            assert_eq!((paths(&closed.writable), closed.network), (vec!["/var/tmp/t"], false), "{mode:?}");
        }
        let sandbox = Sandbox { mode: SandboxMode::ReadOnly, ..Sandbox::default() };
        assert_eq!(policy(&sandbox, Gate::Open), policy(&Sandbox::default(), Gate::Closed));
    }

    #[test]
    fn only_what_is_off_by_name_is_not_confined() {
        let off = Sandbox { mode: SandboxMode::Off, ..Sandbox::default() };
        assert_eq!(policy(&off, Gate::Open), None);
    }

    #[test]
    fn what_is_allowed_by_name_may_be_written_and_the_network_taken_away() {
        let mut around = around("/home/u/web", "/home/u/.local/state/teamd/1");
        let named = ["/home/u/.cargo", "/home/u/.local/state/teamd/1", "/home/u/.local/state/teamd/1/run"];
        around.writable = named.map(PathBuf::from).into();
        let sandbox = Sandbox { no_network: true, ..Sandbox::default() };
        let policy = of(&sandbox, Gate::Open, &around, LAYERS).unwrap();
        assert_eq!(paths(&policy.writable), ["/var/tmp/t", "/home/u/web", "/home/u/.cargo"]);
        assert!(!policy.network && policy.is_apart());
        around.writable.push("/home/u/.local".into());
        let above = of(&sandbox, Gate::Open, &around, LAYERS).unwrap();
        assert!(above.hidden.contains(&around.team_dir) && !above.is_apart());
    }

    #[test]
    fn each_parent_of_what_is_protected_stays_where_it_is() {
        let around = around("/home/u", "/home/u/a/b/.team");
        let policy = of(&Sandbox::default(), Gate::Open, &around, LAYERS).unwrap();
        let pinned = paths(&policy.pinned);
        for parent in [".git", "a", "a/b", ".docker", ".config", ".config/git", ".local/share"] {
            assert!(pinned.contains(&format!("/home/u/{parent}").as_str()), "{parent} {pinned:?}");
        }
        assert!(!pinned.contains(&"/home/u") && !pinned.contains(&"/home/u/.ssh"));
        assert!(!policy.is_apart());
    }

    #[test]
    fn a_team_directory_elsewhere_is_apart() {
        let around = around("/home/u/web", "/home/u/.local/state/teamd/1");
        let policy = of(&Sandbox::default(), Gate::Open, &around, LAYERS).unwrap();
        assert!(policy.is_apart());
    }

    #[test]
    fn the_team_directory_is_sealed_wherever_it_lies() {
        for team_dir in ["/home/u/web/.team", "/home/u/.local/state/teamd/1"] {
            for gate in [Gate::Open, Gate::Closed] {
                let policy = of(&Sandbox::default(), gate, &around("/home/u/web", team_dir), LAYERS).unwrap();
                assert_eq!(paths(&policy.sealed), [team_dir]);
                assert!(policy.hidden.contains(&team_dir.into()));
            }
        }
    }

    #[test]
    fn the_team_directory_is_sealed_by_every_path() {
        let around = around("/workspaces/web", "/home/u/web/.team");
        let teams = ["/home/u/web/.team", "/workspaces/web/.team"].map(PathBuf::from).to_vec();
        let now = Present { teams, ..Present::default() };
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &around, now, LAYERS).unwrap();
        assert_eq!(paths(&policy.sealed), ["/home/u/web/.team", "/workspaces/web/.team"]);
        assert!(!policy.is_apart());
    }

    #[test]
    fn only_mounts_keep_the_programs_of_the_team_where_a_command_writes() {
        let mut around = around("/home/u/web", "/home/u/web/.team");
        around.programs = vec!["/home/u/web/target/release/teamd".into(), "/usr/bin/teamctl".into()];
        let of = |gate, layers| of(&Sandbox::default(), gate, &around, layers).unwrap();
        let bare = Layers { namespaces: Namespaces::None, ..LAYERS };
        let open = of(Gate::Open, LAYERS);
        let program = Protected { path: around.programs[0].clone(), guard: Guard::Program };
        assert!(open.protected.contains(&program) && open.replaceable().is_none());
        assert_eq!(
            paths(&open.pinned),
            ["/home/u/web/.git", "/home/u/web/target", "/home/u/web/target/release"]
        );
        assert_eq!(of(Gate::Open, bare).replaceable(), Some(around.programs[0].as_path()));
        assert_eq!(of(Gate::Closed, bare).replaceable(), None);
    }

    #[test]
    fn of_the_repository_of_a_linked_tree_only_what_commits_need_is_written() {
        let around = around("/home/u/tree", "/home/u/tree/.team");
        let common = PathBuf::from("/home/u/web/.git");
        let linked = Some(LinkedTree { own: common.join("worktrees/tree"), common: common.clone() });
        let of = |gate| {
            let present = Present { linked: linked.clone(), ..Present::default() };
            Policy::of(&Sandbox::default(), gate, &around, present, LAYERS).unwrap()
        };
        let open = of(Gate::Open);
        let written = ["worktrees/tree", "objects", "refs", "logs"].map(|name| common.join(name));
        assert_eq!((&open.writable[2..], &open.plain[..]), (&written[..], &written[..]));
        let blind = Layers { landlock: 0, ..LAYERS };
        let present = Present { linked: linked.clone(), ..Present::default() };
        let blind = Policy::of(&Sandbox::default(), Gate::Open, &around, present, blind).unwrap();
        assert_eq!(blind.writable.len(), 2);
        let kept = [
            ("worktrees/tree/commondir", Guard::IfThere),
            ("worktrees/tree/gitdir", Guard::IfThere),
            ("worktrees/tree/config.worktree", Guard::NeverMade),
            ("refs/replace", Guard::MadeEmpty),
            ("objects/info", Guard::MadeEmpty),
        ];
        for (path, guard) in kept {
            assert!(open.protected.contains(&Protected { path: common.join(path), guard }), "{path}");
        }
        assert_eq!(paths(&of(Gate::Closed).writable), ["/var/tmp/t"]);
    }

    #[test]
    fn other_teams_and_the_register_are_hidden_and_sealed_and_never_written() {
        let mut around = around("/home/u/web", "/home/u/.local/state/teamd/web-1");
        around.writable = ["/home/u/api/.team/inbox", "/home/u/.local"].map(PathBuf::from).into();
        let teams = ["/home/u/.local/state/teamd/web-1", "/home/u/.local/state/teamd", "/home/u/api/.team"];
        let now = Present { teams: teams.map(PathBuf::from).to_vec(), ..Present::default() };
        let policy = Policy::of(&Sandbox::default(), Gate::Open, &around, now, LAYERS).unwrap();
        assert_eq!(paths(&policy.sealed), teams);
        assert_eq!(paths(&policy.hidden), teams[1..], "what lies in another is hidden with it");
        assert_eq!(paths(&policy.writable), ["/var/tmp/t", "/home/u/web", "/home/u/.local"]);
        assert_eq!(
            paths(&policy.pinned),
            ["/home/u/.local/.git", "/home/u/.local/state", "/home/u/web/.git"]
        );
    }

    #[test]
    fn only_mounts_keep_a_secret_from_who_writes_around_it() {
        let bare = Layers { namespaces: Namespaces::None, ..LAYERS };
        let around = around("/home/u", "/var/lib/team");
        let exposed = |gate, layers| {
            let policy = of(&Sandbox::default(), gate, &around, layers).unwrap();
            policy.exposed().map(Path::to_owned)
        };
        assert_eq!(exposed(Gate::Open, bare), Some("/home/u/.ssh".into()));
        assert_eq!((exposed(Gate::Closed, bare), exposed(Gate::Open, LAYERS)), (None, None));
    }

    #[test]
    fn tmp_is_the_commands_own_unless_something_lies_there() {
        let inside = around("/tmp/x/work", "/tmp/x/work/.team");
        let policy = of(&Sandbox::default(), Gate::Open, &inside, LAYERS).unwrap();
        assert_eq!(policy.temp_inside(), Path::new("/var/tmp/t"));
        let named = Surroundings { writable: vec!["/tmp".into()], ..around("/w", "/w/.team") };
        let named = of(&Sandbox::default(), Gate::Open, &named, LAYERS).unwrap();
        assert!(!named.private_tmp);
        let own = of(&Sandbox::default(), Gate::Open, &around("/w", "/w/.team"), LAYERS).unwrap();
        assert_eq!(own.temp_inside(), Path::new("/tmp"));
    }
}
