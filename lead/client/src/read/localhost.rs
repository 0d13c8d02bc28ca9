//! What a teammate serves on a localhost of its own.

use teamd_shared::localhost;
use teamd_shared::member::Localhost;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::terms::GATEWAY_PORT;

use teamd_shared::config::RosterMember;

/// Where the sandbox of an agent listens in the place of a debugger of Node.
const DEBUGGER: u16 = 9229;

/// Returns the ports that a member serves, without those of its gateway; none if it has no
/// localhost of its own, or no process answers for that.
pub fn served(dir: &TeamDir, member: &RosterMember) -> Vec<u16> {
    if !has_own(member) {
        return Vec::new();
    }
    // A worker that begins or ends has none to ask.
    let ports = localhost::ports(dir, &member.name).unwrap_or_default();
    of_commands(member, ports)
}

/// Returns the same without holding the caller up. Must be called within the runtime.
pub async fn served_soon(dir: &TeamDir, member: &RosterMember) -> Vec<u16> {
    if !has_own(member) {
        return Vec::new();
    }
    let ports = localhost::ports_soon(dir, &member.name).await;
    of_commands(member, ports.unwrap_or_default())
}

/// Tells whether a member has a localhost of its own, which can be asked.
pub fn has_own(member: &RosterMember) -> bool {
    member.sandbox.localhost == Localhost::Own && !member.status.is_ended()
}

/// Leaves out what its sandbox serves.
fn of_commands(member: &RosterMember, mut ports: Vec<u16>) -> Vec<u16> {
    ports.retain(|port| !is_of_sandbox(member, *port));
    ports.sort_unstable();
    ports
}

fn is_of_sandbox(member: &RosterMember, port: u16) -> bool {
    let sandbox = &member.sandbox;
    let is_of_gateway = port == GATEWAY_PORT || sandbox.ports.contains(&port);
    is_of_gateway || member.agent.is_some() && port == DEBUGGER
}
