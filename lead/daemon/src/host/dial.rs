//! Dialling home: what `teamd host --dial` runs on a host that home cannot reach. It runs `ssh`, and
//! runs it again when it has ended; between `ssh` and the host daemon it passes lines.
//!
//! The host daemon has a session of its own. When this process dies, the teammates work on, and home
//! shows the host as unreachable until it is started again.

use std::convert::Infallible;
use std::time::Duration;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::control::{DialledHome, Incoming, Outgoing};
use teamd_shared::link::{HomeOffer, LINK_PROTOCOL, MAGIC, MAX_BANNER, MAX_LINK_FRAME};
use teamd_shared::register::Register;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::user_dirs::host_team_dir;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use super::relay::{broken, connect};
use crate::io::links::{pause, read_line, shown};
use crate::io::ssh::{SshChannel, SshEnd, ssh};
use crate::options::HostOptions;
use crate::start::start_host;

/// How long home may take until it says who it is.
const OFFER: Duration = Duration::from_secs(30);

/// How a host dials.
#[derive(Debug)]
pub struct DialOptions {
    /// Where home is.
    pub home: DialledHome,
    /// Whether teammates may run here although their commands cannot be confined as promised.
    pub allow_weak_sandbox: bool,
    /// The team directories of this user.
    pub register: Register,
    /// The settings of the host daemon.
    pub settings: Settings,
}

/// Why a link has ended, or could not be made.
#[derive(Debug)]
enum LinkEnd {
    /// Trying again can help.
    Broken(String),
    /// It cannot.
    Refused(CommandError),
}

/// Dials home for good. `note` tells a person what becomes of the link.
///
/// # Errors
/// [`CommandError`] if a person must do something first.
pub fn dial(options: &DialOptions, note: impl Fn(&str)) -> Result<Infallible, CommandError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::refused("cannot begin", &error))?;
    let mut attempts = 0;
    let mut told = String::new();
    loop {
        let mut was_up = false;
        let why = match link(options, &runtime, &mut was_up, &note) {
            Err(LinkEnd::Refused(error)) => return Err(error),
            Err(LinkEnd::Broken(why)) => why,
            Ok(()) => "home has hung up".to_owned(),
        };
        if was_up {
            attempts = 0;
            told.clear();
        }
        attempts += 1;
        // One that fails again for the same reason is nothing new.
        if why != told {
            let place = &options.home.place;
            note(&format!("no link to {place}: {why}; it is dialled again"));
            told = why;
        }
        runtime.block_on(async { tokio::time::sleep(pause(attempts)).await });
    }
}

/// Makes one link, and carries it to its end.
fn link(
    options: &DialOptions,
    runtime: &Runtime,
    was_up: &mut bool,
    note: impl Fn(&str),
) -> Result<(), LinkEnd> {
    let (mut channel, offer) = runtime.block_on(async {
        let mut channel = HomeChannel::open(&options.home)?;
        let offer = channel.offer().await?;
        Ok((channel, offer))
    })?;
    let dir = host_team_dir(|name| std::env::var_os(name), offer.home)
        .map_err(|error| refused("cannot find a place for the host daemon", &error))?;
    let host = HostOptions {
        dir: dir.clone(),
        home: offer.home,
        replace: offer.replace,
        allow_weak_sandbox: options.allow_weak_sandbox,
        register: options.register.clone(),
        settings: options.settings.clone(),
    };
    start_host(&host).map_err(LinkEnd::Refused)?;
    let dir = TeamDir::open(&dir).map_err(|error| LinkEnd::Refused(error.into()))?;
    runtime.block_on(async {
        let dials = Some(options.home.clone());
        let connected = connect(&dir, dials).await;
        let (out, incoming) = connected.map_err(|error| broke(&error))?;
        *was_up = true;
        note(&format!("linked to {}", options.home.place));
        tokio::select! {
            ended = up(&mut channel.ssh.reads, out) => ended?,
            ended = down(&mut channel.ssh.writes, incoming) => ended?,
        }
        channel.end().await
    })
}

fn refused(what: &str, error: &std::io::Error) -> LinkEnd {
    LinkEnd::Refused(CommandError::refused(what, error))
}

fn broke(error: &CommandError) -> LinkEnd {
    LinkEnd::Broken(error.message().to_owned())
}

/// The link to home, carried by an `ssh`.
struct HomeChannel<'a> {
    home: &'a DialledHome,
    ssh: SshChannel,
}

impl<'a> HomeChannel<'a> {
    fn open(home: &'a DialledHome) -> Result<Self, LinkEnd> {
        let command = ssh(&home.place, home.key.as_deref(), "link");
        let ssh = SshChannel::open(command).map_err(LinkEnd::Broken)?;
        Ok(Self { home, ssh })
    }

    /// Reads who home is.
    async fn offer(&mut self) -> Result<HomeOffer, LinkEnd> {
        let read = tokio::time::timeout(OFFER, read_offer(&mut self.ssh.reads)).await;
        let offer = match read {
            Ok(Ok(Some(offer))) => offer,
            Ok(Ok(None)) => {
                self.end().await?;
                return Err(LinkEnd::Broken("home says nothing".to_owned()));
            }
            Ok(Err(why)) => return Err(LinkEnd::Broken(why)),
            Err(_) => return Err(LinkEnd::Broken("home does not answer".to_owned())),
        };
        if offer.protocol == LINK_PROTOCOL {
            return Ok(offer);
        }
        let message = format!(
            "home runs teamd {}, which speaks version {} of the link; this is teamd {} with version {LINK_PROTOCOL}",
            shown(&offer.version),
            offer.protocol,
            env!("CARGO_PKG_VERSION")
        );
        Err(LinkEnd::Refused(
            CommandError::new(ExitCode::Failed, message)
                .hint("install the same version of teamd on both machines"),
        ))
    }

    /// Waits for the end of `ssh`, and says why it has ended.
    async fn end(&mut self) -> Result<(), LinkEnd> {
        let place = &self.home.place;
        let refused = |why: String, hint: String| {
            LinkEnd::Refused(CommandError::new(ExitCode::Failed, why).hint(hint))
        };
        match self.ssh.process.ends().await {
            SshEnd::Done => Ok(()),
            SshEnd::Hangs => Err(LinkEnd::Broken("the connection broke".to_owned())),
            SshEnd::Other(why) => Err(LinkEnd::Broken(shown(&why))),
            SshEnd::NoProgram => Err(refused(
                format!("the program that the key of {place} names is not there"),
                "`teamctl host invite` at home prints the line for ~/.ssh/authorized_keys"
                    .to_owned(),
            )),
            end @ (SshEnd::NoLogin | SshEnd::UnknownHostKey) => {
                Err(refused(format!("{place}: {end}"), self.try_by_hand()))
            }
        }
    }

    /// Returns what shows a person what `ssh` would ask.
    fn try_by_hand(&self) -> String {
        let place = &self.home.place;
        match &self.home.key {
            Some(key) => format!("try `ssh -i {} {place}` in a terminal first", key.display()),
            None => format!("try `ssh {place}` in a terminal first"),
        }
    }
}

/// Reads what a login shell prints, then who home is; none at the end.
async fn read_offer(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<HomeOffer>, String> {
    let mut printed = 0;
    loop {
        let left = MAX_BANNER.saturating_sub(printed);
        let Some(line) = read_line(reader, left).await? else {
            return Ok(None);
        };
        if line == MAGIC.as_bytes() {
            break;
        }
        printed += line.len() + 1;
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(why) = text.strip_prefix("error: ") {
            return Err(shown(why));
        }
    }
    let Some(line) = read_line(reader, MAX_BANNER).await? else {
        return Ok(None);
    };
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| format!("home does not say who it is: {error}"))
}

/// Passes what home says.
async fn up(
    reader: &mut (impl AsyncBufRead + Unpin),
    mut out: Outgoing<String>,
) -> Result<(), LinkEnd> {
    while let Some(line) = read_line(reader, MAX_LINK_FRAME)
        .await
        .map_err(LinkEnd::Broken)?
    {
        let line = String::from_utf8(line)
            .map_err(|_| LinkEnd::Broken("home said a line that is not UTF-8".to_owned()))?;
        out.send(&line)
            .await
            .map_err(|error| broke(&broken(error)))?;
    }
    Ok(())
}

/// Passes what the host daemon says.
async fn down(
    writer: &mut (impl AsyncWrite + Unpin),
    mut incoming: Incoming<String>,
) -> Result<(), LinkEnd> {
    let broke_off =
        |error: std::io::Error| LinkEnd::Broken(format!("home does not listen: {error}"));
    let begins = format!("{MAGIC}\n");
    writer
        .write_all(begins.as_bytes())
        .await
        .map_err(broke_off)?;
    while let Some(mut line) = incoming
        .receive()
        .await
        .map_err(|error| broke(&broken(error)))?
    {
        line.push('\n');
        writer.write_all(line.as_bytes()).await.map_err(broke_off)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_shell_prints_stands_before_what_home_says() {
        let home = uuid::Uuid::from_u128(7);
        let offer = HomeOffer {
            protocol: LINK_PROTOCOL,
            version: "1".to_owned(),
            home,
            replace: false,
        };
        let line = serde_json::to_string(&offer).unwrap();
        let text = format!("Welcome!\n{MAGIC}\n{line}\n{{}}\n");
        let mut said = text.as_bytes();
        assert_eq!(read_offer(&mut said).await, Ok(Some(offer)));
        assert_eq!(said, b"{}\n", "the frames follow");
        let mut refused = &b"Welcome!\nerror: home has no host box\n"[..];
        let why = read_offer(&mut refused).await.unwrap_err();
        assert_eq!(why, "home has no host box");
        assert_eq!(read_offer(&mut &b"Welcome!\n"[..]).await, Ok(None));
    }
}
