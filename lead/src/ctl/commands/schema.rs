//! `teamctl schema`: JSON Schema of what stands in the files.

use serde_json::{Map, Value};
use teamd_shared::schema::Of;

use crate::ctl::args::Schema;
use crate::ctl::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command. Without a name all of them are printed, as one object.
pub(in crate::ctl) fn run(context: &Context, args: &Schema) -> CommandResult {
    let schema = match args.of {
        Some(of) => of.schema(),
        None => {
            Value::Object(Of::all().map(|of| (of.as_str().to_owned(), of.schema())).collect::<Map<_, _>>())
        }
    };
    if context.out.is_json() {
        context.out.json(&schema)?;
        return Ok(ExitCode::Done);
    }
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|error| CommandError::new(ExitCode::Failed, format!("cannot write the schema: {error}")))?;
    context.out.text(text)?;
    Ok(ExitCode::Done)
}
