use std::fs;
use std::os::unix::fs::symlink;

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
        let guarded = guarded.iter().map(|(path, name)| (root.join(path), Name::of_inbox(name).unwrap()));
        Self { guarded: Guarded(guarded.collect()), _folder: folder, root }
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
