//! `teamctl schema`: JSON Schema of the files and of the output.

use serde_json::{Map, Value};
use teamd_client::args::Schema;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_shared::schema::Of;

/// Runs the command. Without a name all of them are printed, as one object.
pub(crate) fn run(context: &Context, args: &Schema) -> CommandResult {
    let schema = match args.of {
        Some(of) => of.schema(),
        None => Value::Object(
            Of::all()
                .map(|of| (of.as_str().to_owned(), of.schema()))
                .collect::<Map<_, _>>(),
        ),
    };
    context.out.result(&schema, format_args!("{schema:#}"))?;
    Ok(ExitCode::Done)
}
