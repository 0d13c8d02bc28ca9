//! Starts an MCP server in a sandbox of its own: that of its teammate, but with its own network and
//! processes, so that no command of the teammate reads its secrets.

use teamd_shared::member::{Gate, Sandbox, SandboxMode};
use teamd_shared::sandbox::Namespaces;
use teamd_shared::terms::{McpServer, McpTransport};
use teamd_worker_core::secret::Secret;
use teamd_worker_sandbox::Gateway;
use teamd_worker_sandbox::run::{AgentStart, Runner, StartedAgent, Way};
use teamd_worker_sandbox::shim::{AgentOrder, ShimJob, ShimOrder, ShimProgram};

/// Tells whether the gate of a server changes while it runs: with namespaces of our own.
pub(super) fn is_live(runner: &Runner) -> bool {
    let config = runner.config();
    let is_confined = config.sandbox.mode != SandboxMode::Off;
    is_confined && config.confinement.layers.namespaces == Namespaces::Own
}

/// Starts a server that speaks over its standard input and output.
///
/// # Errors
/// Why it cannot be started.
pub(super) fn start(
    server: &McpServer,
    runner: &Runner,
    gate: Gate,
    secrets: &[Secret],
) -> Result<StartedAgent, String> {
    let McpTransport::Stdio {
        command,
        env,
        hosts,
    } = &server.transport
    else {
        return Err("it is reached over HTTP, and not started".to_owned());
    };
    let config = runner.config();
    let is_live = is_live(runner);
    let is_confined = config.sandbox.mode != SandboxMode::Off;
    if is_confined && !is_live {
        if !hosts.is_empty() {
            return Err("`network` lists hosts, and this machine has no namespaces of our own to keep out the others".to_owned());
        }
        if !env.is_empty() {
            return Err("it has variables of its own in `env`, and without namespaces of our own a command of this teammate could read them".to_owned());
        }
    }
    let sandbox = Sandbox {
        no_network: hosts.is_empty(),
        hosts: hosts.clone(),
        ports: Vec::new(),
        ..config.sandbox.clone()
    };
    let granted = if is_live { Gate::Open } else { gate };
    let means = (config.confinement.layers, config.confinement.weak);
    let mut policy = runner.places().policy(&sandbox, granted, means)?;
    if let Some(policy) = &mut policy {
        policy.network = false;
        let run = config.team_dir.open_folder(Some("run"));
        run.map_err(|error| error.to_string())?;
    }
    let has_network = is_live && sandbox.has_network(granted);
    let gateway = Gateway::new(&sandbox, has_network);
    let mut way = Way::make(gateway, is_live).map_err(|error| error.to_string())?;
    let mut environment = config.environment.clone();
    for secret in secrets {
        environment.set(secret.variable(), secret.expose());
    }
    for (name, value) in way.variables() {
        environment.set(name, &value);
    }
    let order = ShimOrder {
        timeout: None,
        bounds: config.bounds,
        policy,
        program: ShimProgram::Agent(AgentOrder {
            command: command.clone(),
            live_gate: is_live.then_some(gate),
        }),
        listen: way.listen(),
        jobserver: Vec::new(),
        localhost: None,
    };
    let shown = format!("mcp {}", server.name);
    let job = ShimJob::new(order, &environment, &config.workspace, shown.as_ref());
    let mut job = job.map_err(|error| error.to_string())?;
    job.handed_on.extend(way.hand_on());
    if let Some(cgroup) = &config.cgroup {
        cgroup.enter().map_err(|error| error.to_string())?;
    }
    let start = AgentStart {
        job: &job,
        liveness_lock: &config.liveness_lock,
        gate,
        way,
        lease: None,
        token: None,
    };
    start.for_many_turns().map_err(|error| error.to_string())
}
