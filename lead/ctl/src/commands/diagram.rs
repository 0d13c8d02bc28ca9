//! `teamctl diagram`: what happened as a sequence diagram, for a document or a pipe.

mod mermaid;
mod svg;

use serde_json::json;
use teamd_client::args::{Diagram, DiagramFormat};
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::requests;
use teamd_view::model::{EVENTS, LIFELINES, Sequence, history};

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Diagram) -> CommandResult {
    let dir = context.dir()?;
    let request = args
        .request
        .as_deref()
        .map(|id| requests::find(&dir, id, &[]))
        .transpose()?;
    let mut steps = history(&dir, args.since.unwrap_or(f64::NEG_INFINITY))?;
    if let Some(request) = &request {
        steps.retain(|step| {
            step.request
                .as_ref()
                .is_some_and(|(id, _)| *id == request.request_id)
        });
    }
    let sequence = Sequence::of(&steps, (EVENTS, LIFELINES));
    if sequence.events.is_empty() {
        context.out.note("nothing happened since then");
    }
    if sequence.earlier > 0 {
        let drawn = sequence.events.len();
        let earlier = sequence.earlier;
        context.out.note(format_args!(
            "the last {drawn} events are drawn, and {earlier} before them are not"
        ));
        context.out.hint("`--since 10m` and `--request ID` choose");
    }
    let (format, text) = match args.format {
        DiagramFormat::Mermaid => ("mermaid", mermaid::draw(&sequence)),
        DiagramFormat::Svg => ("svg", svg::draw(&sequence)),
    };
    context
        .out
        .result(&json!({"format": format, "diagram": text}), text.trim_end())?;
    Ok(ExitCode::Done)
}
