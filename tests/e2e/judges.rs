//! Which `git` judges a tree: that of the one whose tree it is. Rows are what a user's
//! configuration and the attributes of a repository make of files; columns are the steps of a task.

use crate::checkouts::{add, checkout, git, says, task, team, until, user};
use crate::support::Team;
use crate::support::user::User;

/// A way in which files differ from what is stored of them.
struct Row {
    name: &'static str,
    /// Lines of the user's configuration: `KEY VALUE`.
    config: &'static [(&'static str, &'static str)],
    /// What the repository says of the file.
    attributes: &'static str,
    /// Makes the file, before the repository says anything of it.
    before: &'static str,
    /// Makes the file, as the user does.
    first: &'static str,
    /// Changes it, as a teammate does. Then all is committed.
    work: &'static str,
    /// Changes it so that the teammate's own `git` says so; none: it cannot.
    dirt: &'static str,
    file: &'static str,
}

const ROW: Row = Row {
    name: "",
    config: &[],
    attributes: "",
    before: "",
    first: "",
    work: "",
    dirt: "",
    file: "",
};

const ROWS: [Row; 11] = [
    Row {
        name: "clean filter by the user's own attributes",
        config: &[
            ("core.attributesFile", "~/attributes"),
            ("filter.brief.clean", "head -n 2"),
        ],
        first: "echo '*.brief filter=brief' > ~/attributes; echo 1 > a.brief",
        work: "seq 9 > a.brief",
        dirt: "seq 2 9 > a.brief",
        file: "a.brief",
        ..ROW
    },
    Row {
        name: "clean filter",
        config: &[
            ("filter.strip.clean", "sed -e /OUTPUT/d"),
            ("filter.strip.smudge", "cat"),
        ],
        attributes: "*.nb filter=strip",
        first: "echo cell 1 > a.nb",
        work: "printf 'cell 1\\ncell 2\\nOUTPUT 7\\n' > a.nb",
        dirt: "echo cell 3 >> a.nb",
        file: "a.nb",
        ..ROW
    },
    Row {
        name: "smudge filter that must not fail",
        config: &[
            ("filter.loud.clean", "tr A-Z a-z"),
            ("filter.loud.smudge", "tr a-z A-Z"),
            ("filter.loud.required", "true"),
        ],
        attributes: "*.loud filter=loud",
        first: "echo HELLO > a.loud",
        work: "echo WORLD >> a.loud",
        dirt: "echo MORE >> a.loud",
        file: "a.loud",
        ..ROW
    },
    Row {
        name: "eol=crlf",
        attributes: "*.bat text eol=crlf",
        first: "printf 'a\\r\\n' > a.bat",
        work: "printf 'b\\r\\n' >> a.bat",
        dirt: "printf 'c\\r\\n' >> a.bat",
        file: "a.bat",
        ..ROW
    },
    Row {
        name: "CRLF stored under eol=lf",
        attributes: "*.lf text eol=lf",
        before: "printf 'a\\r\\n' > a.lf; cp a.lf b.lf",
        work: "printf 'c\\r\\n' >> b.lf; id=$(git hash-object -w --no-filters b.lf)",
        dirt: "printf 'd\\r\\n' >> b.lf",
        file: "b.lf",
        ..ROW
    },
    Row {
        name: "autocrlf",
        first: "echo one > plain",
        work: "if [ $(git config core.autocrlf) = true ]; then printf 'two\\r\\n'; else echo two; fi >> plain",
        dirt: "echo three >> plain",
        file: "plain",
        ..ROW
    },
    Row {
        name: "core.excludesFile",
        config: &[("core.excludesFile", "~/ignored")],
        first: "printf '*.tmp\\nteam.toml\\n' > ~/ignored; touch of-the-user.tmp",
        work: "touch left.tmp",
        ..ROW
    },
    Row {
        name: "ident",
        attributes: "*.id ident",
        first: "echo '$Id$' > a.id",
        work: "grep -q '^.Id: ' a.id && echo more >> a.id",
        dirt: "echo again >> a.id",
        file: "a.id",
        ..ROW
    },
    Row {
        name: "working-tree-encoding",
        attributes: "*.u16 text working-tree-encoding=UTF-16LE-BOM",
        first: "{ printf '\\xff\\xfe'; printf 'one\\n' | iconv -t UTF-16LE; } > a.u16",
        work: "{ printf '\\xff\\xfe'; printf 'one\\r\\ntwo\\r\\n' | iconv -t UTF-16LE; } > a.u16",
        dirt: "printf 'three\\n' | iconv -t UTF-16LE >> a.u16",
        file: "a.u16",
        ..ROW
    },
    Row {
        name: "core.symlinks=false",
        config: &[("core.symlinks", "false")],
        first: "ln -s plain link",
        work: "test ! -L link && printf a.id > link",
        dirt: "printf a.nb > link",
        file: "link",
        ..ROW
    },
    Row {
        name: "core.fileMode=false in the repository",
        first: "echo one > mode; git add mode; git config core.fileMode false; chmod +x mode",
        work: "echo two >> mode",
        dirt: "chmod +x mode",
        file: "mode",
        ..ROW
    },
];

const LFS: Row = Row {
    name: "Git LFS",
    attributes: "*.bin filter=lfs diff=lfs merge=lfs -text",
    // The content of the second one stays in the user's copies.
    first: "echo one > a.bin; echo two > b.bin; echo three > c.bin; cp c.bin d.bin; git add b.bin; git show :b.bin > ~/two; git rm -q --cached b.bin; rm b.bin",
    work: "grep -qx one a.bin; cat ~/two > a.bin; echo new > c.bin; sed s/oid.sha256:./oid\\ sha256:0/ ~/two > d.bin",
    dirt: "echo four > a.bin",
    file: "a.bin",
    ..ROW
};

fn has_lfs() -> bool {
    std::process::Command::new("git")
        .args(["lfs", "version"])
        .output()
        .is_ok_and(|it| it.status.success())
}

fn each(rows: &[&Row], of: impl Fn(&Row) -> String) -> String {
    rows.iter()
        .map(|row| of(row))
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// A team whose user has all of that, and one who answers for the line ends.
fn prepared(rows: &[&Row], who: User, autocrlf: &str) -> Team {
    let team = Team::of(who);
    let config = each(rows, |row| {
        row.config
            .iter()
            .map(|(key, value)| format!("git config --global {key} '{value}'"))
            .collect::<Vec<_>>()
            .join("; ")
    });
    let attributes = each(rows, |row| match row.attributes {
        "" => String::new(),
        line => format!("echo '{line}' >> .gitattributes"),
    });
    let lfs = if rows.iter().any(|row| row.name == LFS.name) {
        "git lfs install > /dev/null"
    } else {
        "true"
    };
    user(
        &team,
        &format!(
            "{config}; {lfs}; git init -q -b main .; {}; git add .; git commit -q --allow-empty -m before; git config --global core.autocrlf {autocrlf}; {attributes}; {}; git add -- . ':!*.lf'; git commit -qm first",
            each(rows, |row| row.before.to_owned()),
            each(rows, |row| row.first.to_owned())
        ),
    );
    team.write(
        "team.toml",
        "[work]\ncheck = \"git status --porcelain -- ':!*.lf' | { ! grep . ; }\"\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    team
}

/// What the teammate's own `git` says of its tree, but for what it can never be content with.
fn own_status(team: &Team, name: &str) -> String {
    user(
        team,
        &format!(
            "cd {}; git status --porcelain -- ':!*.lf'",
            checkout(team, name).display()
        ),
    )
}

#[test]
fn a_tree_is_what_the_git_of_its_owner_says() {
    let with_lfs = has_lfs();
    if !with_lfs {
        println!("skipped: the rows of Git LFS need git-lfs");
    }
    for (who, autocrlf) in User::at_hand().into_iter().zip(["true", "input"]) {
        let rows: Vec<&Row> = ROWS.iter().chain(with_lfs.then_some(&LFS)).collect();
        let team = prepared(&rows, who, autocrlf);
        // claim: the checkout is as that git makes it, and clean.
        let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
        assert!(!spawned.stderr.contains("not committed"), "{spawned:?}");
        assert_eq!(own_status(&team, "alice"), "", "{autocrlf}");
        let work = each(&rows, |row| row.work.to_owned());
        let commit = "git add -A && git update-index --cacheinfo 100644,$id,b.lf && git commit -qm work; git status --porcelain";
        let submit =
            |id: u64| format!("/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}");
        let check = "grep -q WORLD a.loud && grep -q two plain && ! test -L link";
        let of_lfs = if with_lfs {
            " && grep -qx two a.bin && grep -qx new c.bin"
        } else {
            ""
        };
        add(&team, &["one", "--check", &format!("{check}{of_lfs}")]);
        let results = team.does(
            "alice",
            &format!(
                "/claim_task {{\"task_id\": 1}}\n/bash set -e; {work}; {commit}\n{}",
                submit(1)
            ),
        );
        assert_eq!(own_status(&team, "alice"), "", "{results:?}");
        says(&results, 2, "is submitted");
        assert_eq!(
            until(&team, 1, "completed")["result"]["verified"],
            "checked"
        );
        // What is not committed is named, and nothing else.
        add(&team, &["two"]);
        let dirt = each(&rows, |row| row.dirt.to_owned());
        let undo = format!("/bash git checkout -q .\n{}", submit(2));
        let results = team.does(
            "alice",
            &format!(
                "/claim_task {{\"task_id\": 2}}\n/bash {dirt}\n{}\n{undo}",
                submit(2)
            ),
        );
        let mut files: Vec<&str> = rows
            .iter()
            .map(|row| row.file)
            .filter(|file| !file.is_empty())
            .collect();
        files.sort_unstable();
        says(
            &results,
            2,
            &format!("has changes that are not committed: {}", files.join(", ")),
        );
        says(&results, 4, "adds nothing");
        let told = |who: &str| {
            team.inbox(who)
                .iter()
                .any(|it| it.to_string().contains("cannot be given"))
        };
        assert!(!told("alice") && !told("lead"));
        // land: each file is what a checkout of the user makes of it, and the user's git has
        // nothing to say.
        let landed = team.teamctl(["land"]).ok();
        let told = landed
            .stderr
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            told.ends_with("are pointers: d.bin"),
            with_lfs,
            "{landed:?}"
        );
        let of_user =
            "export GIT_LFS_SKIP_DOWNLOAD_ERRORS=1; git -c lfs.standalonetransferagent=none";
        let same = "diff -r -x .git -x .gitattributes -x .team -x team.toml -x '*.tmp' . ../fresh && git status --porcelain";
        let made = format!("{of_user} worktree add -q --detach ../fresh HEAD 2> ../errors; {same}");
        assert_eq!(user(&team, &made), "");
        let of = |file: &str| std::fs::read(team.root().join(file)).unwrap();
        assert_eq!(
            of("plain"),
            if autocrlf == "true" {
                b"one\r\ntwo\r\n".as_slice()
            } else {
                b"one\ntwo\n"
            }
        );
        assert!(of("a.loud").starts_with(b"HELLO") && of("b.lf") == b"a\r\nc\r\n");
        assert!(!with_lfs || of("a.bin") == b"two\n" && of("c.bin") == b"new\n");
        assert_eq!(
            user(&team, "git rev-parse main"),
            git(&team, &["rev-parse", "integration"])
        );
    }
}

#[test]
fn what_the_users_settings_lead_to_in_dot_folders_is_seen_and_a_key_there_if_it_is_visible() {
    let team = Team::of(User::at_hand()[0]);
    user(
        &team,
        "mkdir ~/.gitconfig.d ~/.dotfiles ~/.keys; echo k > ~/.keys/k; set_to() { git config -f ~/.gitconfig.d/filters \"$@\"; }; \
         set_to filter.strip.clean 'sed -e /OUTPUT/d'; set_to filter.loud.clean 'test -s ~/.keys/k && tr A-Z a-z'; \
         set_to filter.loud.smudge 'test -s ~/.keys/k && tr a-z A-Z'; set_to filter.loud.required true; \
         git config --global include.path '~/.gitconfig.d/filters'; git config --global core.excludesFile '~/.dotfiles/ignored'; \
         printf '*.swp\\nteam.toml\\n' > ~/.dotfiles/ignored; git init -q -b main .; \
         printf '*.nb filter=strip\\n*.loud filter=loud\\n' > .gitattributes; echo cell > a.nb; echo HELLO > a.loud; git add .; git commit -qm first",
    );
    team.write("team.toml", "[work]\ncheck = \"grep WORLD a.loud\"\n");
    team.trust();
    team.teamd(["start"]).ok();
    let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(1);
    let text = &refused.stderr;
    assert!(
        text.contains("filter") && text.contains("`[sandbox] visible`"),
        "{text}"
    );
    team.write(
        "team.toml",
        "[work]\ncheck = \"grep WORLD a.loud\"\n[sandbox]\nvisible = [\"~/.keys\"]\n",
    );
    team.trust();
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash touch left.swp; echo WORLD >> a.loud; printf 'cell\\ncell 2\\nOUTPUT 7\\n' > a.nb; git commit -qam work";
    add(&team, &["one", "--description", work]);
    assert_eq!(
        until(&team, 1, "completed")["result"]["verified"],
        "checked"
    );
    assert_eq!(git(&team, &["show", "integration:a.nb"]), "cell\ncell 2");
    assert_eq!(git(&team, &["show", "integration:a.loud"]), "hello\nworld");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "cat a.loud; git status --porcelain"),
        "HELLO\nWORLD"
    );
}

#[test]
fn a_filter_that_fails_leaves_the_users_tree_as_it_was() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\n",
        "echo '*.x filter=x' > .gitattributes; echo x > z.x; git add .; git commit -qm x; \
         git config filter.x.smudge 'if test -e ../fails; then exit 1; fi; tr a-z A-Z'; git config filter.x.clean 'tr A-Z a-z'; \
         git config filter.x.required true; rm z.x; git checkout -q z.x; touch ../fails",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work =
        "/bash echo more >> a.txt; echo y >> z.x; echo new > new; git add .; git commit -qm work";
    add(&team, &["one", "--description", work]);
    until(&team, 1, "completed");
    let before = user(&team, "git rev-parse HEAD");
    let refused = team.teamctl(["land"]).exits(7);
    assert!(
        refused
            .stderr
            .contains("main cannot be moved: z.x: smudge filter x failed"),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("`[sandbox] visible`"),
        "{refused:?}"
    );
    assert_eq!(
        user(&team, "git rev-parse HEAD; cat a.txt; ls"),
        format!("{before}\none\na.txt\nteam.toml\nz.x")
    );
    user(&team, "rm ../fails");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "cat z.x; git status --porcelain"),
        "X\nY\n?? team.toml"
    );
}

#[test]
fn what_a_sparse_tree_of_the_user_leaves_out_is_left_out_when_it_lands() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\n",
        "mkdir near far; echo n > near/n; echo f > far/f; git add .; git commit -qm two; git sparse-checkout set near",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash echo more >> near/n; echo more >> far/f; echo new > far/new; git add .; git commit -qm work";
    add(&team, &["one", "--description", work]);
    until(&team, 1, "completed");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "test ! -e far; cat near/n; git status --porcelain"),
        "n\nmore\n?? team.toml"
    );
}

/// How two changes of one file are merged is for the integration branch to say, and no driver of
/// the user's runs.
#[test]
fn the_attributes_of_the_integration_branch_say_how_it_merges() {
    let who = User::at_hand()[0];
    let team = Team::of(who);
    user(
        &team,
        "git config --global merge.mine.driver 'touch ~/has-run; true'; git init -q -b main .; \
         printf 'log merge=union\\ntable -merge\\nbinary merge=binary\\nmine merge=mine\\n' > .gitattributes; \
         for f in log table binary mine; do seq 9 > $f; done; git add .; git commit -qm first",
    );
    team.write("team.toml", "");
    team.teamd(["start"]).ok();
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout"]).ok();
    }
    let works = |(name, id): (&str, u64), file: &str, line: &str| {
        add(&team, &[file]);
        let work = format!("sed -i '{line}' {file}; git commit -qam {name}");
        let wait = "touch .git/is-done; until [ -e go ]; do sleep 0.02; done; rm go";
        let submit = format!("/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}");
        team.send(
            name,
            &format!("/claim_task {{\"task_id\": {id}}}\n/bash {work}; {wait}\n{submit}"),
        );
        let done = checkout(&team, name).join(".git/is-done");
        team.until("the work to be done", || done.exists());
        std::fs::remove_file(done).unwrap();
    };
    let go = |name: &str| {
        user(
            &team,
            &format!("touch {}/go", checkout(&team, name).display()),
        )
    };
    // Both begin before one of them has submitted.
    for (id, file, conflicts) in [
        (1, "log", false),
        (3, "table", true),
        (5, "binary", true),
        (7, "mine", false),
    ] {
        let lines = if file == "log" {
            ["$aA", "$aB"]
        } else {
            ["1s/$/A/", "9s/$/B/"]
        };
        works(("alice", id), file, lines[0]);
        works(("bob", id + 1), file, lines[1]);
        go("alice");
        until(&team, id, "completed");
        go("bob");
        if !conflicts {
            until(&team, id + 1, "completed");
            continue;
        }
        team.until("it to be sent back", || task(&team, id + 1)["returns"] == 1);
        let why = format!("conflicts with what is integrated, in {file}");
        assert_eq!(task(&team, id + 1)["returned"], why.as_str());
        team.teamctl(["task", "cancel", &(id + 1).to_string()]).ok();
    }
    assert_eq!(
        git(&team, &["show", "integration:log"]),
        format!(
            "{}\nA\nB",
            (1..=9)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join("\n")
        )
    );
    assert!(
        !team.home().join("has-run").exists(),
        "a merge driver of the user has run"
    );
}

/// Bytes are what counts, whatever an attribute says of the file that the user has.
#[test]
fn a_file_that_is_as_it_is_stored_is_landed_over() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\n",
        "printf 'a\\r\\n' > old.txt; git add .; git commit -qm crlf; echo '*.txt text eol=lf' > .gitattributes; git add .gitattributes; git commit -qm rule; \
         touch -d '1 hour ago' old.txt",
    );
    assert_eq!(
        user(&team, "git status --porcelain -- old.txt"),
        "M old.txt"
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash printf 'b\\r\\n' >> old.txt; id=$(git hash-object -w --no-filters old.txt); git update-index --cacheinfo 100644,$id,old.txt; git commit -qm more";
    add(&team, &["one", "--description", work]);
    until(&team, 1, "completed");
    team.teamctl(["land"]).ok();
    assert_eq!(team.text("old.txt"), "a\r\nb\r\n");
    assert_eq!(user(&team, "git status --porcelain"), "?? team.toml");
    // One that is not is the user's.
    add(&team, &["two", "--description", &work.replace("'b", "'c")]);
    until(&team, 2, "completed");
    user(&team, "printf 'mine\\r\\n' >> old.txt");
    let refused = team.teamctl(["land"]).exits(7);
    assert!(
        refused.stderr.contains("would be overwritten: old.txt"),
        "{refused:?}"
    );
    assert!(team.text("old.txt").ends_with("mine\r\n"));
}

/// A linked tree has its repository, and what Git LFS stores, elsewhere.
#[test]
fn a_linked_tree_gets_the_content_of_git_lfs_and_so_does_a_merge_by_hand() {
    if !has_lfs() {
        return println!("skipped: it needs git-lfs");
    }
    let linked = "git lfs install > /dev/null; find . -mindepth 1 -delete; git init -q -b main ../main; cd ../main; \
                  git lfs track '*.bin' > /dev/null; echo one > a.bin; git add .; git commit -qm 1; git worktree add -q ../work -b tree";
    let team = Team::of(User::at_hand()[0]);
    user(&team, linked);
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = |id: u64, text: &str| {
        let work = format!("/bash echo {text} > a.bin; git commit -qam {text}");
        add(
            &team,
            &[
                text,
                "--description",
                &work,
                "--check",
                &format!("grep -qx {text} a.bin"),
            ],
        );
        until(&team, id, "completed");
    };
    work(1, "two");
    let landed = team.teamctl(["land"]).ok();
    assert_eq!(
        (landed.stderr.as_str(), team.text("a.bin").as_str()),
        ("", "two\n")
    );
    work(2, "three");
    team.until("the user to be shown", || {
        user(&team, "git rev-parse team/integration") == git(&team, &["rev-parse", "integration"])
    });
    user(&team, "git merge -q --ff-only team/integration");
    assert_eq!(team.text("a.bin"), "three\n");
    assert_eq!(user(&team, "git status --porcelain"), "");
}
