//! Dialling home: what `teamd host --dial` runs on a host that home cannot reach. It runs `ssh` or
//! `teamd-nats`, and runs it again when it has ended; between that and the host daemon it passes
//! lines.
//!
//! The host daemon has a session of its own. When this process dies, the teammates work on, and home
//! shows the host as unreachable until it is started again.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::control::{DialledHome, Incoming, Outgoing};
use teamd_shared::link::{
    HomeOffer, LINK_PROTOCOL, LINK_WISH, MAGIC, MAX_BANNER, MAX_LINK_FRAME, REFUSED,
};
use teamd_shared::register::Register;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::user_dirs::host_team_dir;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use super::relay::{broken, connect};
use crate::io::carrier::{CarrierChannel, CarrierEnd};
use crate::io::nats::nats_to_home;
use crate::io::redial::until_next_attempt;
use crate::io::ssh::ssh;
use crate::io::stream::{read_line, shown, until_magic};
use crate::options::HostOptions;
use crate::start::start_host;

/// How long what the host daemon said last may take.
const LAST_WORDS: Duration = Duration::from_secs(1);
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
    /// It can, if it has worked before.
    Failed(CommandError),
    /// It cannot.
    Refused(CommandError),
}

/// What becomes of the link.
#[derive(Debug)]
pub enum LinkNote<'a> {
    /// Home is linked.
    Linked,
    /// It is not, and is dialled again.
    Broken(&'a str),
}

/// Dials home for good. `note` tells a person what becomes of the link.
///
/// # Errors
/// [`CommandError`] if a person must do something first.
pub fn dial(
    options: &DialOptions,
    note: impl Fn(LinkNote<'_>),
) -> Result<Infallible, CommandError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::refused("cannot begin", &error))?;
    let mut dialling = Dialling {
        options,
        runtime: &runtime,
        was_ever_up: false,
    };
    let mut attempts = 0;
    let mut told = String::new();
    loop {
        let mut is_up = false;
        let ended = dialling.link(|| {
            is_up = true;
            note(LinkNote::Linked);
        });
        let why = match ended {
            Err(LinkEnd::Refused(error)) => return Err(error),
            // What has never worked is not tried again.
            Err(LinkEnd::Failed(error)) if !dialling.was_ever_up => return Err(error),
            Err(LinkEnd::Failed(error)) => error.message().to_owned(),
            Err(LinkEnd::Broken(why)) => why,
            Ok(()) => "home has hung up".to_owned(),
        };
        if is_up {
            attempts = 0;
            told.clear();
        }
        attempts += 1;
        // One that fails again for the same reason is nothing new.
        if why != told {
            note(LinkNote::Broken(&why));
            told = why;
        }
        runtime.block_on(until_next_attempt(attempts));
    }
}

/// What the links of one process share.
struct Dialling<'a> {
    options: &'a DialOptions,
    runtime: &'a Runtime,
    was_ever_up: bool,
}

impl Dialling<'_> {
    /// Makes one link, and carries it to its end. `linked` is called when home is heard on it.
    fn link(&mut self, linked: impl FnMut()) -> Result<(), LinkEnd> {
        let options = self.options;
        let (mut channel, offer) = self.runtime.block_on(async {
            let channel = HomeChannel::open(&options.home)?;
            channel.offer().await
        })?;
        let dir = host_team_dir(|name| std::env::var_os(name), offer.home)
            .map_err(|error| failed("cannot find a place for the host daemon", &error))?;
        let host = HostOptions {
            dir: dir.clone(),
            home: offer.home,
            replace: offer.replace,
            allow_weak_sandbox: options.allow_weak_sandbox,
            register: options.register.clone(),
            settings: options.settings.clone(),
        };
        start_host(&host).map_err(LinkEnd::Failed)?;
        let dir = TeamDir::open(&dir).map_err(|error| LinkEnd::Failed(error.into()))?;
        let was_up = Cell::new(false);
        let ended = self.runtime.block_on(async {
            let dials = Some(options.home.clone());
            let connected = connect(&dir, dials).await;
            let (out, incoming) = connected.map_err(|error| broke(&error))?;
            let linked = RefCell::new(linked);
            let heard = || {
                if !was_up.replace(true) {
                    (linked.borrow_mut())();
                }
            };
            {
                let mut down = pin!(down(&mut channel.carrier.writes, incoming));
                tokio::select! {
                    ended = &mut down => ended?,
                    ended = up(&mut channel.carrier.reads, out, heard) => {
                        if ended.is_err() {
                            // The host daemon may have hung up: what it said last goes out first.
                            let last = tokio::time::timeout(LAST_WORDS, down).await;
                            tracing::debug!("the last of the host daemon: {last:?}");
                        }
                        ended?;
                    }
                }
            }
            channel.end().await
        });
        self.was_ever_up |= was_up.get();
        ended
    }
}

fn failed(what: &str, error: &std::io::Error) -> LinkEnd {
    LinkEnd::Failed(CommandError::refused(what, error))
}

fn broke(error: &CommandError) -> LinkEnd {
    LinkEnd::Broken(error.message().to_owned())
}

/// Runs what carries bytes to home, which is told this line.
///
/// # Errors
/// Why it cannot be run.
pub(super) fn open(home: &DialledHome, line: &str) -> Result<CarrierChannel, String> {
    let command = match home {
        DialledHome::Ssh { place, key } => ssh(place, key.as_deref(), line),
        DialledHome::Nats(link) => nats_to_home(link, line)?,
    };
    CarrierChannel::open(command)
}

/// The link to home, with what carries it.
struct HomeChannel<'a> {
    home: &'a DialledHome,
    carrier: CarrierChannel,
}

impl<'a> HomeChannel<'a> {
    fn open(home: &'a DialledHome) -> Result<Self, LinkEnd> {
        let carrier = open(home, LINK_WISH).map_err(|why| {
            let next = match home {
                DialledHome::Ssh { .. } => "install the ssh client of OpenSSH",
                DialledHome::Nats(_) => "install teamd-nats beside teamd",
            };
            LinkEnd::Failed(CommandError::new(ExitCode::Failed, why).hint(next))
        })?;
        Ok(Self { home, carrier })
    }

    /// Reads who home is.
    async fn offer(mut self) -> Result<(Self, HomeOffer), LinkEnd> {
        let read = tokio::time::timeout(OFFER, read_offer(&mut self.carrier.reads)).await;
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
            return Ok((self, offer));
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

    /// Waits for the end of the carrier, and says why it has ended.
    async fn end(self) -> Result<(), LinkEnd> {
        let CarrierChannel {
            writes,
            mut process,
            ..
        } = self.carrier;
        // It ends when it can read nothing more.
        drop(writes);
        let place = self.home;
        let failed = |why: String, hint: String| {
            LinkEnd::Failed(CommandError::new(ExitCode::Failed, why).hint(hint))
        };
        match process.ends().await {
            CarrierEnd::Done => Ok(()),
            CarrierEnd::Hangs => Err(LinkEnd::Broken("the connection broke".to_owned())),
            CarrierEnd::Other(why) => Err(LinkEnd::Broken(shown(&why))),
            CarrierEnd::NeedsPerson(why) => Err(failed(
                shown(&why),
                "see what `teamctl host invite` at home has printed".to_owned(),
            )),
            CarrierEnd::NoProgram => Err(failed(
                format!("the program that the key of {place} names is not there"),
                "`teamctl host invite` at home prints the line for ~/.ssh/authorized_keys"
                    .to_owned(),
            )),
            end @ (CarrierEnd::NoLogin | CarrierEnd::UnknownHostKey) => {
                Err(failed(format!("{place}: {end}"), try_by_hand(self.home)))
            }
        }
    }
}

/// Returns what shows a person what `ssh` would ask.
fn try_by_hand(home: &DialledHome) -> String {
    match home {
        DialledHome::Ssh {
            place,
            key: Some(key),
        } => format!("try `ssh -i {} {place}` in a terminal first", key.display()),
        _ => format!("try `ssh {home}` in a terminal first"),
    }
}

/// Reads what a login shell prints, then who home is; none at the end.
async fn read_offer(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<HomeOffer>, String> {
    if !until_magic(reader).await? {
        return Ok(None);
    }
    let Some(line) = read_line(reader, MAX_BANNER).await? else {
        return Ok(None);
    };
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| format!("home does not say who it is: {error}"))
}

/// Passes what home says. `heard` is called for each frame.
async fn up(
    reader: &mut (impl AsyncBufRead + Unpin),
    mut out: Outgoing<String>,
    heard: impl Fn(),
) -> Result<(), LinkEnd> {
    while let Some(line) = read_line(reader, MAX_LINK_FRAME)
        .await
        .map_err(LinkEnd::Broken)?
    {
        let line = String::from_utf8(line)
            .map_err(|_| LinkEnd::Broken("home said a line that is not UTF-8".to_owned()))?;
        if let Some(why) = line.strip_prefix(REFUSED) {
            let error =
                CommandError::new(ExitCode::Rejected, format!("home refuses: {}", shown(why)));
            return Err(LinkEnd::Refused(
                error.hint("`teamctl host list` at home names the next step"),
            ));
        }
        heard();
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
        let mut refused = &b"Welcome!\nteamd refuses: home has no host box\n"[..];
        let why = read_offer(&mut refused).await.unwrap_err();
        assert_eq!(why, "home has no host box");
        assert_eq!(read_offer(&mut &b"Welcome!\n"[..]).await, Ok(None));
    }
}
