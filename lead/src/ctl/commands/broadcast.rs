//! `teamctl broadcast`: appends one message to the inbox of every teammate that runs.

use std::collections::BTreeSet;

use serde_json::json;
use teamd_shared::clock;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::append;
use teamd_shared::message::{ALL, Body, LEAD, Message};
use teamd_shared::name::Name;

use super::send::{Fate, ended_meanwhile, look_again, running};
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
    let others = running(&roster).into_iter().filter(|name| **name != Name::lead());
    let id = RandomIds.message();
    let message = Message::new(id, LEAD, ALL, clock::wall(), Body::Broadcast).with_content(content);
    let durability = context.settings.durability;
    let appended: Vec<_> = others.map(|name| (name, append(&dir, name, &message, durability))).collect();
    let now = roster::load(&dir)?;
    let still_runs: BTreeSet<&Name> = running(&now).into_iter().collect();
    let (mut sent, mut codes) = (Vec::new(), Vec::new());
    for (name, appended) in appended {
        let runs =
            |name| now.member(name).is_some_and(|member| matches!(now.process_is_gone(member), Ok(false)));
        let outcome = match appended.map_err(CommandError::from) {
            // One look for all of them; a closer one only at those who may have ended.
            Ok(_) if still_runs.contains(name) && runs(name) => Ok(Fate::Sent),
            Ok(appended) => look_again(&dir, name, appended),
            Err(error) => Err(error),
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
