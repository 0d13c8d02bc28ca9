//! A link over a NATS cluster, as a person names it at either end.

use std::path::{Path, PathBuf};

use teamd_shared::host::NatsLink;

use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::hidden_file::{HiddenPlace, hidden_file};
use crate::programs;

/// Makes the link of this subject. Its files are named as other processes find them.
///
/// # Errors
/// [`CommandError`] if it cannot be one.
pub fn nats_link(
    subject: String,
    server: String,
    credentials: &Path,
    ca: Option<PathBuf>,
) -> Result<NatsLink, CommandError> {
    // With another authority, another server could be the cluster.
    let ca = ca.map(|ca| hidden_file(&ca, "certificate authority", HiddenPlace::Nats));
    let link = NatsLink {
        server,
        credentials: hidden_file(credentials, "credentials", HiddenPlace::Nats)?,
        ca: ca.transpose()?,
        subject,
    };
    link.can_link()
        .map_err(|(why, hint)| CommandError::new(ExitCode::Usage, why).hint(hint))?;
    programs::nats().map_err(|why| {
        CommandError::new(ExitCode::Failed, why)
            .hint("build all programs with the feature `nats`, and install them in one directory")
    })?;
    Ok(link)
}
