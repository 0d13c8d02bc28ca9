//! `teamctl broadcast`: appends one message to the inbox of every teammate that runs.

use serde_json::json;
use teamd_shared::clock;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::append;
use teamd_shared::message::{ALL, Body, LEAD, Message};
use teamd_shared::name::Name;

use super::send::{Fate, ended_meanwhile, look_again, runs};
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
    let running: Vec<&Name> =
        roster.members.iter().filter(|member| runs(&roster, member)).map(|member| &member.name).collect();
    let id = RandomIds.message();
    let message = Message::new(id, LEAD, ALL, clock::wall(), Body::Broadcast).with_content(content);
    let (mut sent, mut codes) = (Vec::new(), Vec::new());
    // It is the lead that says this, and nobody writes to itself.
    for name in running.into_iter().filter(|name| **name != Name::lead()) {
        let outcome = append(&dir, name, &message, context.settings.durability)
            .map_err(CommandError::from)
            .and_then(|appended| look_again(&dir, name, appended))
            .and_then(|fate| if fate == Fate::Sent { Ok(()) } else { Err(ended_meanwhile(name)) });
        match outcome {
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
