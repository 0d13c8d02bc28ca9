//! A teammate on a host: what its order may name. Its paths are the host's, which resolves them.

use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::name::Name;

use super::RecordedPaths;

/// Checks an order for a host, and completes its workspace.
///
/// # Errors
/// [`RefusalCode::Usage`] if the order names what a host does not take.
pub(super) fn check_on_host(
    order: &mut SpawnOrder,
    host: &Name,
    recorded: Option<RecordedPaths<'_>>,
) -> Result<(), Refusal> {
    let name = &order.name;
    let terms = &mut order.terms;
    if *name == Name::lead() {
        return Err(usage("the lead agent runs at home", "leave `--host` out"));
    }
    if terms.program.is_some() || !terms.servers.is_empty() {
        return Err(usage(
            format!("the programs of agents and MCP servers are looked up at home, not on {host}"),
            "use the built-in agent there, with `--model`",
        ));
    }
    let sandbox = &mut terms.sandbox;
    if sandbox.caches.take() == Some(true) || !sandbox.writable.is_empty() {
        return Err(usage(
            format!("on {host} a teammate writes in its workspace alone"),
            "leave `--writable` and `--caches` out",
        ));
    }
    // What a teammate at home may see of the home there says nothing about another machine.
    sandbox.visible.clear();
    let named = terms.workspace.take();
    let had_checkout = recorded.is_some_and(|paths| paths.has_checkout);
    if terms.checkout.unwrap_or(had_checkout) {
        return match named {
            None => Ok(()),
            Some(_) => Err(usage(
                format!("a checkout on {host} is of the repository of this team"),
                "leave `--workspace` out, or the checkout (`--no-checkout`)",
            )),
        };
    }
    let workspace = named.or_else(|| recorded.map(|paths| paths.workspace.to_owned()));
    let Some(workspace) = workspace else {
        return Err(usage(
            format!("no directory on {host} is named for {name} to work in"),
            "give it a checkout (`--checkout`), or name a directory that is there: `--workspace DIR`, absolute or beginning with `~/`",
        ));
    };
    let is_of_login = workspace == "~" || workspace.starts_with("~/");
    if !workspace.starts_with('/') && !is_of_login {
        return Err(usage(
            format!("the workspace {workspace} does not say where on {host} it is"),
            "name it absolute, or beginning with `~/`",
        ));
    }
    terms.workspace = Some(workspace);
    Ok(())
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Usage, message).hint(hint)
}
