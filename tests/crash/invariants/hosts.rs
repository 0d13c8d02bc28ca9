//! Mail between two machines is complete, once and in order; the copy of a transcript is that
//! transcript; and `host.jsonl` tells of each process once, as home does.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::stage::{BOX, Checked, Stage, hold, lines_of};

/// What the machine that decides is called at a host.
const HOME: &str = "home";

/// While the team rests: what was written on one machine for another has arrived.
pub(super) fn is_complete(stage: &Stage) -> Checked {
    for name in stage.hosted() {
        let inbox = format!("inbox/{name}.jsonl");
        let sent = places(&stage.team.file(&inbox), |_| true);
        arrived(name, &sent, &stage.host_file(&inbox), HOME)?;
        let transcript = format!("transcript/{name}.jsonl");
        let copy = stage.team.file(&transcript);
        let there = stage.host_file(&transcript);
        // A torn tail is no line.
        let there = there.rfind('\n').map_or("", |end| &there[..=end]);
        hold(copy == there, || {
            let (copy, there) = (copy.len(), there.len());
            format!(
                "the copy of the transcript of {name} has {copy} bytes, and the transcript {there}"
            )
        })?;
    }
    for owner in owners(stage) {
        let inbox = format!("inbox/{owner}.jsonl");
        let is_from_there = |line: &Value| {
            line["from"]
                .as_str()
                .is_some_and(|from| stage.is_hosted(from))
        };
        let sent = places(&stage.host_file(&inbox), is_from_there);
        arrived(&owner, &sent, &stage.team.file(&inbox), BOX)?;
    }
    Ok(())
}

/// At the end, and at each rest: nothing came twice, or in another order.
pub(super) fn check(stage: &Stage) -> Checked {
    if stage.hosted().is_empty() {
        return Ok(());
    }
    is_complete(stage)?;
    no_commit_is_lost(stage)?;
    told(stage)
}

/// What was committed in a checkout there and is on no branch of it any more, home has.
fn no_commit_is_lost(stage: &Stage) -> Checked {
    let git = |directory: &str, args: &[&str]| {
        let args: Vec<&str> = ["-C", directory]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        stage.team.run_program("git", &args)
    };
    let members = stage.roster()["members"].as_array().cloned();
    for member in members.unwrap_or_default() {
        let Some(root) = member["checkout"]["root"].as_str() else {
            continue;
        };
        let listed = git(root, &["rev-list", "--reflog", "--not", "--all"]);
        hold(listed.is_done(), || {
            format!("{root} cannot be read: {listed:?}")
        })?;
        for commit in listed.stdout.lines() {
            let repository = stage.git_home().unwrap_or_default().join("team.git");
            let found = git(&repository.to_string_lossy(), &["cat-file", "-e", commit]);
            hold(found.is_done(), || {
                format!("{commit} of {} is nowhere any more", member["name"])
            })?;
        }
    }
    Ok(())
}

/// Those whose inboxes are at home.
fn owners(stage: &Stage) -> Vec<String> {
    let roster = stage.roster();
    let members = roster["members"].as_array().cloned().unwrap_or_default();
    let names = members.iter().filter_map(|member| member["name"].as_str());
    let here = names.filter(|name| !stage.is_hosted(name));
    here.map(str::to_owned).chain(["lead".to_owned()]).collect()
}

/// The lines of an outbox by where they begin.
fn places(text: &str, wanted: impl Fn(&Value) -> bool) -> BTreeMap<u64, Value> {
    let mut offset = 0;
    let mut found = BTreeMap::new();
    for line in text.split_inclusive('\n') {
        let begins = offset;
        offset += line.len() as u64;
        if let Ok(value) = serde_json::from_str::<Value>(line)
            && line.ends_with('\n')
            && wanted(&value)
        {
            found.insert(begins, value);
        }
    }
    found
}

/// Compares an outbox with the inbox that its lines were appended to.
fn arrived(owner: &str, sent: &BTreeMap<u64, Value>, inbox: &str, from: &str) -> Checked {
    let lines = lines_of(inbox);
    let came: Vec<&Value> = lines
        .iter()
        .filter(|line| line["via"]["host"] == from)
        .collect();
    let offsets: Vec<u64> = came
        .iter()
        .filter_map(|line| line["via"]["offset"].as_u64())
        .collect();
    hold(offsets.is_sorted_by(|one, next| one < next), || {
        format!("what came from {from} for {owner} came in this order: {offsets:?}")
    })?;
    let wanted: Vec<u64> = sent.keys().copied().collect();
    hold(offsets == wanted, || {
        format!("of the lines at {wanted:?} for {owner}, those at {offsets:?} came from {from}")
    })?;
    for line in came {
        let offset = line["via"]["offset"].as_u64().unwrap_or_default();
        let there = sent.get(&offset);
        let same = there.is_some_and(|there| without_via(there) == without_via(line));
        hold(same, || {
            format!("{line} came from {from} for {owner}, and was written as {there:?}")
        })?;
    }
    Ok(())
}

fn without_via(line: &Value) -> Value {
    let mut line = line.clone();
    if let Some(fields) = line.as_object_mut() {
        fields.remove("via");
    }
    line
}

/// `host.jsonl` has each process once, and its end behind it; what home has recorded of a process
/// there, the host has recorded before.
fn told(stage: &Stage) -> Checked {
    let mut lives: BTreeMap<(String, u64), (usize, usize)> = BTreeMap::new();
    let mut running: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines_of(&stage.host_file("host.jsonl")) {
        let wrong = |what: &str| format!("host.jsonl: {what}: {line}");
        match line["event"].as_str().unwrap_or_default() {
            "spawned" => {
                let member = &line["member"];
                let (name, number) = of(member);
                hold(!running.contains_key(&name), || {
                    wrong("it was spawned, and another one runs")
                })?;
                running.insert(name.clone(), number);
                lives.entry((name, number)).or_default().0 += 1;
            }
            "exited" => {
                let (name, number) = of(&line["of"]);
                let ran = running.remove(&name);
                hold(ran == Some(number), || wrong("it had not begun"))?;
                lives.entry((name, number)).or_default().1 += 1;
            }
            "obeys" | "forgotten" | "writes" => {}
            _ => return hold(false, || wrong("it is not known")),
        }
    }
    for (of, counts) in &lives {
        hold(counts.0 == 1 && counts.1 <= 1, || {
            format!("host.jsonl has {counts:?} beginnings and ends of {of:?}")
        })?;
    }
    for line in stage.team.journal() {
        let name = line["name"].as_str().unwrap_or_default();
        if line["record"] != "member" || !stage.is_hosted(name) {
            continue;
        }
        let ended = line["ended_incarnation"].as_u64();
        let number = ended.or(line["incarnation"].as_u64()).unwrap_or_default();
        let there = lives.get(&(name.to_owned(), number));
        let is_there = match line["event"].as_str().unwrap_or_default() {
            "spawned" => there.is_some(),
            "exited" => there.is_none_or(|counts| counts.1 == 1),
            _ => true,
        };
        hold(is_there, || {
            format!("the host has recorded {there:?} of what home has: {line}")
        })?;
    }
    Ok(())
}

fn of(member: &Value) -> (String, u64) {
    let name = member["name"].as_str().unwrap_or_default().to_owned();
    (name, member["incarnation"].as_u64().unwrap_or_default())
}
