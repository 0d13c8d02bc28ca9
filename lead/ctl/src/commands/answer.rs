//! `teamctl approve` and `teamctl reject`: the answer to a plan, a review or a permission question.
//! Giving the same answer again is no error.

use teamd_client::act::answer::{Answer, Meant, give, meant, name_the_id};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::count;
use teamd_client::read::text;
use teamd_shared::request::{Kind, Request};
use teamd_view::review::{Reviewed, overview};

/// Runs the command.
pub(crate) fn run(context: &Context, id: &str, answer: Answer) -> CommandResult {
    let approve = answer.approve;
    let answer = Answer {
        feedback: text::given(&answer.feedback)?,
        ..answer
    };
    let asked = match meant(&context.dir()?, id)? {
        Meant::This(asked) => asked,
        Meant::OnlyOneOf(asked) if context.out.can_ask() => {
            if confirm(context, &asked, approve)? {
                asked
            } else {
                return Ok(ExitCode::Failed);
            }
        }
        Meant::OnlyOneOf(asked) => return Err(name_the_id(&asked, approve)),
    };
    let mut answer = answer;
    if answer.code.is_none() && context.settings.team.approve_code && context.out.can_ask() {
        let what = format!("{} {}", asked.kind.noun(), asked.request_id);
        let question = format!("Code of the {what} (`teamctl top` and the page show it):");
        answer.code = Some(context.out.ask_for(&question)?);
    }
    give(context, asked.request_id.as_str(), answer)?.print(context)?;
    Ok(ExitCode::Done)
}

/// Shows the request, and asks for confirmation.
fn confirm(context: &Context, asked: &Request, approve: bool) -> Result<bool, CommandError> {
    let text = asked.payload.text();
    let id = &asked.request_id;
    let from = &asked.from;
    let noun = asked.kind.noun();
    let lines = count(text.lines().count(), "line");
    context
        .out
        .aside(format_args!("{id}  {noun} of {from}, {lines}:"));
    for line in text.lines() {
        context
            .out
            .aside_wrapped(&format!("    {}", escape::line(line)));
    }
    if asked.kind == Kind::Review {
        for line in overview(&Reviewed::find(context, id.as_str())?) {
            context.out.aside_wrapped(&format!("    {line}"));
        }
    }
    let verb = if approve { "Approve" } else { "Reject" };
    context
        .out
        .ask(&format!("{verb} the {noun} {id} of {from}?"))
}
