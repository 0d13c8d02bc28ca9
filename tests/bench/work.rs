//! What checkouts and integration cost, beside the same steps of `git` by hand.

use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::Effort;
use crate::figure::{Figure, Sample};
use crate::lifecycle::run;
use crate::support::Team;

const SETTINGS: &str =
    "export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@x GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@x";

/// How a commit is integrated by hand: `$1` is the number of the commit.
const BY_HAND: &str = r#"
    cd ../hand
    printf '%s\n^%s\n' HEAD origin/integration | git pack-objects -q --revs --thin --stdout --delta-base-offset >.git/pack
    export GIT_DIR=$PWD/../hand.git
    git index-pack --strict --fix-thin --stdin <.git/pack
    commit=$(git --git-dir=.git rev-parse HEAD)
    git update-ref "refs/team/$1" "$commit"
    tip=$(git rev-parse integration)
    tree=$(git merge-tree --write-tree --no-messages "$tip" "$commit")
    merged=$(git commit-tree "$tree" -p "$tip" -p "$commit" -m merge)
    git diff-tree -r --name-only "$tip" "$merged"
    (cd ../scratch; unset GIT_DIR; git checkout -q --force --detach "$merged"; git clean -qffdx)
    git update-ref refs/heads/integration "$merged" "$tip"
    (cd ../work; unset GIT_DIR; git fetch -q ../hand.git +integration:refs/remotes/hand/integration)
"#;

/// Measures all three.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let mut figures = vec![submissions(effort)];
    figures.extend(clones(effort));
    figures.push(caches(effort));
    figures
}

fn bash(team: &Team, script: &str, args: &[&str]) -> String {
    let script = format!("set -e\n{SETTINGS}\n{script}");
    team.run_program("bash", [&["-c", script.as_str(), "bash"], args].concat())
        .ok()
        .stdout
}

/// A team in a repository of 1,000 files, with one teammate in a checkout.
pub(crate) fn team(toml: &str) -> Team {
    let team = Team::new();
    bash(
        &team,
        "git init -q -b main .; mkdir src; for i in $(seq 1000); do echo $i > src/$i; done; printf 'go\\nready\\ntarget\\n' > .gitignore; git add .; git commit -qm first",
        &[],
    );
    team.write("team.toml", toml);
    team.trust();
    team.teamd(["start"]).ok();
    run(&team, &["spawn", "alice", "--checkout"]);
    team
}

/// Has a commit of alice submitted. Returns how long that took until it was integrated, and how
/// long its check did.
fn submit(team: &Team, number: usize) -> (Duration, Duration) {
    let at = team.root().with_file_name("work.team").join("alice");
    let task = number.to_string();
    run(team, &["task", "add", "work"]);
    let work = format!(
        "echo {number} > new-{number}; git add new-{number}; git commit -qm work; touch ready; until [ -e go ]; do sleep 0.01; done; rm go"
    );
    run(
        team,
        &[
            "send",
            "alice",
            &format!("/claim_task {{\"task_id\": {number}}}\n/bash {work}"),
        ],
    );
    team.until("the work to be committed", || at.join("ready").exists());
    std::fs::remove_file(at.join("ready")).unwrap();
    let began = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    run(team, &["task", "submit", &task]);
    run(team, &["wait", "--task", &task]);
    bash(team, "touch ../work.team/alice/go", &[]);
    team.until("alice to be idle", || {
        team.status("alice") == "idle" && !at.join("go").exists()
    });
    let done: Value = serde_json::from_str(&team.file(&format!("tasks/{number}.json"))).unwrap();
    let seconds = |value: &Value| Duration::from_secs_f64(value.as_f64().unwrap());
    (
        seconds(&done["updated_at"]).saturating_sub(began),
        seconds(&done["result"]["check"]["seconds"]),
    )
}

fn submissions(effort: Effort) -> Figure {
    let team = team("[work]\ncheck = \"true\"\n");
    bash(
        &team,
        "git clone -q --bare . ../hand.git; git -C ../hand.git config core.fsync all; git -C ../hand.git branch -m main integration; git clone -q --shared ../hand.git ../hand; git clone -q --shared ../hand.git ../scratch",
        &[],
    );
    let [mut ours, mut by_hand] = [(); 2].map(|()| Sample::default());
    for number in 1..=effort.of(50) {
        let task = number.to_string();
        bash(
            &team,
            "cd ../hand; git fetch -q; git checkout -q -B task origin/integration; echo $1 > new-$1; git add .; git commit -qm work",
            &[&task],
        );
        let began = Instant::now();
        bash(&team, BY_HAND, &[&task]);
        by_hand.add(began.elapsed());
        let (whole, check) = submit(&team, number);
        ours.add(whole.saturating_sub(check));
    }
    let ratio = ours.ratio(&by_hand);
    Figure {
        name: "`teamctl task submit` → completed, without the check, 1,000 files".to_owned(),
        measured: ours.to_string(),
        limit: format!("the same steps of git by hand: {by_hand}"),
        ratio: Some(ratio),
        aim: "≤ 2 ×",
        met: ratio <= 2.0,
    }
}

/// The first checkout of a large repository, and the next one.
fn clones(effort: Effort) -> Vec<Figure> {
    let megabytes = effort.of(1000);
    let team = Team::new();
    bash(
        &team,
        "git init -q -b main .; for i in $(seq $1); do head -c 1000000 /dev/urandom > $i; done; git add .; git -c core.compression=0 commit -qm big",
        &[&megabytes.to_string()],
    );
    team.teamd(["start"]).ok();
    let [mut tree, mut first, mut next] = [(); 3].map(|()| Sample::default());
    let took = |sample: &mut Sample, what: &dyn Fn()| {
        let began = Instant::now();
        what();
        sample.add(began.elapsed());
    };
    took(&mut tree, &|| {
        drop(bash(&team, "git worktree add -q ../tree", &[]))
    });
    took(&mut first, &|| {
        run(
            &team,
            &["spawn", "alice", "--checkout", "--timeout", "600s"],
        )
    });
    took(&mut next, &|| {
        run(&team, &["spawn", "bob", "--checkout", "--timeout", "600s"])
    });
    let row = |name: &str, sample: &Sample| Figure {
        name: format!("{name}, {megabytes} MB"),
        measured: sample.to_string(),
        limit: format!("`git worktree add`: {tree}"),
        ratio: Some(sample.ratio(&tree)),
        aim: "–",
        met: true,
    };
    vec![
        row(
            "the first `spawn --checkout`: team repository and clone",
            &first,
        ),
        row("the next one: a clone", &next),
    ]
}

/// A check that makes 2,000 files unless they are there.
fn caches(effort: Effort) -> Figure {
    let build = "test -e target/done || { mkdir -p target; for i in $(seq 2000); do seq 100 > target/$i; done; touch target/done; }";
    let [mut cold, mut warm] = [(); 2].map(|()| Sample::default());
    for (cache, sample) in [("[]", &mut cold), ("[\"target\"]", &mut warm)] {
        let team = team(&format!("[work]\ncheck = \"{build}\"\ncache = {cache}\n"));
        // The first one makes what the others begin with.
        submit(&team, 1);
        for number in 2..=1 + effort.of(20) {
            sample.add(submit(&team, number).0);
        }
    }
    Figure {
        name: "`teamctl task submit` → completed, the check with a warm cache of 2,000 files"
            .to_owned(),
        measured: warm.to_string(),
        limit: format!("with a cold one: {cold}"),
        ratio: Some(warm.ratio(&cold)),
        aim: "–",
        met: true,
    }
}
