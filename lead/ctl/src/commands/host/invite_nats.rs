//! `teamctl host invite --nats`: a host dials home over a NATS cluster, where credentials of the
//! cluster let both in. The cluster keeps each end to its subjects.

use serde_json::json;
use teamd_client::args::NatsArgs;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::nats_link::nats_link;
use teamd_client::print::escape;
use teamd_shared::control::Command;
use teamd_shared::host::{Host, LinkState, NatsLink};
use teamd_shared::name::Name;
use uuid::Uuid;

use super::ask;

/// Returns the link of a host: `known` with what is named anew, or another one.
pub(super) fn link(
    name: &Name,
    named: NatsArgs,
    known: Option<&NatsLink>,
) -> Result<NatsLink, CommandError> {
    let subject = match known {
        Some(link) => link.subject.clone(),
        // A host that was removed knows the subject of another time.
        None => {
            let id = Uuid::new_v4().simple().to_string();
            format!("teamd.{name}.{}", &id[..16])
        }
    };
    let (server, credentials, ca) = match (named.nats, named.credentials, known) {
        (Some(server), Some(credentials), _) => (server, credentials, named.ca),
        (_, _, Some(link)) => (
            link.server.clone(),
            link.credentials.clone(),
            link.ca.clone(),
        ),
        _ => {
            let why = "it is not said how home logs in to the cluster".to_owned();
            return Err(CommandError::new(ExitCode::Usage, why)
                .hint("name both: `--nats tls://HOST --credentials FILE`"));
        }
    };
    nats_link(subject, server, &credentials, ca)
}

/// Adds the host, and prints what a person does on the cluster and there.
pub(super) fn invite(context: &Context, host: Host, link: &NatsLink) -> CommandResult {
    let name = host.name.clone();
    let hosts = ask(context, Command::AddHost(host))?;
    let NatsLink {
        server, subject, ..
    } = link;
    let up = format!("{subject}.up.>");
    let down = format!("{subject}.down.>");
    let ca = link.ca.as_ref().map_or("", |_| " --ca CA");
    let and_ca = link.ca.as_ref().map_or("", |_| ", and CA, the authority");
    let dial = format!("teamd host --dial {server} --link {subject} --credentials FILE{ca}");
    let value = json!({
        "host": name,
        "home_publishes": down,
        "host_publishes": up,
        "dial": dial,
    });
    let text = format!(
        "{name} is invited: it dials home over NATS.\n\n\
         1. On the cluster, let two users do this, and nothing else:\n\n\
         home   publish   {down}\n       subscribe {up}\n\
         {name}   publish   {up}\n       subscribe {down}\n\n\
         `teamctl host list` shows within 30 s whether home listens.\n\n\
         2. On {name}, with all programs of teamd {version}, also teamd-nats, and the keys of\n   \
         model services in the environment: put its credentials, FILE, into\n   \
         ~/.config/nats{and_ca}. Then, for as long as its teammates are to be reached:\n\n\
         {dial}",
        version = env!("CARGO_PKG_VERSION"),
    );
    context.out.result(&value, escape::text(&text))?;
    let status = hosts.iter().find(|status| status.host.name == name);
    if let Some(LinkState::NeedsAttention { why, .. }) = status.map(|status| &status.link) {
        context
            .out
            .note(format_args!("home is not linked: {}", escape::line(why)));
    }
    context.out.note(format_args!(
        "the owners of {name} and of the cluster can read the mail and the work of the teammates there"
    ));
    Ok(ExitCode::Done)
}
