//! `teamctl forget`: takes a teammate that has ended off the roster.

use serde_json::json;
use teamd_shared::control::{Command, Done};
use teamd_shared::team_dir::TeamPath;

use crate::client::{Client, unexpected};
use crate::ctl::args::Teammate;
use crate::ctl::context::{Context, block_on};
use crate::ctl::escape;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: Teammate) -> CommandResult {
    let dir = context.dir()?;
    block_on(async {
        let of_member = TeamPath::of_member(&args.name).into_iter();
        let identified = of_member.map(|file| dir.identity(&file).map(|identity| (file, identity)));
        let before = identified.collect::<Result<Vec<_>, _>>()?;
        let mut client = Client::connect(&dir).await?;
        let mut files = match client.call(Command::Forget { name: args.name.clone() }).await? {
            Done::Forgotten { files } => files,
            other => return Err(unexpected(&other)),
        };
        // Another one of that name may have been spawned since, with files of its own.
        let left =
            before.iter().find(|(file, then)| then.is_some() && dir.identity(file).ok() == Some(*then));
        if let Some((left, _)) = left {
            let message =
                format!("{} is off the roster, but {left} cannot be moved into the archive", args.name);
            return Err(CommandError::new(ExitCode::Failed, message)
                .hint("`teamctl log teamd` says why; it is tried again"));
        }
        // Those that it may have had; not every member has one of each sort.
        files.retain(|file| dir.root().join(file).exists());
        let mut text = format!("{} is forgotten", args.name);
        if !files.is_empty() {
            text.push_str(&format!("; its files are kept in {}:", dir.root().display()));
        }
        for file in &files {
            text.push_str(&format!("\n  {}", escape::line(file)));
        }
        context.out.result(&json!({"name": args.name, "files": files}), text)?;
        Ok(ExitCode::Done)
    })
}
