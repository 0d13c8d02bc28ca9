//! `teamctl forget`: takes a teammate that has ended off the roster.

use serde_json::{Value, json};
use teamd_client::args::Forget;
use teamd_client::connection::{Client, unexpected};
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::roster;
use teamd_shared::background;
use teamd_shared::control::{Command, Done};
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Forget) -> CommandResult {
    let dir = context.dir()?;
    if args.lost {
        return lose(context, &dir, &args.names);
    }
    let mut names = args.names.clone();
    if args.ended {
        let roster = roster::load(&dir)?;
        let ended = roster
            .members
            .iter()
            .filter(|member| member.status.is_ended());
        names = ended.map(|member| member.name.clone()).collect();
    }
    if let [name] = names.as_slice()
        && !args.ended
    {
        let (value, text) = block_on(forget(&dir, name, args.discard))?;
        return context.out.result(&value, text).map(|()| ExitCode::Done);
    }
    let mut results = Vec::new();
    let mut codes = Vec::new();
    for name in &names {
        match block_on(forget(&dir, name, args.discard)) {
            Ok((value, text)) => {
                results.push(value);
                if !context.out.is_json() {
                    context.out.text(text)?;
                }
            }
            Err(error) => {
                context.out.error(&error);
                codes.push(error.code());
                results.push(json!({"name": name, "files": [], "error": error.to_json()}));
            }
        }
    }
    if context.out.is_json() {
        context.out.json(&json!({"results": results}))?;
    } else if names.is_empty() {
        context.out.note("no teammate has ended");
    }
    Ok(ExitCode::highest(codes))
}

/// Records that these are lost with their hosts.
fn lose(context: &Context, dir: &TeamDir, names: &[Name]) -> CommandResult {
    for name in names {
        let lose = Command::Lose { name: name.clone() };
        let answer = block_on(async {
            let mut client = Client::connect(dir).await?;
            Ok(client.call(lose).await?)
        })?;
        if !matches!(answer, Done::Recorded { .. }) {
            return Err(unexpected(&answer));
        }
        let text = format!("{name} is lost; `teamctl forget {name}` archives what is here of it");
        let value = json!({"name": name, "status": MemberStatus::Lost});
        context.out.result(&value, text)?;
    }
    Ok(ExitCode::Done)
}

/// Forgets one, and reports it to programs and to people.
async fn forget(
    dir: &TeamDir,
    name: &Name,
    discard: bool,
) -> Result<(Value, String), CommandError> {
    let of_member = TeamPath::of_member(name).into_iter();
    let identified = of_member.map(|file| dir.identity(&file).map(|identity| (file, identity)));
    let before = identified.collect::<Result<Vec<_>, _>>()?;
    let outputs = background::numbers(dir, name)?;
    let mut client = Client::connect(dir).await?;
    let forget = Command::Forget {
        name: name.clone(),
        discard,
    };
    // A checkout is saved and removed first, perhaps over a slow link.
    let roster = roster::load(dir)?;
    let has_checkout = roster.member(name).is_some_and(|it| it.checkout.is_some());
    let answer = if has_checkout {
        client.call_and_wait(forget).await?
    } else {
        client.call(forget).await?
    };
    let mut files = match answer {
        Done::Forgotten { files } => files,
        other => return Err(unexpected(&other)),
    };
    // Another one of that name may have been spawned since, with files of its own.
    let left = before
        .iter()
        .find(|(file, then)| then.is_some() && dir.identity(file).ok() == Some(*then));
    if let Some((left, _)) = left {
        let message =
            format!("{name} is off the roster, but {left} cannot be moved into the archive");
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("`teamctl log teamd` shows why; it is tried again"));
    }
    // The daemon names the files that any member may have; each of them begins with the same number.
    let archive = files.first().and_then(|file| file.split('.').next());
    let archive = archive.unwrap_or_default().to_owned();
    for number in outputs {
        let log = TeamPath::background_log(name, &number.to_string());
        files.push(format!("{archive}.log.{}", log.file_name()));
    }
    // Not every member has one of each kind.
    files.retain(|file| dir.root().join(file).exists());
    let mut text = format!("{name} is forgotten");
    if !files.is_empty() {
        text.push_str(&format!(
            "; its files are kept in {}:",
            dir.root().display()
        ));
    }
    for file in &files {
        text.push_str(&format!("\n  {}", escape::line(file)));
    }
    Ok((json!({"name": name, "files": files}), text))
}
