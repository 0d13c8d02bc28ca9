//! Skills as they should be, and as an attacker would write them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use nix::sys::stat::Mode as FifoMode;
use nix::unistd::mkfifo;

use super::*;

struct Scratch {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("desk");
        fs::create_dir(&root).unwrap();
        let team_dir = Arc::new(TeamDir::create(&root.join(".team")).unwrap());
        let alice = Name::new("alice").unwrap();
        let scratch = Self {
            workspace: Workspace::open(&root, team_dir, &alice).unwrap(),
            folder,
        };
        scratch.put("secret", b"outside");
        scratch
    }

    /// A path beside the workspace, which is `desk`; the home of the user is `home`.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().write_all(content).unwrap();
    }

    fn skill(&self, folder: &str, description: &str) {
        let text = format!("---\ndescription: {description}\n---\nDo it.\n");
        self.put(&format!("{folder}/SKILL.md"), text.as_bytes());
    }

    fn find(&self) -> Vec<Skill> {
        find(&self.workspace, Some(&self.path("home")), |_| true)
    }

    fn names(&self) -> Vec<String> {
        self.find().into_iter().map(|skill| skill.name).collect()
    }

    fn load(&self, name: &str, file: &str) -> Result<String, String> {
        let call = LoadSkill {
            name: name.to_owned(),
            file: (!file.is_empty()).then(|| file.to_owned()),
        };
        load(&self.workspace, &self.find(), &call, |_| true)
    }

    #[track_caller]
    fn refused(&self, name: &str, file: &str, why: &str) {
        let error = self.load(name, file).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_skills_of_the_user_and_of_the_workspace_are_found_and_read() {
    let scratch = Scratch::new();
    scratch.skill("desk/.agents/skills/pdf", "Fills forms.");
    scratch.skill("desk/.claude/skills/deploy", "Of the repository.");
    scratch.skill("elsewhere/deploy", "The user's own.");
    scratch.put("desk/.agents/skills/pdf/ref/forms.md", b"forms");
    symlink("ref/forms.md", scratch.path("desk/.agents/skills/pdf/link")).unwrap();
    fs::create_dir_all(scratch.path("home/.claude")).unwrap();
    symlink(
        scratch.path("elsewhere"),
        scratch.path("home/.claude/skills"),
    )
    .unwrap();
    // A repository does not take the name of one of the user's.
    assert_eq!(scratch.names(), ["deploy", "pdf"]);
    assert_eq!(scratch.find()[0].description, "The user's own.");
    let text = scratch.load("pdf", "").unwrap();
    assert!(
        text.starts_with("[folder .agents/skills/pdf]\n---") && text.ends_with("Do it.\n"),
        "{text}"
    );
    for file in ["ref/forms.md", "link", "ref/../ref/forms.md"] {
        let text = scratch.load("pdf", file).unwrap();
        assert_eq!(text, "[folder .agents/skills/pdf]\nforms");
    }
    assert!(scratch.load("deploy", "").unwrap().starts_with("---"));
    scratch.refused("pdf", "nothing", "there is no nothing of the skill pdf");
    scratch.refused(
        "word",
        "",
        "there is no skill \"word\"; there are deploy, pdf",
    );
}

#[test]
fn nothing_out_of_its_folder_is_read() {
    let scratch = Scratch::new();
    scratch.skill("desk/.agents/skills/a", "A skill.");
    scratch.skill("desk/.agents/skills/b", "Another.");
    scratch.put("desk/.team/inbox/x", b"mail");
    let secret = scratch.path("secret");
    for (link, target) in [
        ("out", secret.clone()),
        ("up", "../b/SKILL.md".into()),
        ("team", "../../../.team".into()),
        ("root", "/".into()),
    ] {
        symlink(target, scratch.path("desk/.agents/skills/a").join(link)).unwrap();
    }
    for file in [
        "out",
        "up",
        "../b/SKILL.md",
        "../../../../secret",
        "team/inbox/x",
        "root/etc/passwd",
        "/etc/passwd",
        "ref/../../b/SKILL.md",
    ] {
        let read = scratch.load("a", file);
        assert!(read.is_err(), "{file}: {read:?}");
    }
    scratch.refused("a", "out", "leads out of its folder");
    // Neither a folder that is a link, nor a file that says what it is.
    symlink(
        scratch.path("desk/.agents/skills/a"),
        scratch.path("desk/.agents/skills/c"),
    )
    .unwrap();
    fs::create_dir_all(scratch.path("desk/.agents/skills/d")).unwrap();
    symlink(
        "../a/SKILL.md",
        scratch.path("desk/.agents/skills/d/SKILL.md"),
    )
    .unwrap();
    symlink(scratch.path("desk/.agents"), scratch.path("desk/.claude")).unwrap();
    assert_eq!(scratch.names(), ["a", "b"]);
}

#[test]
fn a_pipe_a_huge_file_and_a_binary_one_are_refused_at_once() {
    let scratch = Scratch::new();
    scratch.skill("desk/.agents/skills/a", "A skill.");
    let folder = scratch.path("desk/.agents/skills/a");
    mkfifo(&folder.join("pipe"), FifoMode::S_IRWXU).unwrap();
    let huge = File::create(folder.join("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    scratch.put("desk/.agents/skills/a/image", b"\x89PNG\0\0");
    scratch.put("desk/.agents/skills/a/latin", b"gr\xfc\xdfe");
    scratch.refused("a", "pipe", "not a regular file");
    scratch.refused("a", "huge", "1073741824 bytes, and at most 65536");
    scratch.refused("a", "image", "is not text");
    scratch.refused("a", "latin", "is not text");
    scratch.refused("a", ".", "not a regular file");
    // They are no skills either.
    for name in ["pipe", "huge"] {
        fs::create_dir(folder.with_file_name(name)).unwrap();
    }
    mkfifo(
        &folder.with_file_name("pipe").join(SKILL),
        FifoMode::S_IRWXU,
    )
    .unwrap();
    let huge = File::create(folder.with_file_name("huge").join(SKILL)).unwrap();
    huge.set_len(1 << 30).unwrap();
    assert_eq!(scratch.names(), ["a"]);
}

#[test]
fn what_is_told_is_bounded_and_hides_nothing() {
    let scratch = Scratch::new();
    for number in 10..40 {
        scratch.skill(&format!("desk/.agents/skills/s{number}"), &"x".repeat(200));
    }
    scratch.skill("desk/.agents/skills/a-evil", "a\u{1b}]0;b\u{7}");
    scratch.skill("desk/.agents/skills/UPPER", "a name that is none");
    let skills = scratch.find();
    let told: usize = skills
        .iter()
        .map(|skill| skill.name.len() + skill.description.len())
        .sum();
    assert!(told <= MAX_TOLD && skills.len() == 4, "{told}");
    assert_eq!(skills[0].name, "s10");
}

#[test]
fn a_folder_that_may_not_be_used_is_left_out_and_not_read_later() {
    let scratch = Scratch::new();
    scratch.skill("desk/.agents/skills/a", "A skill.");
    scratch.skill("home/.agents/skills/own", "The user's.");
    let workspace = scratch.path("desk");
    let may_use = |folder: &Path| !folder.starts_with(&workspace);
    let found = find(&scratch.workspace, Some(&scratch.path("home")), may_use);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "own");
    let call = LoadSkill {
        name: "a".to_owned(),
        file: None,
    };
    let error = load(&scratch.workspace, &scratch.find(), &call, may_use).unwrap_err();
    assert!(error.contains("a teammate may write in"), "{error}");
}
