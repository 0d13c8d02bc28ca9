//! `teamctl broadcast`: appends one message to the inbox of every teammate that runs.

use std::collections::BTreeMap;

use serde_json::json;
use teamd_shared::clock;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{AppendError, append};
use teamd_shared::message::{ALL, Body, LEAD, Message};
use teamd_shared::name::Name;

use super::send::{Fate, Posted, ended_meanwhile, running};
use crate::ctl::args::Broadcast;
use crate::ctl::context::Context;
use crate::ctl::{roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Broadcast) -> CommandResult {
    let dir = context.dir()?;
    let content = text::not_blank(text::given(&args.text)?, "message")?;
    text::note_if_cut(context, &content, "message");
    let roster = roster::load(&dir)?;
    // It is the lead that says this, and nobody writes to itself.
    let others = running(&roster).into_iter().filter(|member| member.name != Name::lead());
    let id = RandomIds.message();
    let message = Message::new(id, LEAD, ALL, clock::wall(), Body::Broadcast).with_content(content);
    let durability = context.settings.durability;
    let appended: Vec<_> = others.map(|to| (to, append(&dir, &to.name, &message, durability))).collect();
    // One look for all of them; a closer one only at those who may have ended.
    let now = roster::load(&dir);
    let still_run: BTreeMap<&Name, u64> = match &now {
        Ok(now) => running(now)
            .into_iter()
            .filter(|member| matches!(now.process_is_gone(member), Ok(false)))
            .map(|member| (&member.name, member.spawned_seq))
            .collect(),
        Err(_) => BTreeMap::new(),
    };
    let (mut sent, mut codes) = (Vec::new(), Vec::new());
    for (to, appended) in appended {
        let name = &to.name;
        let outcome = match (appended.map(|at| Posted { id, to, at }), &now) {
            (Ok(_), Ok(_)) if still_run.get(name) == Some(&to.spawned_seq) => Ok(Fate::Sent),
            (Ok(posted), Ok(_)) => posted.look_again(&dir),
            (Ok(posted), Err(error)) => Err(posted.unseen(error)),
            (Err(error), _) => Err(not_appended(name, error)),
        };
        match outcome.and_then(|fate| if fate == Fate::Sent { Ok(()) } else { Err(ended_meanwhile(name)) }) {
            Ok(()) => sent.push(name),
            Err(error) => {
                context.out.error(&error);
                codes.push(error.code());
            }
        }
    }
    if context.out.is_json() {
        context.out.json(&json!({"id": id, "to": sent}))?;
    } else if !sent.is_empty() {
        let names: Vec<&str> = sent.iter().map(|name| name.as_str()).collect();
        context.out.text(format_args!("sent to {} ({id})", names.join(", ")))?;
    } else if codes.is_empty() {
        context.out.note("nobody runs: the message was sent to nobody");
    }
    Ok(ExitCode::highest(codes))
}

/// Makes the error of a message that one of many did not get: the others have it.
fn not_appended(name: &Name, error: AppendError) -> CommandError {
    let knows_better = error.hint().is_some();
    let error = CommandError::from(error);
    if knows_better {
        return error;
    }
    error.hint(format!("to send it to {name} alone: `teamctl send {name} TEXT`"))
}
