//! `teamctl broadcast`: appends one message to the inbox of every teammate that runs, several at
//! once.

use std::collections::BTreeMap;
use std::{panic, thread};

use serde_json::json;
use teamd_client::act::delivered::awaited_hosts;
use teamd_client::act::send::{delivery, hosted_line, undelivered};
use teamd_client::act::unreachable::waiting_for;
use teamd_client::args::BroadcastArgs;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::{roster, text};
use teamd_shared::clock;
use teamd_shared::config::RosterMember;
use teamd_shared::host::AwaitedHost;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{AppendError, Appended, append};
use teamd_shared::message::{ALL, Body, LEAD, Message};
use teamd_shared::name::Name;
use uuid::Uuid;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &BroadcastArgs) -> CommandResult {
    let dir = context.dir()?;
    let content = text::not_blank(text::given(&args.text)?, "message")?;
    text::note_if_cut(context, &content, "message");
    let roster = roster::load(&dir)?;
    // The lead sends this, and no member writes to itself.
    let mut others = roster::running(&roster);
    others.retain(|member| member.name != Name::lead());
    let id = RandomIds.message();
    let message = Message::new(id, LEAD, ALL, clock::wall(), Body::Broadcast).with_content(content);
    let durability = context.settings.durability;
    let appended = to_each(&others, |to| append(&dir, &to.name, &message, durability));
    // The roster is read once for all of them, and again only for those that may have ended.
    let now = roster::load(&dir).unwrap_or_default();
    let still_run: BTreeMap<&Name, u64> = roster::running(&now)
        .into_iter()
        .filter(|member| matches!(now.process_is_gone(member), Ok(false)))
        .map(|member| (&member.name, member.spawned_seq))
        .collect();
    let mut sent = Vec::new();
    let mut codes = Vec::new();
    let mut hosted = Vec::new();
    for (to, appended) in others.into_iter().zip(appended) {
        let name = &to.name;
        let line = appended.as_ref().ok().map(|appended| appended.offset);
        let error = match appended {
            Ok(_) if still_run.get(name) == Some(&to.spawned_seq) => None,
            Ok(appended) => undelivered(name, id, &delivery(&dir, to, appended)),
            Err(error) => Some(not_appended(name, error)),
        };
        match error {
            None => {
                sent.push(name);
                hosted.extend(line.and_then(|offset| hosted_line(to, offset)));
            }
            Some(error) => {
                context.out.error(&error);
                codes.push(error.code());
            }
        }
    }
    let awaited = awaited_hosts(&dir, &hosted)?;
    let waiting: BTreeMap<&Name, AwaitedHost> = hosted
        .iter()
        .zip(awaited)
        .filter_map(|(line, host)| Some((&line.owner, host?)))
        .collect();
    if context.out.is_json() {
        let mut shown = json!({"id": id, "to": sent});
        if !waiting.is_empty() {
            let names: Vec<&&Name> = waiting.keys().collect();
            shown["waiting"] = json!(names);
        }
        context.out.json(&shown)?;
    } else if !sent.is_empty() {
        print(context, id, &sent, &waiting)?;
    } else if codes.is_empty() {
        context.out.note("no teammate is running: nothing was sent");
    }
    Ok(ExitCode::highest(codes))
}

/// Prints who has the message, and who waits for which host.
fn print(
    context: &Context,
    id: Uuid,
    to: &[&Name],
    waiting: &BTreeMap<&Name, AwaitedHost>,
) -> Result<(), CommandError> {
    let mut sent = to.to_vec();
    sent.retain(|name| !waiting.contains_key(name));
    if !sent.is_empty() {
        let text = format!("sent to {} ({id})", listed(&sent));
        context.out.text(text)?;
    }
    let mut by_host: BTreeMap<String, Vec<&Name>> = BTreeMap::new();
    for (name, host) in waiting {
        by_host.entry(waiting_for(host)).or_default().push(name);
    }
    for (host, names) in by_host {
        let text = format!("{host}: {} ({id})", listed(&names));
        context.out.text(text)?;
    }
    Ok(())
}

fn listed(names: &[&Name]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    names.join(", ")
}

/// How many inboxes are written at once. One after the other, each waits for the disk on its own;
/// together they share its commits. More of them gain nothing.
const AT_ONCE: usize = 16;

/// Appends to the inbox of each, and returns what came of it, in their order.
fn to_each(
    members: &[&RosterMember],
    append: impl Fn(&RosterMember) -> Result<Appended, AppendError> + Sync,
) -> Vec<Result<Appended, AppendError>> {
    thread::scope(|scope| {
        let each = members
            .chunks(members.len().div_ceil(AT_ONCE).max(1))
            .map(|some| {
                let work = || some.iter().map(|member| append(member)).collect::<Vec<_>>();
                // Where the system refuses another thread, this one does it.
                thread::Builder::new()
                    .spawn_scoped(scope, work)
                    .map_err(|_| work())
            });
        let started: Vec<_> = each.collect();
        let done = started.into_iter().flat_map(|started| match started {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic)),
            Err(done) => done,
        });
        done.collect()
    })
}

/// Makes the error of a message that one of many did not get: the others have it.
fn not_appended(name: &Name, error: AppendError) -> CommandError {
    let alone = format!("to send it to {name} alone: `teamctl send {name} TEXT`");
    match error {
        AppendError::Short { .. } => CommandError::new(ExitCode::Failed, error.to_string())
            .hint("free some space on the disk (or raise the quota)")
            .hint(alone),
        error if error.hint().is_some() => error.into(),
        error => CommandError::from(error).hint(alone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use teamd_client::testing::member;

    #[test]
    fn several_are_written_to_at_once_and_each_outcome_is_that_of_its_own() {
        let members: Vec<RosterMember> = (0..AT_ONCE * 4)
            .map(|n| serde_json::from_value(member(&format!("mate-{n}"), "idle")).unwrap())
            .collect();
        // Comes to an end only if as many as that are at work together.
        let together = Barrier::new(AT_ONCE);
        let outcomes = to_each(&members.iter().collect::<Vec<_>>(), |to| {
            together.wait();
            match to.name.as_str() {
                "mate-7" => Err(AppendError::NoId),
                name => Ok(Appended {
                    offset: 0,
                    len: name.len() as u64,
                }),
            }
        });
        assert_eq!(outcomes.len(), members.len());
        for (member, outcome) in members.iter().zip(outcomes) {
            let name = member.name.as_str();
            match outcome {
                Ok(appended) => assert_eq!(appended.len, name.len() as u64),
                Err(error) => {
                    assert_eq!(
                        (name, error.to_string()),
                        ("mate-7", AppendError::NoId.to_string())
                    )
                }
            }
        }
        assert!(to_each(&[], |_| Err(AppendError::NoId)).is_empty());
    }

    #[test]
    fn only_those_without_the_message_are_sent_it_again() {
        let source = std::io::Error::from_raw_os_error(28);
        let short = AppendError::Short {
            path: "bob.jsonl".into(),
            written: 0,
            size: 9,
            source,
        };
        for error in [short, AppendError::NoId] {
            let error = not_appended(&Name::new("bob").unwrap(), error);
            let hint = error.next_step().unwrap();
            assert!(
                hint.ends_with("to send it to bob alone: `teamctl send bob TEXT`"),
                "{error:?}"
            );
            assert!(!hint.contains("again"), "{error:?}");
        }
    }
}
