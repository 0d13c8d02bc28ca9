use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::environment::Environment;
use crate::journal::{Line, Team};
use crate::terms::{Sandbox, SandboxPatch, TermsPatch};
use crate::testing::journal_member;

/// A team in a scratch directory, and what its journal says of where its members are.
struct Recorded {
    _folder: tempfile::TempDir,
    root: PathBuf,
    dir: TeamDir,
    team: Team,
    hidden: Vec<String>,
}

impl Recorded {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let dir = TeamDir::create(&root.join(".team")).unwrap();
        Self {
            _folder: folder,
            root,
            dir,
            team: Team::default(),
            hidden: Vec::new(),
        }
    }

    fn at(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }

    fn line(&mut self, event: &str, who: &str, workspace: &str, writable: &[&str]) {
        let writable: Vec<_> = writable.iter().map(|path| self.at(path)).collect();
        let seq = self.team.seq + 1;
        let sandbox = Sandbox {
            writable,
            hidden: self.hidden.clone(),
            ..Sandbox::default()
        };
        let line = journal_member(&json!({
            "seq": seq, "at": 1.0, "done": 0, "record": "member", "event": event, "name": who,
            "workspace": self.at(workspace), "sandbox": sandbox, "phase": "crashed",
        }));
        let line: Line = serde_json::from_value(line).unwrap();
        self.team.apply(&line).unwrap();
    }

    /// Resolves the paths of an order of `bob`.
    fn resolve(&self, resume: bool, terms: TermsPatch) -> Result<TermsPatch, Refusal> {
        let bob = Name::new("bob").unwrap();
        let mut order = SpawnOrder {
            resume,
            terms,
            ..SpawnOrder::new(bob.clone(), Environment::default())
        };
        let before = if resume {
            self.team.members.get(&bob).map(|state| &state.record.terms)
        } else {
            None
        };
        let recorded = before.map(|terms| RecordedPaths {
            host: None,
            has_checkout: false,
            workspace: &terms.workspace,
            sandbox: &terms.sandbox,
        });
        resolve_paths(&mut order, &self.dir, recorded, || {
            Ok::<_, Refusal>(self.team.clone())
        })?;
        Ok(order.terms)
    }

    /// Where `bob` works and what it may write; else what is refused.
    fn settle(
        &self,
        resume: bool,
        workspace: Option<&str>,
        writable: &[&str],
    ) -> Result<(Option<String>, Vec<String>), String> {
        let writable = writable.iter().map(|path| self.at(path)).collect();
        let sandbox = SandboxPatch {
            writable,
            ..SandboxPatch::default()
        };
        let workspace = workspace.map(|path| self.at(path));
        let terms = self.resolve(
            resume,
            TermsPatch {
                workspace,
                sandbox,
                ..TermsPatch::default()
            },
        );
        let terms = terms.map_err(|refusal| {
            assert!(
                refusal.code == RefusalCode::Usage && refusal.hint.is_some(),
                "{refusal:?}"
            );
            refusal.message
        })?;
        Ok((terms.workspace, terms.sandbox.writable))
    }
}

/// Where a path leads that `bob` is to write; else whose link it is that leads there.
#[test]
fn links_are_followed_but_for_those_that_tools_can_have_made() {
    let mut team = Recorded::new();
    for folder in ["work/sub", "cache/sub", "home", "disk/work/sub", "new"] {
        fs::create_dir_all(team.root.join(folder)).unwrap();
    }
    for (at, to) in [
        ("link", "cache/sub"),
        ("work/planted", "../home"),
        ("to-planted", "work/planted/x"),
        ("cache/planted", "../home"),
        ("dangling", "home/later"),
        ("circle", "circle"),
        ("old", "new"),
        // As by a bind mount, which it takes root to make.
        ("mnt", "disk"),
        ("disk/work/sub/planted", "../../../home"),
    ] {
        symlink(to, team.root.join(at)).unwrap();
    }
    team.line("exited", "alice", "work", &["mnt/work", "old"]);
    team.line("exited", "carol", "cache", &[]);
    let writes = |named: &str| {
        team.settle(false, Some("home"), &[named])
            .map(|(_, writable)| writable)
    };
    for (named, found) in [
        ("link", "cache/sub"),
        ("cache/../link/../sub", "cache/sub"),
        ("./cache//sub/", "cache/sub"),
        ("dangling/x", "home/later/x"),
        ("link/new/deeper", "cache/sub/new/deeper"),
        // Tools that write in a directory cannot replace the directory itself.
        ("old/sub", "new/sub"),
        ("disk/work/sub", "disk/work/sub"),
    ] {
        assert_eq!(writes(named), Ok(vec![team.at(found)]), "{named}");
    }
    for (named, link, maker) in [
        ("work/planted", "work/planted", "alice"),
        ("work/sub/../planted/deeper", "work/planted", "alice"),
        ("to-planted", "work/planted", "alice"),
        ("cache/planted", "cache/planted", "carol"),
        ("disk/work/sub/planted", "disk/work/sub/planted", "alice"),
    ] {
        let refused = writes(named).unwrap_err();
        let is_told = refused.contains(&format!("{} is a symbolic link in ", team.at(link)));
        assert!(
            is_told && refused.contains(&format!("the tools of {maker} may")),
            "{named}: {refused}"
        );
    }
    assert!(
        writes("circle").unwrap_err().contains("symbolic links"),
        "{:?}",
        writes("circle")
    );
}

#[test]
fn what_is_recorded_is_not_looked_up_again_and_what_is_new_is() {
    let mut team = Recorded::new();
    for folder in ["alice", "bob", "home", "cache"] {
        fs::create_dir(team.root.join(folder)).unwrap();
    }
    for link in ["alice/sub", "alice/cache", "bob/link"] {
        symlink(team.root.join("home"), team.root.join(link)).unwrap();
    }
    symlink("cache", team.root.join("own")).unwrap();
    team.line("exited", "alice", "alice", &[]);
    team.line("exited", "bob", "alice/sub", &["alice/cache"]);
    // The recorded workspace is opened, and there is a link.
    let refused = team.resolve(true, TermsPatch::default()).unwrap_err();
    assert!(
        refused.code == RefusalCode::Failed && refused.message.contains("on the way"),
        "{refused:?}"
    );
    fs::remove_file(team.root.join("alice/sub")).unwrap();
    fs::create_dir(team.root.join("alice/sub")).unwrap();
    let recorded = (
        Some(team.at("alice/sub")),
        vec![team.at("alice/cache"), team.at("cache")],
    );
    assert_eq!(
        team.settle(true, Some("alice/sub"), &["alice/cache", "own", "cache"]),
        Ok(recorded)
    );
    assert_eq!(
        team.settle(true, None, &["own"]),
        Ok((Some(team.at("alice/sub")), vec![team.at("cache")]))
    );
    fs::remove_dir(team.root.join("alice/sub")).unwrap();
    symlink(team.root.join("home"), team.root.join("alice/sub")).unwrap();
    for (resume, workspace, writable) in [
        (false, "alice/sub", &[][..]),
        (false, "bob", &["alice/cache"]),
        (true, "bob", &["alice/sub"]),
        // Its own links are no better: an earlier incarnation may have worked there.
        (false, "bob", &["bob/link"]),
        (false, "home", &["bob", "bob/link"]),
    ] {
        let refused = team.settle(resume, Some(workspace), writable).unwrap_err();
        assert!(
            refused.contains(" is a symbolic link in "),
            "{workspace} {writable:?}: {refused}"
        );
    }
    assert_eq!(
        team.settle(false, Some("home"), &["bob/link"]),
        Ok((Some(team.at("home")), vec![team.at("home")]))
    );
    for (workspace, writable) in [(".team/inbox", &[][..]), ("bob", &["own/../.team"])] {
        let refused = team.settle(false, Some(workspace), writable).unwrap_err();
        assert!(
            refused.contains("lies in the team directory"),
            "{workspace} {writable:?}: {refused}"
        );
    }
}

#[test]
fn the_programs_of_the_system_are_in_no_workspace() {
    let recorded = Recorded::new();
    let shell = fs::canonicalize("/bin/sh").unwrap();
    for path in shell.ancestors().skip(1) {
        let path = path.to_str().unwrap().to_owned();
        let refused = |terms: TermsPatch| {
            let refusal = recorded.resolve(false, terms).unwrap_err();
            assert!(
                refusal.message.contains("programs of the system"),
                "{refusal:?}"
            );
        };
        refused(TermsPatch {
            workspace: Some(path.clone()),
            ..TermsPatch::default()
        });
        refused(TermsPatch {
            sandbox: SandboxPatch {
                writable: vec![path],
                ..SandboxPatch::default()
            },
            ..TermsPatch::default()
        });
    }
}

#[test]
fn a_workspace_that_confined_commands_do_not_see_is_refused() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let workspace = folder.path().to_str().unwrap();
    let team = Recorded::new();
    let resolve = |mode| {
        let sandbox = SandboxPatch {
            mode,
            ..SandboxPatch::default()
        };
        team.resolve(
            false,
            TermsPatch {
                workspace: Some(workspace.to_owned()),
                sandbox,
                ..TermsPatch::default()
            },
        )
    };
    let refused = resolve(None).unwrap_err();
    assert_eq!(
        refused.message,
        format!("bob cannot work in {workspace}: confined commands have a /dev of their own")
    );
    let terms = resolve(Some(SandboxMode::Off)).unwrap();
    assert_eq!(terms.workspace.as_deref(), Some(workspace));
}

#[test]
fn what_the_tools_of_a_forgotten_teammate_have_made_is_not_forgotten() {
    let mut team = Recorded::new();
    fs::create_dir_all(team.root.join("cache/sub")).unwrap();
    symlink("sub", team.root.join("cache/link")).unwrap();
    team.line("exited", "alice", "alice", &["cache"]);
    team.line("forgotten", "alice", "alice", &[]);
    let refused = team.settle(false, None, &["cache/link"]).unwrap_err();
    let folder = team.at("cache");
    assert!(refused.starts_with("bob cannot write"), "{refused}");
    assert!(
        refused.contains(&format!("link in {folder}, where the tools of alice may")),
        "{refused}"
    );
}

#[test]
fn what_is_hidden_is_recorded_without_links_and_holds_nothing_that_is_needed() {
    let mut team = Recorded::new();
    for folder in ["alice", "bob/sub", "cache/deep", "keys"] {
        fs::create_dir_all(team.root.join(folder)).unwrap();
    }
    symlink("keys", team.root.join("link")).unwrap();
    symlink("..", team.root.join("alice/link")).unwrap();
    team.line("exited", "alice", "alice", &[]);
    let settle = |team: &Recorded, resume, workspace, hidden: &[&str]| {
        let hidden = hidden.iter().map(|path| team.at(path)).collect();
        let sandbox = SandboxPatch {
            writable: vec![team.at("cache/deep")],
            hidden,
            ..SandboxPatch::default()
        };
        let terms = TermsPatch {
            workspace: Some(team.at(workspace)),
            sandbox,
            ..TermsPatch::default()
        };
        team.resolve(resume, terms)
            .map(|terms| terms.sandbox.hidden)
            .map_err(|refusal| refusal.message)
    };
    let found = settle(
        &team,
        false,
        "bob/sub",
        &["link/id", "later", "bob/sub/.env"],
    );
    assert_eq!(
        found,
        Ok(vec![
            team.at("keys/id"),
            team.at("later"),
            team.at("bob/sub/.env")
        ])
    );
    let works = team.at("bob/sub");
    let writes = team.at("cache/deep");
    for (hidden, why) in [
        ("bob/sub", format!("it works in {works}")),
        ("bob", format!("it works in {works}")),
        ("", format!("it works in {works}")),
        ("cache", format!("it may write {writes}")),
        ("alice/link", "is a symbolic link in".to_owned()),
    ] {
        let refused = settle(&team, false, "bob/sub", &[hidden]).unwrap_err();
        assert!(
            refused.starts_with("bob cannot be kept from ") && refused.contains(&why),
            "{hidden}: {refused}"
        );
    }
    // A teammate that is resumed elsewhere is still kept from the same.
    team.hidden = vec![team.at("keys")];
    team.line("exited", "bob", "bob", &[]);
    let refused = settle(&team, true, "keys", &[]).unwrap_err();
    assert!(refused.contains("it works in"), "{refused}");
}
