//! A teammate on a host: what its order may name. Its paths are the host's, which resolves them.

use crate::caches;
use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::host::{can_be_workspace, is_place};
use crate::name::Name;
use crate::terms::add;

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
    let sandbox = &mut terms.sandbox;
    sandbox.writable = std::mem::take(&mut sandbox.named_writable);
    sandbox.hidden = std::mem::take(&mut sandbox.named_hidden);
    for (what, paths) in [
        ("may write", &sandbox.writable),
        ("may not read", &sandbox.hidden),
    ] {
        if let Some(named) = paths.iter().find(|path| !is_place(path)) {
            return Err(usage(
                format!("what {name} {what} on {host} is not said by the path {named}"),
                "name it absolute, or beginning with `~/` (in quotes), also in team.toml",
            ));
        }
    }
    if sandbox.caches.take() == Some(true) {
        add(&mut sandbox.writable, &[caches::OF_HOST.to_owned()]);
    }
    // What a teammate at home may see of the home there says nothing about another machine.
    sandbox.visible.clear();
    // Those of a lead are of home.
    let recorded = recorded.filter(|paths| paths.host.is_some());
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
