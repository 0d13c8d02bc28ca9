//! Hooks: commands of the user's own configuration, which the user alone can change.

#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Team;

/// Writes the user's configuration: each hook adds its facts to a file in the home directory.
pub(crate) fn configure(home: &Path, hooks: &[&str]) -> PathBuf {
    let folder = home.join(".config/teamd");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.toml");
    fs::write(
        &file,
        "[hooks]\n".to_owned()
            + &hooks
                .iter()
                .map(|hook| format!("{hook} = '{{ cat; echo; }} >> {}/{hook}'\n", home.display()))
                .collect::<String>(),
    )
    .unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    file
}

/// What a hook was told, each time.
pub(crate) fn told(home: &Path, hook: &str) -> Vec<Value> {
    let text = fs::read_to_string(home.join(hook)).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn log(team: &Team) -> String {
    team.file("log/teamd.log")
}

#[test]
fn each_hook_is_told_once_what_happened() {
    let team = Team::new();
    let home = team.home();
    configure(&home, &["on_request", "on_idle", "on_end"]);
    team.teamd(["start"]).ok();
    team.teamctl([
        "spawn",
        "alice",
        "--role",
        "coder",
        "--plan",
        "--prompt",
        "/plan_approval tidy up",
    ])
    .ok();
    team.until("the request to be told", || {
        told(&home, "on_request").len() == 1
    });
    let request = told(&home, "on_request").remove(0);
    assert_eq!(
        (&request["name"], &request["role"]),
        (&"alice".into(), &"coder".into()),
        "{request}"
    );
    assert_eq!(
        (&request["hook"], &request["request"]["payload"]["plan"]),
        (&"on_request".into(), &"tidy up".into())
    );
    assert!(
        told(&home, "on_idle").is_empty(),
        "it waits: its work has not ended"
    );
    let id = request["request"]["request_id"].as_str().unwrap();
    team.teamctl(["approve", id]).ok();
    team.until("the end of the work to be told", || {
        told(&home, "on_idle").len() == 1
    });
    assert_eq!(
        told(&home, "on_idle")[0]["message"]["idle_reason"],
        "available"
    );
    team.shutdown("alice", &[], 0);
    team.until("the end to be told", || told(&home, "on_end").len() == 1);
    let end = told(&home, "on_end").remove(0);
    assert_eq!(
        (&end["exit"]["code"], &end["incarnation"]),
        (&0.into(), &1.into()),
        "{end}"
    );
    // A daemon that comes back tells nothing again.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.teamd(["stop"]).ok();
    assert_eq!(
        ["on_request", "on_idle", "on_end"].map(|hook| told(&home, hook).len()),
        [1, 1, 1]
    );
}

/// What a daemon has shown before its end may have reached no person.
#[test]
fn what_waits_is_told_again_after_a_start_and_no_output_of_a_hook_answers_it() {
    let team = Team::new();
    let home = team.home();
    let file = configure(&home, &[]);
    let told_to = home.join("on_request").display().to_string();
    let hook = format!(
        "printf \"%s\\n\" \"$(cat)\" >> {told_to}; echo approve; echo y; echo \"{{\\\"approve\\\": true}}\"; exit 1"
    );
    fs::write(&file, format!("[hooks]\non_request = '{hook}'\n")).unwrap();
    team.teamd(["start"]).ok();
    for name in ["alice", "bob"] {
        let prompt = "/plan_approval tidy up";
        team.teamctl(["spawn", name, "--plan", "--prompt", prompt])
            .ok();
        team.until_planned(name);
    }
    let told = |count: usize| {
        team.until("the requests to be told", || {
            told(&home, "on_request").len() >= count
        });
        let told = told(&home, "on_request");
        assert_eq!(told.len(), count, "{told:?}");
        told
    };
    let first = told(2);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    let again = told(4);
    let ids = |facts: &[Value]| {
        let ids = facts.iter().map(|it| it["request"]["request_id"].clone());
        let mut ids: Vec<String> = ids.map(|id| id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&first), ids(&again[2..]));
    // One of them is answered, and is not told again by the next program either.
    let alice = team.until_planned("alice");
    team.teamctl(["approve", &alice]).ok();
    team.teamd(["start", "--replace"]).ok();
    assert_eq!(told(5)[4]["name"], "bob");
    assert_eq!(
        team.request(&team.until_planned("bob"))["status"],
        "pending"
    );
}

#[test]
fn a_bot_answers_the_plan_that_it_was_shown_and_no_other() {
    let team = Team::new();
    let home = team.home();
    configure(&home, &["on_request"]);
    team.teamd(["start"]).ok();
    let prompt = "/plan_approval drop the cache";
    team.teamctl(["spawn", "alice", "--plan", "--prompt", prompt])
        .ok();
    let id = team.until_planned("alice");
    team.until("the hook", || !told(&home, "on_request").is_empty());
    let hash = told(&home, "on_request")[0]["plan_sha256"].clone();
    let hash = hash.as_str().unwrap().to_owned();
    let summed = team.run_program("bash", ["-c", "printf 'drop the cache' | sha256sum"]);
    assert!(summed.ok().stdout.starts_with(&hash));
    for list in ["plans", "requests"] {
        assert_eq!(team.json([list])[0]["plan_sha256"], hash.as_str());
    }
    let other = "0".repeat(64);
    let refused = team
        .teamctl(["approve", &id, "--plan-sha256", &other])
        .exits(7);
    assert!(
        refused.stderr.contains("is another one") && refused.stderr.contains("`teamctl plans"),
        "{refused:?}"
    );
    assert_eq!(team.request(&id)["status"], "pending");
    let refused = team.teamctl(["approve", &id, "--plan-sha256", "beef"]);
    assert!(refused.exits(2).stderr.contains("64 hex digits"));
    let upper = hash.to_uppercase();
    team.teamctl(["approve", &id, "--plan-sha256", &upper]).ok();
    assert_eq!(team.request(&id)["status"], "approved");
    // The same answer again is no error, and another hash still is.
    team.teamctl(["approve", &id, "--plan-sha256", &hash]).ok();
    team.teamctl(["approve", &id, "--plan-sha256", &other])
        .exits(7);
}

/// Says what it was given, and answers as the topic of the answers would.
const CURL: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
*/raw) cat answers; exit ;;
esac
{ for arg; do printf 'arg %s\n' "$arg"; done; printf 'in %s\nend\n' "$(cat)"; } > call.$$
mv call.$$ "call-$$"
"#;

/// Returns the scripts of the guide.
fn scripts() -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md");
    let guide = fs::read_to_string(guide).unwrap();
    let blocks = guide.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    blocks
        .filter(|block| block.starts_with("#!/bin/sh"))
        .collect()
}

#[test]
fn the_scripts_of_the_guide_tell_a_person_and_take_the_answer() {
    let team = Team::new();
    let home = team.home();
    let bin = home.join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let team = team
        .with("PATH", &path)
        .with("NTFY_TOPIC", "secret-topic")
        .with("SLACK_URL", "https://hooks.slack.com/services/X");
    if !team
        .command("jq", ["--version"])
        .output()
        .is_ok_and(|it| it.status.success())
    {
        return crate::support::cgroup::note("skipped: jq is wanted");
    }
    let file = configure(&home, &[]);
    let folder = file.parent().unwrap();
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_teamctl"), bin.join("teamctl")).unwrap();
    let scripts = scripts();
    assert_eq!(scripts.len(), 3);
    let [ntfy, answers, slack] = [&scripts[0], &scripts[1], &scripts[2]];
    let put = |at: PathBuf, text: &str| {
        fs::write(&at, text).unwrap();
        fs::set_permissions(at, PermissionsExt::from_mode(0o755)).unwrap();
    };
    assert!(scripts.iter().all(|script| script.lines().count() <= 20));
    put(bin.join("curl"), CURL);
    put(bin.join("ntfy-answers"), answers);
    put(folder.join("ntfy"), ntfy);
    put(folder.join("slack"), slack);
    let hook = "f=$(cat); printf %s \"$f\" | ./ntfy; printf %s \"$f\" | ./slack";
    fs::write(
        &file,
        format!("[hooks]\nenv = ['NTFY_TOPIC', 'SLACK_URL']\non_request = '{hook}'\n"),
    )
    .unwrap();
    let calls = || {
        let all = fs::read_dir(&bin)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let all = all.filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("call-")
        });
        all.map(|path| fs::read_to_string(path).unwrap())
            .collect::<Vec<_>>()
    };
    team.teamd(["start"]).ok();
    let plan = "tell <!channel> that \"it\" 'is' $(done)";
    let long = "x".repeat(4000);
    for (name, plan) in [("alice", plan), ("bob", &long)] {
        let prompt = format!("/plan_approval {plan}");
        team.teamctl(["spawn", name, "--plan", "--prompt", &prompt])
            .ok();
    }
    let id = team.until_planned("alice");
    let hash = team.json(["plans", &id])[0]["plan_sha256"].clone();
    let hash = hash.as_str().unwrap();
    team.until("all to be told", || calls().len() == 4);
    let calls = calls();
    let one = |of: &str, name: &str| {
        let mut found = calls
            .iter()
            .filter(|call| call.contains(of) && call.contains(name));
        found
            .next()
            .unwrap_or_else(|| panic!("{of} {name}: {calls:?}"))
    };
    let topic = "\narg https://ntfy.sh/secret-topic\n";
    let told = one(topic, "alice waits");
    assert!(
        told.contains(&format!("arg Title: alice waits for you: {id}\n")),
        "{told}"
    );
    let action = format!(
        "arg Actions: http, Approve, https://ntfy.sh/secret-topic-answers, body='{id} {hash}'\n"
    );
    assert!(
        told.contains(&action) && told.contains(&format!("\nin {plan}\n")),
        "{told}"
    );
    let cut = one(topic, "bob waits");
    assert!(
        !cut.contains("Actions") && cut.len() < 4000,
        "no button for what is not shown: {cut}"
    );
    let slack = one("hooks.slack.com", "alice waits");
    let sent = slack
        .split("\nin ")
        .nth(1)
        .unwrap()
        .trim_end()
        .strip_suffix("end")
        .unwrap();
    let sent: Value = serde_json::from_str(sent).unwrap();
    let text = &sent["blocks"][0]["text"];
    assert_eq!(text["type"], "plain_text", "in which nothing pings");
    let text = text["text"].as_str().unwrap();
    assert!(
        text.contains(plan)
            && text.ends_with(&format!("teamctl approve {id} --plan-sha256 {hash}")),
        "{text}"
    );
    // The button posts a line; others may post what they like.
    let posted = format!("\nhello\n{id} {}\n{id} {hash}\n", "0".repeat(64));
    fs::write(bin.join("answers"), posted).unwrap();
    let answered = team
        .run_program(bin.join("ntfy-answers").to_str().unwrap(), [""; 0])
        .ok();
    assert!(answered.stderr.contains("is another one"), "{answered:?}");
    assert_eq!(team.request(&id)["status"], "approved");
}

#[test]
fn a_hook_that_hangs_or_fails_holds_up_nothing_and_ends_with_the_daemon() {
    let team = Team::new();
    let folder = team.home().join(".config/teamd");
    fs::create_dir_all(&folder).unwrap();
    let mark = team.home().join("pid");
    let hooks = format!(
        "[hooks]\non_idle = 'echo $$ > {}; sleep 1000 | sleep 1000'\non_end = 'echo what a pity; exit 7'\n",
        mark.display()
    );
    fs::write(folder.join("config.toml"), hooks).unwrap();
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    for count in 1..=6 {
        team.send("alice", "go on").ok();
        team.until_finished("alice", count);
    }
    team.shutdown("alice", &[], 0);
    team.until("a hook to run", || {
        fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n'))
    });
    // The end of an incarnation ends orphans: a hook is none.
    let pid = fs::read_to_string(&mark).unwrap();
    let runs = || Path::new("/proc").join(pid.trim()).join("exe").exists();
    assert!(runs());
    team.teamd(["stop"]).ok();
    team.until("the hooks to end", || !runs());
    assert!(
        log(&team).contains("hooks are ended with the daemon"),
        "{}",
        log(&team)
    );
}

#[test]
fn what_a_hook_says_is_logged_if_it_fails() {
    let team = Team::new();
    let file = configure(&team.home(), &[]);
    fs::write(
        file,
        "[hooks]\non_end = 'seq 1 9999; echo what a pity >&2; exit 7'\n",
    )
    .unwrap();
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    team.shutdown("alice", &[], 0);
    team.until("it to be logged", || {
        log(&team).contains("the hook `on_end` failed: exit status: 7")
    });
    let log = log(&team);
    assert!(
        log.contains("what a pity") && !log.contains("\\n5000"),
        "{log}"
    );
}

#[test]
fn only_a_file_that_is_the_users_alone_has_hooks() {
    let team = Team::started();
    let home = team.home();
    let file = configure(&home, &["on_idle"]);
    team.spawn("alice", "");
    let mut count = 0;
    let mut work = || {
        count += 1;
        team.send("alice", "go on").ok();
        team.until_finished("alice", count);
    };
    for mode in [0o664, 0o646] {
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        work();
    }
    team.until("both to be refused", || {
        log(&team).matches("no hook `on_idle`").count() == 2
    });
    let elsewhere = team.root().join("config.toml");
    fs::rename(&file, &elsewhere).unwrap();
    fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o644)).unwrap();
    symlink(&elsewhere, &file).unwrap();
    work();
    team.until("the link to be refused", || {
        log(&team).contains("a symbolic link stands on the way")
    });
    fs::remove_file(&file).unwrap();
    fs::write(&file, "[hooks]\non_idel = 'true'\n").unwrap();
    work();
    team.until("the mistake to be told", || {
        log(&team).contains("unknown field `on_idel`")
    });
    assert!(told(&home, "on_idle").is_empty());
    configure(&home, &["on_idle"]);
    work();
    team.until("the hook to run", || told(&home, "on_idle").len() == 1);
}

#[test]
fn a_repository_brings_no_hooks() {
    let team = Team::started();
    team.write(
        "team.toml",
        "grace = 3\n[hooks]\non_end = 'touch planted'\n",
    );
    let said = team.teamctl(["spawn", "alice"]).exits(2);
    assert!(
        said.stderr
            .contains("team.toml:2:2: hooks do not belong into team.toml"),
        "{said:?}"
    );
    assert!(
        said.stderr
            .contains("hint: write `[hooks]` into your own ~/.config/teamd/config.toml"),
        "{said:?}"
    );
}

/// A hook runs outside of the sandbox: a program or a module that a teammate has written is not
/// found, by whatever way it is looked for.
#[test]
fn nothing_that_a_teammate_writes_runs_with_a_hook() {
    let team = Team::new();
    let root = team.root().canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let path = std::env::var("PATH").unwrap();
    let team = team
        .with("PATH", &format!("{root}/bin:bin::.:{path}"))
        .with("PYTHONPATH", root)
        .with("PYTHONSTARTUP", &format!("{root}/json.py"))
        .with("LD_PRELOAD", "")
        .with("ENV", &format!("{root}/planted.sh"))
        .with("BASH_ENV", &format!("{root}/planted.sh"))
        .with("OLDPWD", root)
        .with("GIT_DIR", &format!("{root}/git"))
        .with("TMPDIR", root)
        .with("SLACK", "passed on");
    if !team
        .command("python3", ["-c", ""])
        .status()
        .is_ok_and(|status| status.success())
    {
        return crate::support::cgroup::note(
            "skipped: an interpreter is wanted that looks for modules where it runs",
        );
    }
    let file = configure(&team.home(), &[]);
    let told = team.home().join("told").display().to_string();
    let hook = format!(
        "python3 -c 'import json, os, sys; print(json.dumps([os.getcwd(), json.load(sys.stdin), dict(os.environ)]))' > {told}.new; date; bash -c true; cd - ; ./date; mv {told}.new {told}"
    );
    fs::write(
        &file,
        format!("[hooks]\nenv = ['SLACK']\non_idle = \"\"\"{hook}\"\"\"\n"),
    )
    .unwrap();
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    fs::create_dir(team.root().join("bin")).unwrap();
    let python = format!("open('{root}/RAN', 'w')");
    let shell = format!("#!/bin/sh\ntouch {root}/RAN");
    for (name, content) in [
        ("json.py", &python),
        ("os.py", &python),
        ("sitecustomize.py", &python),
        ("planted.sh", &shell),
        ("date", &shell),
        ("bin/date", &shell),
        ("bin/python3", &shell),
        ("bin/mv", &shell),
    ] {
        team.write(name, content);
        fs::set_permissions(team.root().join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    team.send("alice", "go on").ok();
    team.until("the hook to be told", || Path::new(&told).exists());
    let said: Value = serde_json::from_str(&fs::read_to_string(&told).unwrap()).unwrap();
    let folder = file.parent().unwrap().canonicalize().unwrap();
    assert_eq!(
        (said[0].as_str(), said[1]["workspace"].as_str()),
        (folder.to_str(), Some(root)),
        "{said}"
    );
    assert_eq!(said[2]["SLACK"], "passed on", "{said}");
    // A `python3` may be a script that puts more before it.
    assert!(
        said[2]["PATH"].as_str().unwrap().ends_with(path.as_str()),
        "{said}"
    );
    assert!(!said[2].to_string().contains(root), "{said}");
    team.teamd(["stop"]).ok();
    assert!(
        !team.made("RAN"),
        "what a teammate wrote has run outside of its sandbox"
    );
}

#[test]
fn no_tool_changes_the_hooks_though_it_may_write_all_around_them() {
    for (is_there, is_named) in [(false, true), (true, true), (true, false)] {
        let team = Team::new();
        let home = team.home();
        let file = if is_there {
            configure(&home, &["on_end"])
        } else {
            home.join(".config/teamd/config.toml")
        };
        let before = fs::read(&file).ok();
        team.teamd(["start"]).ok();
        // By name, or as a part of the workspace.
        let flags = if is_named {
            ["--writable", home.to_str().unwrap()]
        } else {
            ["--workspace", home.parent().unwrap().to_str().unwrap()]
        };
        team.teamctl(["spawn", "alice"].iter().chain(&flags)).ok();
        let home = home.display();
        for attack in [
            format!("mkdir -p {home}/.config/teamd; echo x > {home}/.config/teamd/config.toml"),
            format!(
                "mv {home}/.config {home}/old && mkdir -p {home}/.config/teamd && echo x > {home}/.config/teamd/config.toml"
            ),
            format!("rm -rf {home}/.config/teamd && ln -s {home} {home}/.config/teamd"),
            format!(
                "chmod 777 {home}/.config/teamd/config.toml || mount --bind /tmp {home}/.config/teamd"
            ),
        ] {
            team.does("alice", &format!("/bash {attack} && echo BROKEN"));
            assert_eq!(fs::read(&file).ok(), before, "{attack}");
            assert!(!Path::new(&format!("{home}/old")).exists(), "{attack}");
        }
        let write = serde_json::json!({"path": file, "content": "[hooks]"});
        team.does("alice", &format!("/write_file {write}"));
        assert_eq!(fs::read(&file).ok(), before, "write_file");
        let edit = serde_json::json!({"path": file, "old_string": "hooks", "new_string": "hocks"});
        team.does("alice", &format!("/edit_file {edit}"));
        assert_eq!(fs::read(&file).ok(), before, "edit_file");
        let seen = team.does(
            "alice",
            &format!("/bash echo y > {home}/mine && cat {home}/mine"),
        );
        assert_eq!(seen[0]["content"], "y", "the rest can be written");
        team.shutdown("alice", &[], 0);
        let count = usize::from(is_there);
        team.until("the user's hook to run", || {
            told(&team.home(), "on_end").len() == count
        });
    }
}
