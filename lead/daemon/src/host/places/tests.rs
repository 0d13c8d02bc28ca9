use std::os::unix::fs::symlink;

use teamd_shared::name::Name;

use super::*;
use crate::host::state::HostRecord;

/// A login directory with a folder for keys, and what is recorded.
struct Scene {
    _scratch: tempfile::TempDir,
    home: PathBuf,
    name: Name,
    state: HostState,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        for folder in ["d/sub", "data", "keys", "work"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        Self {
            _scratch: scratch,
            home,
            name: Name::new("alice").unwrap(),
            state: HostState::default(),
        }
    }

    fn path(&self, path: &str) -> String {
        self.home.join(path).to_str().unwrap().to_owned()
    }

    /// Records that commands can write there.
    fn can_write(&mut self, path: &str) {
        let paths = vec![self.path(path)];
        let name = self.name.clone();
        self.state.apply(HostRecord::Writes { name, paths });
    }

    fn replace(&self, path: &str, leads_to: &str) {
        std::fs::remove_dir_all(self.home.join(path)).unwrap();
        symlink(self.home.join(leads_to), self.home.join(path)).unwrap();
    }

    fn places(&self) -> Places<'_> {
        Places {
            state: &self.state,
            team_dir: Path::new("/nowhere"),
            login_dir: self.home.clone(),
            host: "box".to_owned(),
        }
    }

    /// Looks paths up for a conversation that begins. Returns where they lead, from the login
    /// directory, and why others are not followed.
    fn writable(&self, named: &[&str]) -> (Vec<String>, Vec<String>) {
        let named: Vec<String> = named.iter().map(|&named| named.to_owned()).collect();
        let workspace = self.path("work");
        let writes = Writes {
            of: Conversation {
                name: &self.name,
                number: None,
            },
            named: &named,
            workspace: &workspace,
        };
        let found = self.places().writable(&writes, &Environment::default());
        let home = self.path("");
        let real = found.real().into_iter();
        let real = real.map(|path| path.strip_prefix(&home).unwrap().to_owned());
        let why = found.unusable.into_iter().map(|unusable| unusable.why);
        (real.collect(), why.collect())
    }

    fn is_refused(&self, named: &[&str], part: &str) {
        let (_, why) = self.writable(named);
        assert!(why.len() == 1 && why[0].contains(part), "{part}: {why:?}");
    }
}

const OF_TOOL: &str = "is a link that a tool can have made";

#[test]
fn a_link_of_a_person_is_followed_and_none_where_a_tool_once_could_write() {
    let mut scene = Scene::new();
    symlink(scene.home.join("keys"), scene.home.join("data/x")).unwrap();
    let found = scene.writable(&["~/data/x"]);
    assert_eq!(found, (vec!["keys".to_owned()], Vec::new()));
    scene.can_write("data");
    scene.is_refused(&["~/data/x"], OF_TOOL);
    let of = Conversation {
        name: &scene.name,
        number: None,
    };
    let workspace = scene.places().workspace(&of, "~/data/x").unwrap_err();
    assert!(workspace.contains(OF_TOOL), "{workspace}");
    // No tool could replace the folder itself: a person has moved it.
    scene.replace("data", "keys");
    let found = scene.writable(&["~/data"]);
    assert_eq!(found, (vec!["keys".to_owned()], Vec::new()));
}

#[test]
fn a_link_in_one_of_its_own_paths_decides_nothing() {
    let mut scene = Scene::new();
    let both = ["~/d", "~/d/sub"];
    let found = scene.writable(&both);
    assert_eq!(found.0, ["d", "d/sub"]);
    scene.replace("d/sub", "keys");
    for named in [both, ["~/d/sub", "~/d"]] {
        scene.is_refused(&named, OF_TOOL);
    }
    symlink(scene.home.join("keys"), scene.home.join("work/x")).unwrap();
    scene.is_refused(&["~/work/x"], OF_TOOL);
    // As the setup of a checkout leaves it, which is recorded before it runs.
    scene.can_write("d");
    scene.is_refused(&["~/d/sub"], OF_TOOL);
}

#[test]
fn what_is_missing_is_refused_with_its_path_and_the_host() {
    let scene = Scene::new();
    scene.is_refused(
        &["~/data", "~/missing"],
        "alice cannot write ~/missing on box: ",
    );
    scene.is_refused(&["~/missing"], "No such file");
}

#[test]
fn an_order_is_refused_for_what_it_names_itself() {
    let writable = |named: &[&str]| WritablePlaces {
        paths: Vec::new(),
        unusable: named
            .iter()
            .map(|&named| UnusablePlace {
                named: named.to_owned(),
                why: format!("why {named}"),
            })
            .collect(),
    };
    let asked = ["~/b".to_owned()];
    let refusal = |is_first, named: &[&str]| writable(named).take_refusal(is_first, &asked);
    assert_eq!(refusal(true, &["~/a"]), Some("why ~/a".to_owned()));
    assert_eq!(refusal(false, &["~/a"]), None, "it is only recorded");
    let named = refusal(false, &["~/a", "~/b"]);
    assert_eq!(named, Some("why ~/b".to_owned()));
    assert_eq!(refusal(true, &[]), None);
}
