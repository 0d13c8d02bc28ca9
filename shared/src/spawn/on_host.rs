//! A teammate on a host: what its order may name. Its paths are the host's, which resolves them.

use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::host::can_be_workspace;
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
    let had_checkout = recorded.is_some_and(|paths| paths.has_checkout);
    if terms.checkout.unwrap_or(had_checkout) {
        return match terms.workspace.take() {
            None => Ok(()),
            Some(_) => Err(usage(
                format!("a checkout on {host} is of the repository of this team"),
                "leave `--workspace` out, or the checkout (`checkout = false` in team.toml)",
            )),
        };
    }
    // Without one the daemon takes that of the host, which it may still choose.
    let recorded = recorded.map(|paths| paths.workspace.to_owned());
    terms.workspace = terms.workspace.take().or(recorded);
    if let Some(workspace) = &terms.workspace {
        can_be_workspace(workspace, host)
            .map_err(|why| usage(why, "name it absolute, or beginning with `~/`"))?;
    }
    Ok(())
}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Usage, message).hint(hint)
}
