//! A checkout whose making is broken off: by a kill, a shutdown, or damage.

use nix::sys::signal::Signal;
use serde_json::Value;
use teamd_shared::control::{Command, Done, ShutdownOrder};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::name::Name;

use super::{checkout, doctor, repository, says, team, user};
use crate::support::signal;
use crate::support::user::User;

#[test]
fn a_killed_job_leaves_nothing_that_the_next_does_not_finish() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let alice = checkout(&team, "alice");
    team.teamctl(["shutdown", "alice"]).ok();
    let home = repository(&team).parent().unwrap().to_owned();
    // As a kill leaves it at each step.
    let noted = format!(
        "ln -s $(stat -c %d:%i .alice.new) {}/alice.new",
        home.display()
    );
    for left in [
        "rm -r alice; mkdir .alice.new".to_owned(),
        format!("rm -r alice; mkdir -p .alice.new/.git; {noted}"),
        format!("mv alice .alice.new; rm .alice.new/a.txt; {noted}"),
        format!(
            "rm -r alice; mkdir alice; ln -s 1:1 {}/alice.new",
            home.display()
        ),
    ] {
        user(&team, &format!("cd ../work.team; {left}"));
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        let results = team.does("alice", "/bash git status --short; cat a.txt");
        assert_eq!(results[0]["content"], "one", "{left}");
        team.teamctl(["shutdown", "alice"]).ok();
        assert!(
            !alice.with_file_name(".alice.new").exists()
                && home.join("alice.new").symlink_metadata().is_err(),
            "{left}"
        );
    }
    user(
        &team,
        &format!(
            "cd {}; mkdir new.git; touch new.git/x; rm -rf team.git",
            home.display()
        ),
    );
    team.teamctl(["spawn", "zoe", "--checkout"]).ok();
    assert!(checkout(&team, "zoe").join("a.txt").exists() && !home.join("new.git").exists());
}

#[test]
fn a_teammate_that_is_told_to_leave_while_its_checkout_is_made_is_not_started() {
    let toml = "checkouts = \"../elsewhere\"\n[checkout]\nsetup = \"touch began; until [ -e go ]; do sleep 0.02; done\"\n";
    let team = team(
        *User::at_hand().last().unwrap(),
        toml,
        "printf 'began\\ngo\\n' > .gitignore; git add .; git commit -qm i",
    );
    let began = team.root().with_file_name("elsewhere").join("alice/began");
    let spawning = || {
        let spawning = team.start_teamctl(["spawn", "alice", "--checkout"]);
        team.until("the setup to run", || began.exists());
        spawning
    };
    let late = team
        .teamctl(["spawn", "alice", "--checkout", "--timeout", "300ms"])
        .exits(5);
    assert!(
        late.stderr.contains("its checkout is still being made")
            && late.stderr.contains("shutdown alice"),
        "{late:?}"
    );
    let call_off = || {
        team.until("the setup to run", || began.exists());
        let said = team.teamctl(["shutdown", "alice"]).ok();
        assert!(
            said.stdout
                .contains("alice was still being prepared: it is not started"),
            "{said:?}"
        );
        team.until("the daemon alone to be left", || {
            team.processes().len() == 1
        });
        std::fs::remove_file(&began).unwrap();
    };
    // Only a setup that begins anew shows that the next command has reached the daemon.
    call_off();
    let first = spawning();
    call_off();
    let refused = first.finish().exits(7);
    assert!(
        refused
            .stderr
            .contains("was shut down before it had started")
            && refused.stderr.contains("hint: "),
        "{refused:?}"
    );
    assert_eq!(team.member("alice"), Value::Null);
    // Where it was made is nothing that could be guessed.
    assert!(doctor(&team).contains("elsewhere/alice is of no teammate"));
    // Those who tell it to leave meanwhile have the same answer.
    let second = spawning();
    let stop_job = || {
        let job = team
            .processes()
            .into_iter()
            .find(|pid| crate::support::process::command_line(*pid).contains(" job"))
            .unwrap();
        signal(job, Signal::SIGSTOP);
        job
    };
    let job = stop_job();
    let shutdown = || {
        Command::Shutdown(ShutdownOrder {
            request_id: RandomIds.request(),
            name: Name::new("alice").unwrap(),
            reason: String::new(),
            decide_within: 1.0,
            force_after: None,
            wait: true,
        })
    };
    let said = team.asks_at_once(vec![shutdown(), shutdown()], || {
        signal(job, Signal::SIGCONT)
    });
    assert_eq!(said, [Ok(Done::Withdrawn), Ok(Done::Withdrawn)]);
    second.finish().exits(7);
    std::fs::remove_file(&began).unwrap();
    // The daemon dies in that moment: the command that asked for the start has an answer, and asks
    // no other daemon.
    let third = spawning();
    let job = stop_job();
    let leaving = team.start_teamctl(["shutdown", "alice"]);
    third.finish().exits(7);
    team.kill_daemon();
    signal(job, Signal::SIGKILL);
    team.teamd(["start"]).ok();
    leaving.finish();
    std::fs::remove_file(&began).unwrap();
    // It dies before it is told: the command that asked for the start comes late to the next one.
    let fourth = spawning();
    fourth.signal(Signal::SIGSTOP);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.teamctl(["shutdown", "alice"]).exits(4);
    fourth.signal(Signal::SIGCONT);
    let refused = fourth.finish().exits(7);
    assert!(
        refused
            .stderr
            .contains("was shut down before it had started"),
        "{refused:?}"
    );
    assert_eq!(team.member("alice"), Value::Null);
    user(&team, "touch ../elsewhere/alice/go");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
}

#[test]
fn a_daemon_that_is_killed_while_a_checkout_is_made_leaves_what_the_next_one_finishes() {
    let toml = "[checkout]\nsetup = \"echo . >> ../runs || echo . >> runs; touch began; until [ -e go ]; do sleep 0.02; done\"\n";
    let team = team(
        User::at_hand()[0],
        toml,
        "printf 'began\\ngo\\nruns\\n' > .gitignore; git add .; git commit -qm i",
    );
    let alice = checkout(&team, "alice");
    let begun = || team.until("the setup to run", || alice.join("began").exists());
    // The command is given again to the next daemon.
    let spawning = team.start_teamctl(["spawn", "alice", "--checkout"]);
    begun();
    team.kill_daemon();
    user(&team, "rm ../work.team/alice/began");
    team.teamd(["start"]).ok();
    begun();
    // It is not given again: a later one finds what there is.
    team.kill_daemon();
    spawning.signal(Signal::SIGKILL);
    spawning.finish();
    user(&team, "touch ../work.team/alice/go");
    team.teamd(["start"]).ok();
    assert_eq!(team.member("alice"), Value::Null);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert_eq!(
        user(&team, "wc -l < ../work.team/alice/runs"),
        "3",
        "a setup that was broken off is none"
    );
    says(
        &team.does("alice", "/bash git status --short; cat a.txt"),
        0,
        "one",
    );
}

#[test]
fn doctor_names_a_damaged_checkout() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    team.does("alice", "/bash rm -rf .git/* ; mkdir -p .git");
    let said = doctor(&team);
    for wanted in [
        "alice is no longer a checkout of alice: its .git is missing or damaged",
        "forget alice --discard",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}
