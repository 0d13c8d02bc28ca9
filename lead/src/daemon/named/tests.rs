use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use teamd_shared::environment::Environment;
use teamd_shared::journal::Line;
use teamd_shared::member::Sandbox;
use teamd_shared::position::Position;

use super::*;

/// What may be written by whom, in a scratch directory.
struct Scene {
    _folder: tempfile::TempDir,
    root: PathBuf,
    guarded: Guarded,
}

impl Scene {
    fn new(folders: &[&str], guarded: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for folder in folders {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let mut scene = Self { guarded: Guarded::default(), _folder: folder, root };
        for (path, name) in guarded {
            scene.guarded.add(scene.root.join(path), &Name::of_inbox(name).unwrap());
        }
        scene
    }

    fn link(&self, at: &str, to: &str) {
        symlink(to, self.root.join(at)).unwrap();
    }

    /// Where a path leads, within the scratch directory; else whose link it is that leads there.
    fn find(&self, named: &str) -> Result<String, String> {
        let found = follow(&self.root.join(named), &self.guarded);
        let within = |path: PathBuf| path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
        found.map(within).map_err(|lost| match lost {
            Lost::Made { link, whose, .. } => format!("{whose}: {}", within(link)),
            other => format!("{other:?}"),
        })
    }
}

#[test]
fn links_are_followed_but_for_those_that_tools_can_have_made() {
    let scene = Scene::new(&["work/sub", "cache/sub", "home"], &[("work", "alice"), ("cache", "bob")]);
    scene.link("link", "cache/sub");
    scene.link("work/planted", "../home");
    scene.link("to-planted", "work/planted/x");
    scene.link("cache/planted", "../home");
    for named in ["link", "cache/../link/../sub", "./cache//sub/"] {
        assert_eq!(scene.find(named).as_deref(), Ok("cache/sub"), "{named}");
    }
    for (named, whose) in [
        ("work/planted", "alice: work/planted"),
        ("work/sub/../planted/deeper", "alice: work/planted"),
        ("to-planted", "alice: work/planted"),
        ("cache/planted", "bob: cache/planted"),
    ] {
        assert_eq!(scene.find(named).unwrap_err(), whose, "{named}");
    }
}

#[test]
fn what_is_named_itself_is_no_link_of_whoever_writes_in_it() {
    let scene = Scene::new(&["new"], &[("old", "alice"), ("new", "alice")]);
    scene.link("old", "new");
    assert_eq!(scene.find("old/sub").as_deref(), Ok("new/sub"));
}

#[test]
fn a_link_is_known_by_whatever_path_the_directory_around_it_is_reached() {
    let scene = Scene::new(&["disk/work/sub", "home"], &[("mnt/work", "alice")]);
    // As by a bind mount, which it takes root to make.
    scene.link("mnt", "disk");
    scene.link("disk/work/sub/planted", "../../../home");
    assert_eq!(scene.find("disk/work/sub/planted").unwrap_err(), "alice: disk/work/sub/planted");
    assert_eq!(scene.find("disk/work/sub").as_deref(), Ok("disk/work/sub"));
}

#[test]
fn what_is_missing_stays_as_it_is_named_and_a_circle_leads_nowhere() {
    let scene = Scene::new(&["cache"], &[]);
    scene.link("link", "cache");
    scene.link("dangling", "cache/later");
    scene.link("circle", "circle");
    assert_eq!(scene.find("link/new/deeper").as_deref(), Ok("cache/new/deeper"));
    assert_eq!(scene.find("dangling/x").as_deref(), Ok("cache/later/x"));
    assert!(scene.find("circle").unwrap_err().contains("Io"), "{:?}", scene.find("circle"));
    assert!(matches!(follow(Path::new("relative"), &scene.guarded), Err(Lost::Relative)));
}

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
        Self { _folder: folder, root, dir, team: Team::default(), hidden: Vec::new() }
    }

    fn at(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }

    fn line(&mut self, event: &str, who: &str, workspace: &str, writable: &[&str]) {
        let writable: Vec<_> = writable.iter().map(|path| self.at(path)).collect();
        let seq = self.team.seq + 1;
        let line: Value = json!({
            "seq": seq, "at": 1.0, "done": 0, "record": "member", "event": event, "name": who, "role": "",
            "model": "script", "workspace": self.at(workspace), "plan": false, "approve_by": "person",
            "restart": "never", "sandbox": {"writable": writable, "hidden": self.hidden}, "incarnation": 1, "conversation": 1,
            "begins_at": Position::START, "phase": "crashed", "process": null, "gate": "open",
            "ending": null, "exit": null, "spawned_at": 1.0, "updated_at": 1.0,
        });
        let line: Line = serde_json::from_value(line).unwrap();
        self.team.apply(&line).unwrap();
    }

    /// What becomes of an order of `bob`: where it works and what it may write; else what is refused.
    fn settle(
        &self,
        resume: bool,
        workspace: Option<&str>,
        writable: &[&str],
    ) -> Result<(Option<String>, Vec<String>), String> {
        let writable = writable.iter().map(|path| self.at(path)).collect();
        let mut order = SpawnOrder {
            resume,
            workspace: workspace.map(|path| self.at(path)),
            sandbox: Some(Sandbox { writable, ..Sandbox::default() }),
            ..SpawnOrder::new(Name::new("bob").unwrap(), Environment::default())
        };
        let ground = Ground::of(&order, &self.team);
        settle(&mut order, &ground, &self.dir).map_err(|refusal| {
            assert!(refusal.code == RefusalCode::Usage && refusal.hint.is_some(), "{refusal:?}");
            refusal.message
        })?;
        Ok((order.workspace, order.sandbox.unwrap().writable))
    }
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
    // The worker finds out that these are links.
    let kept = (Some(team.at("alice/sub")), vec![team.at("alice/cache"), team.at("cache")]);
    assert_eq!(team.settle(true, Some("alice/sub"), &["alice/cache", "own", "cache"]), Ok(kept));
    assert_eq!(team.settle(true, None, &["own"]), Ok((None, vec![team.at("cache")])));
    for (resume, workspace, writable) in [
        (false, "alice/sub", &[][..]),
        (false, "bob", &["alice/cache"]),
        (true, "bob", &["alice/sub"]),
        // Its own links are no better: it may have had another life there.
        (false, "bob", &["bob/link"]),
        (false, "home", &["bob", "bob/link"]),
    ] {
        let refused = team.settle(resume, Some(workspace), writable).unwrap_err();
        assert!(refused.contains(" is a symbolic link in "), "{workspace} {writable:?}: {refused}");
    }
    assert_eq!(
        team.settle(false, Some("home"), &["bob/link"]),
        Ok((Some(team.at("home")), vec![team.at("home")]))
    );
    for (workspace, writable) in [(".team/inbox", &[][..]), ("bob", &["own/../.team"])] {
        let refused = team.settle(false, Some(workspace), writable).unwrap_err();
        assert!(refused.contains("lies in the team directory"), "{workspace} {writable:?}: {refused}");
    }
}

#[test]
fn a_look_up_counts_only_while_nothing_new_is_recorded_that_it_rests_on() {
    let mut team = Recorded::new();
    team.line("exited", "bob", "bob", &[]);
    let order =
        |resume| SpawnOrder { resume, ..SpawnOrder::new(Name::new("bob").unwrap(), Environment::default()) };
    let grounds = |team: &Recorded| [false, true].map(|resume| Ground::of(&order(resume), &team.team));
    let (afresh, before) = (grounds(&team)[0].clone(), grounds(&team));
    team.line("exited", "bob", "bob", &[]);
    assert_eq!(grounds(&team), before);
    team.line("exited", "alice", "alice", &["bob"]);
    let [now_afresh, now_resumed] = grounds(&team);
    assert!(now_afresh != afresh && now_resumed != before[1], "alice may have made a link");
    // Of one that is resumed its record counts, too.
    let before = grounds(&team);
    team.line("exited", "bob", "alice", &[]);
    assert_eq!(grounds(&team)[0], before[0]);
    assert_ne!(grounds(&team)[1], before[1]);
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
    assert!(refused.contains(&format!("link in {folder}, where the tools of alice may")), "{refused}");
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
        let sandbox = Sandbox { writable: vec![team.at("cache/deep")], hidden, ..Sandbox::default() };
        let order = SpawnOrder {
            sandbox: Some(sandbox),
            resume,
            ..SpawnOrder::new(Name::new("bob").unwrap(), Environment::default())
        };
        let mut order = SpawnOrder { workspace: Some(team.at(workspace)), ..order };
        let ground = Ground::of(&order, &team.team);
        let settled = settle(&mut order, &ground, &team.dir).map_err(|refusal| refusal.message);
        settled.map(|()| order.sandbox.unwrap().hidden)
    };
    let found = settle(&team, false, "bob/sub", &["link/id", "later", "bob/sub/.env"]);
    assert_eq!(found, Ok(vec![team.at("keys/id"), team.at("later"), team.at("bob/sub/.env")]));
    let (works, writes) = (team.at("bob/sub"), team.at("cache/deep"));
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
    // A life that is resumed elsewhere is still kept from the same.
    let mut order =
        SpawnOrder { resume: true, ..SpawnOrder::new(Name::new("bob").unwrap(), Environment::default()) };
    team.hidden = vec![team.at("keys")];
    team.line("exited", "bob", "bob", &[]);
    order.workspace = Some(team.at("keys"));
    let ground = Ground::of(&order, &team.team);
    let refused = super::settle(&mut order, &ground, &team.dir).unwrap_err();
    assert!(refused.message.contains("it works in"), "{refused:?}");
}
