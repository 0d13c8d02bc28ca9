//! What the tools of a teammate may not read here. Home names it as it is on this machine.

use teamd_shared::user_dirs::login_dir;

use super::frames::named_path;

/// Returns what the tools of a teammate may not read on this machine.
pub(super) fn hidden_here(named: &[String]) -> Vec<String> {
    let login_dir = login_dir(|name| std::env::var_os(name));
    let mut hidden = Vec::new();
    for named in named {
        let path = login_dir
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|login_dir| named_path(named, login_dir));
        match path {
            // What is missing may be made later.
            Ok(path) => {
                let real = std::fs::canonicalize(&path).unwrap_or(path);
                hidden.push(real.to_string_lossy().into_owned());
            }
            Err(why) => tracing::warn!("{named} is not kept from a teammate: {why}"),
        }
    }
    hidden
}
