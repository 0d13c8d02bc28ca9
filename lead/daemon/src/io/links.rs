//! The links to the hosts: one task dials each, and the event loop says and hears frames.
//!
//! **Who writes** an inbox: the intake of a link, for members of home, beside all others who append
//! there. **Who reads** the inbox of a member of a host: this file, in order, from the line that the
//! host has taken last. **When home dies**, the link dies with it; the next daemon dials again, and
//! both sides say anew what holds.

mod bulk;
mod carry;
mod deliveries;
mod dial;
mod door;
mod files;
mod guests;
mod measurements;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use teamd_shared::clock;
use teamd_shared::control::{ByteStream, ToWorker, Welcome};
use teamd_shared::environment::Environment;
use teamd_shared::host::{Host, HostVitals, HostWay, NatsLink};
use teamd_shared::inbox::{LinePlace, ReadError, line_before, position_after};
use teamd_shared::link::{
    HomeHello, MailLine, RosterChange, RosterLine, StartOrder, TeamNow, ToHost, Whose,
    given_to_hosts, name_for_hosts, settings_given_to_hosts,
};
use teamd_shared::member::Member;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) use self::bulk::BulkChannel;
use self::bulk::BulkWay;
use self::carry::{AbortedWhenDropped, LinkTask, QUEUE, next_number};
use self::deliveries::Deliveries;
use self::dial::Dialer;
use self::door::NatsDoor;
use self::files::AwaitedFiles;
use self::guests::Guests;
pub(crate) use self::guests::refuse;
pub(crate) use self::measurements::AwaitedVitals;
use self::measurements::Measurements;
use super::input::{DialledIn, Inputs};
use super::mail_relay::{IntakeError, MailIntake, OutboxLine, OutboxReader};
use super::roster_file::RosterFile;
use crate::core::caller::ReplyTo;
use crate::core::event::Ordered;
use crate::core::incarnation::Incarnation;

/// How much of the roster goes into one frame, in bytes.
const MOST_OF_ROSTER: usize = 1 << 20;

/// All links.
#[derive(Debug)]
pub(crate) struct Links {
    dir: Arc<TeamDir>,
    inputs: Inputs,
    links: BTreeMap<Name, Link>,
    /// Grows with each start of a daemon of this team: the line of the journal that says so.
    pub(crate) starts: u64,
    /// Whether the roster was written since the hosts were told of it.
    pub(crate) roster_is_new: bool,
    /// Whether this daemon has replaced another: then each host daemon is replaced, too.
    pub(crate) replaces: bool,
    /// The commands that wait for mail to be at a host.
    pub(crate) deliveries: Deliveries,
    /// What waits for what hosts have to give.
    pub(crate) measurements: Measurements,
    /// The commands that wait for a piece of a log, by the numbers of the questions.
    pub(crate) log_readers: BTreeMap<u64, LogReader>,
    last_question: u64,
    /// The hosts that a person has told to obey this home: each is told so once.
    takes: BTreeSet<Name>,
    /// The files for which hosts that dial are asked.
    files: AwaitedFiles,
}

/// The link to one host.
#[derive(Debug)]
struct Link {
    host: Host,
    /// What the host knows this team by.
    home: Uuid,
    task: JoinHandle<()>,
    /// Has a host that home dials dialled now.
    now: Arc<Notify>,
    /// Takes the connections of a host that dials home.
    guests: Option<mpsc::Sender<ByteStream>>,
    /// Listens for a host that dials over a NATS cluster.
    _door: Option<AbortedWhenDropped>,
    wants_room: Arc<AtomicBool>,
    /// Connections with a lower number are of an earlier task.
    first_connection: u64,
    /// The present connection.
    connection: Option<LinkConnection>,
    intake: MailIntake,
    /// The last line of the outbox to the lead that was taken: mostly what is submitted next.
    last_to_lead: Option<(LinePlace, Box<Message>)>,
}

/// A command that waits for a piece of a log.
#[derive(Debug)]
pub(crate) struct LogReader {
    pub(crate) client: ReplyTo,
    pub(crate) host: Name,
}

/// A connection with a host daemon.
#[derive(Debug)]
struct LinkConnection {
    number: u64,
    frames: mpsc::Sender<ToHost>,
    /// Ends the connection: it is dialled again.
    cut: Arc<Notify>,
    /// Whether the host has said what it has: only then frames about members count.
    has_said: bool,
    /// The version of the program there.
    version: String,
    /// Why commands cannot be confined there as promised, if they cannot.
    weakness: Option<String>,
    /// What it has to give, as it has said last, and when.
    vitals: Option<(HostVitals, Instant)>,
    /// The outboxes to the members of the host.
    outboxes: BTreeMap<Name, OutboxToMember>,
    /// What was said of the team last: nothing is said twice.
    told: Option<TeamNow>,
    /// Up to which change it was told of the roster.
    told_roster: Option<u64>,
}

/// The outbox to one member of a host.
#[derive(Debug)]
struct OutboxToMember {
    reader: OutboxReader,
    /// The lines that were sent and are not known to be read, each with its end.
    sent: VecDeque<(LinePlace, u64)>,
    /// The last line that was read, with its end.
    read: Option<(LinePlace, u64)>,
    /// Whether the inbox was searched for such a line: once for each connection, behind it the lines
    /// that were sent are known.
    is_searched: bool,
}

/// Says frames to one worker over a link.
#[derive(Debug, Clone)]
pub(crate) struct LinkedWorker {
    whose: Whose,
    frames: mpsc::Sender<ToHost>,
    cut: Arc<Notify>,
}

impl LinkedWorker {
    /// Says something. What cannot be said is said anew on the next connection.
    pub(crate) fn say(&self, frame: ToWorker) {
        let says = match frame {
            // The host has an environment and a territory of its own. No key of home goes there but
            // those that came with the start.
            ToWorker::Welcome(welcome) => ToWorker::Welcome(Box::new(Welcome {
                environment: Environment::default(),
                territory: Vec::new(),
                ..*welcome
            })),
            // The clocks of two machines are not compared.
            ToWorker::Interrupt { asked_at } => ToWorker::Interrupt {
                asked_at: clock::since_boot().saturating_sub(asked_at),
            },
            frame => frame,
        };
        let frame = ToHost::Say {
            to: self.whose.clone(),
            says: Box::new(says),
        };
        if self.frames.try_send(frame).is_err() {
            tracing::debug!("a frame for {} is lost with its link", self.whose.name);
            self.cut.notify_one();
        }
    }
}

impl Links {
    /// Has no link yet.
    pub(crate) fn new(dir: Arc<TeamDir>, inputs: Inputs) -> Self {
        Self {
            dir,
            inputs,
            links: BTreeMap::new(),
            starts: 0,
            roster_is_new: false,
            replaces: false,
            deliveries: Deliveries::default(),
            measurements: Measurements::default(),
            log_readers: BTreeMap::new(),
            last_question: 0,
            takes: BTreeSet::new(),
            files: AwaitedFiles::default(),
        }
    }

    /// Keeps a link to a host, and dials it now.
    pub(crate) fn dial(&mut self, home: Uuid, host: &Host) {
        if let Some(link) = self.links.get_mut(&host.name) {
            let is_same = link.host.way == host.way
                && link.host.allow_weak_sandbox == host.allow_weak_sandbox;
            // One that dials home is waited for anew, and what is known of it is said.
            let is_dialled = link.guests.is_none() || link.connection.is_some();
            if is_same && !link.task.is_finished() && is_dialled {
                link.host = host.clone();
                link.now.notify_one();
                return;
            }
            self.hang_up(&host.name);
        }
        let now = Arc::new(Notify::new());
        let wants_room = Arc::new(AtomicBool::new(false));
        let first_connection = next_number();
        let task = LinkTask {
            host: host.clone(),
            home,
            inputs: self.inputs.clone(),
            wants_room: Arc::clone(&wants_room),
            replaces: self.replaces,
            challenge: Notify::new(),
        };
        let mut door = None;
        let (task, guests) = match &host.way {
            HostWay::Ssh(place) => {
                let dialer = Dialer {
                    task,
                    place: place.clone(),
                    now: Arc::clone(&now),
                };
                (tokio::spawn(dialer.run()), None)
            }
            HostWay::Invited(_) | HostWay::Nats(_) => {
                let (sender, connections) = mpsc::channel(1);
                let mut closed = None;
                if let HostWay::Nats(link) = &host.way {
                    let (closes, receiver) = watch::channel(None);
                    closed = Some(receiver);
                    let nats = NatsDoor {
                        host: host.name.clone(),
                        link: NatsLink::clone(link),
                        dir: Arc::clone(&self.dir),
                        closed: closes,
                    };
                    door = Some(AbortedWhenDropped(tokio::spawn(nats.run())));
                }
                let guests = Guests {
                    task: Arc::new(task),
                    connections,
                    closed,
                };
                (tokio::spawn(guests.run()), Some(sender))
            }
        };
        let link = Link {
            host: host.clone(),
            home,
            task,
            now,
            guests,
            _door: door,
            wants_room,
            first_connection,
            connection: None,
            intake: MailIntake::new(host.name.as_str()),
            last_to_lead: None,
        };
        self.links.insert(host.name.clone(), link);
    }

    /// Takes a connection that a host has made: for its link, or for a file.
    pub(crate) fn dialled_in(&self, dialled: DialledIn) {
        let DialledIn {
            host,
            key,
            file,
            stream,
        } = dialled;
        let Some(link) = self.links.get(&host) else {
            return refuse(stream, format!("home has no host {host}"));
        };
        let (Some(known), Some(guests)) = (link.host.way.invitation(), &link.guests) else {
            return refuse(stream, format!("home dials {host} itself"));
        };
        if known != key {
            return refuse(stream, format!("home has invited {host} with another key"));
        }
        if let Some(file) = file {
            if let Err(Ok(stream)) = self.files.arrived(&host, file, Ok(stream)) {
                refuse(stream, "home waits for no such file".to_owned());
            }
            return;
        }
        if let Err(error) = guests.try_send(stream) {
            let why = match &error {
                TrySendError::Full(_) => "home still takes an earlier connection".to_owned(),
                TrySendError::Closed(_) => {
                    format!("{host} was refused: `teamctl host list` at home says why")
                }
            };
            refuse(error.into_inner(), why);
        }
    }

    /// Records that a host does not carry a file.
    pub(crate) fn no_file(&self, host: &Name, file: Uuid, why: String) {
        if self.files.arrived(host, file, Err(why)).is_err() {
            tracing::debug!("{host} says that it does not carry a file that it was not asked for");
        }
    }

    /// Has a host obey this home, with the next connection.
    pub(crate) fn take_over(&mut self, host: &Name) {
        self.takes.insert(host.clone());
    }

    /// Says who home is: the first frame.
    pub(crate) fn say_hello(&mut self, host: &Name, hello: HomeHello) {
        let frame = if self.takes.remove(host) {
            ToHost::Take(hello)
        } else {
            ToHost::Hello(hello)
        };
        self.say(host, frame);
    }

    /// Ends the link to a host. Its `ssh` ends with the task.
    pub(crate) fn hang_up(&mut self, host: &Name) {
        if let Some(link) = self.links.remove(host) {
            link.task.abort();
        }
    }

    /// Takes a connection that has just been made.
    pub(crate) fn connected(
        &mut self,
        host: &Name,
        number: u64,
        (version, weakness): (String, Option<String>),
        (frames, cut): (mpsc::Sender<ToHost>, Arc<Notify>),
    ) {
        let link = self.links.get_mut(host);
        if let Some(link) = link.filter(|link| number >= link.first_connection) {
            link.connection = Some(LinkConnection {
                number,
                frames,
                cut,
                has_said: false,
                version,
                weakness,
                vitals: None,
                outboxes: BTreeMap::new(),
                told: None,
                told_roster: None,
            });
        }
    }

    /// Drops a connection that has ended. Returns whether it was the present one, or there was none.
    pub(crate) fn disconnected(&mut self, host: &Name, number: u64) -> bool {
        let link = self.links.get_mut(host);
        let Some(link) = link.filter(|link| number >= link.first_connection) else {
            return false;
        };
        let is_older = link
            .connection
            .as_ref()
            .is_some_and(|connection| connection.number != number);
        if !is_older {
            link.connection = None;
        }
        !is_older
    }

    /// Tells whether a connection is the present one of its host: what an older one says counts for
    /// nothing.
    pub(crate) fn is_present(&self, host: &Name, number: u64) -> bool {
        self.connection(host)
            .is_some_and(|connection| connection.number == number)
    }

    /// Returns the version of the program at a host that is connected.
    pub(crate) fn version(&self, host: &Name) -> Option<String> {
        Some(self.connection(host)?.version.clone())
    }

    /// Returns why commands cannot be confined at a host that is connected as promised, and what it
    /// has to give, if it has said that since it was asked: what it had before is no answer.
    pub(crate) fn described(
        &self,
        host: &Name,
        asked: Instant,
    ) -> (Option<String>, Option<HostVitals>) {
        let Some(connection) = self.connection(host) else {
            return (None, None);
        };
        let vitals = connection.vitals.as_ref();
        let fresh = vitals.filter(|(_, said)| *said >= asked);
        let vitals = fresh.map(|(vitals, _)| vitals.clone());
        (connection.weakness.clone(), vitals)
    }

    /// Records what a host has to give.
    pub(crate) fn has_vitals(&mut self, host: &Name, vitals: HostVitals) {
        if let Some(connection) = self.connection_mut(host) {
            connection.vitals = Some((vitals, Instant::now()));
        }
    }

    /// Asks all hosts that are connected what they have to give, and returns them.
    pub(crate) fn ask_vitals(&mut self) -> BTreeSet<Name> {
        let mut asked = BTreeSet::new();
        for host in self.up() {
            if self.has_said(&host) {
                self.say(&host, ToHost::SayVitals);
                asked.insert(host);
            }
        }
        asked
    }

    /// Forgets the commands of a connection that is closed.
    pub(crate) fn drop_client(&mut self, connection: u64) {
        self.deliveries.drop_connection(connection);
        self.measurements.drop_connection(connection);
        self.log_readers
            .retain(|_, reader| reader.client.connection != connection);
    }

    /// Asks a host for a piece of a log.
    pub(crate) fn ask_log(&mut self, reader: LogReader, owner: &Name, from: Option<u64>) {
        self.last_question += 1;
        let number = self.last_question;
        let owner = owner.clone();
        let host = reader.host.clone();
        self.log_readers.insert(number, reader);
        let question = ToHost::SayLog {
            number,
            owner,
            from,
        };
        self.say(&host, question);
    }

    /// Records that a host does not obey: its link is not dialled again until a person has done
    /// something. What its task may have reported since counts for nothing: the refusal says why.
    pub(crate) fn refused(&mut self, host: &Name) {
        if let Some(link) = self.links.get_mut(host) {
            link.connection = None;
            link.first_connection = next_number();
            link.task.abort();
        }
    }

    /// Tells whether a host has said, on its present connection, what it has.
    pub(crate) fn has_said(&self, host: &Name) -> bool {
        self.connection(host)
            .is_some_and(|connection| connection.has_said)
    }

    /// Records that a host has said what it has.
    pub(crate) fn says_what_it_has(&mut self, host: &Name) {
        if let Some(connection) = self.connection_mut(host) {
            connection.has_said = true;
        }
    }

    /// Cuts the connection with a host, which is dialled again: both sides then say anew what holds.
    pub(crate) fn cut(&self, host: &Name) {
        if let Some(connection) = self.connection(host) {
            connection.cut.notify_one();
        }
    }

    /// Says something to a host, if it is connected. A link that does not carry what it should is
    /// cut, and dialled again.
    pub(crate) fn say(&mut self, host: &Name, frame: ToHost) {
        let Some(connection) = self.connection(host) else {
            return;
        };
        if connection.frames.try_send(frame).is_err() {
            tracing::warn!("{host} does not read what it is told");
            connection.cut.notify_one();
        }
    }

    /// Tells a host what has changed in the roster since it was told.
    pub(crate) fn tell_roster(&mut self, host: &Name, head: &str, roster: &RosterFile) {
        let Some(connection) = self.connection_mut(host) else {
            return;
        };
        let told = connection.told_roster.replace(roster.changes());
        let mut members = Vec::new();
        let mut length = 0;
        let mut frames = Vec::new();
        for (name, text) in roster.changed_since(told) {
            if length + text.len() > MOST_OF_ROSTER && !members.is_empty() {
                frames.push(std::mem::take(&mut members));
                length = 0;
            }
            length += text.len();
            members.push(RosterLine {
                name: name.clone(),
                text: text.to_owned(),
            });
        }
        frames.push(members);
        let last = frames.len() - 1;
        for (number, members) in frames.into_iter().enumerate() {
            let change = RosterChange {
                begins: told.is_none() && number == 0,
                head: head.to_owned(),
                members,
                more: number < last,
            };
            self.say(host, ToHost::Roster(change));
        }
    }

    /// Tells a host what the team is now.
    pub(crate) fn tell_team(&mut self, host: &Name, team: TeamNow) {
        if let Some(connection) = self.connection_mut(host) {
            connection.told = Some(team.clone());
            self.say(host, ToHost::Team(team));
        }
    }

    /// Returns what a host was told of the team last, on its present connection.
    pub(crate) fn told_team(&self, host: &Name) -> Option<&TeamNow> {
        self.connection(host)?.told.as_ref()
    }

    /// Returns the hosts that are connected.
    pub(crate) fn up(&self) -> Vec<Name> {
        let is_up = |link: &Link| link.connection.is_some();
        let hosts = self.links.iter().filter(|(_, link)| is_up(link));
        hosts.map(|(name, _)| name.clone()).collect()
    }

    /// Returns what carries files to a host that is connected.
    pub(crate) fn bulk(&self, host: &Name) -> Option<BulkChannel> {
        let frames = self.connection(host)?.frames.clone();
        let link = self.links.get(host)?;
        let way = match &link.host.way {
            HostWay::Ssh(place) => BulkWay::Home {
                place: place.clone(),
                home: link.home,
            },
            HostWay::Invited(_) | HostWay::Nats(_) => BulkWay::Host(self.files.clone()),
        };
        Some(BulkChannel {
            link: frames,
            host: host.clone(),
            way,
        })
    }

    /// Returns where frames for a worker on a host go.
    pub(crate) fn worker(&self, host: &Name, incarnation: &Incarnation) -> Option<LinkedWorker> {
        let connection = self.connection(host)?;
        Some(LinkedWorker {
            whose: whose(incarnation),
            frames: connection.frames.clone(),
            cut: Arc::clone(&connection.cut),
        })
    }

    /// Has an incarnation started. None if its host cannot be reached, or has not said on this
    /// connection what it has: what it says then is of a time before the order, and would count
    /// the incarnation as never begun.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn start(
        &mut self,
        host: &Name,
        member: &Member,
        ordered: &Ordered,
    ) -> Result<Option<LinkedWorker>, String> {
        let incarnation = Incarnation::of(member);
        let worker = self.worker(host, &incarnation);
        let Some(worker) = worker.filter(|_| self.has_said(host)) else {
            return Ok(None);
        };
        let mut environment = ordered.environment.clone();
        let link = self.links.get(host);
        let names = link.map(|link| link.host.terms.env.as_slice());
        name_for_hosts(&mut environment, names.unwrap_or_default(), &member.terms);
        let variables = match link.map(|link| &link.host.way) {
            Some(HostWay::Nats(_)) => settings_given_to_hosts(&environment),
            _ => given_to_hosts(&environment),
        };
        let place = |offset| line_of(&self.dir, &member.name, offset);
        let returned = member.exit.as_ref().and_then(|exit| exit.returned_up_to);
        let order = StartOrder {
            member: member.clone(),
            begins_after: place(member.begins_at.offset)?,
            returned_up_to: match returned {
                Some(position) => place(position.offset)?,
                None => None,
            },
            variables,
            asked: ordered.writable.clone(),
        };
        self.add_outbox(host, &member.name, None);
        self.say(host, ToHost::Start(Box::new(order)));
        self.pump(host, &member.name);
        Ok(Some(worker))
    }

    /// Returns how far each outbox of a host was taken.
    pub(crate) fn taken(&mut self, host: &Name, owner: &Name) -> Option<LinePlace> {
        let dir = Arc::clone(&self.dir);
        let link = self.links.get_mut(host)?;
        link.intake.taken(&dir, owner).unwrap_or_else(|error| {
            tracing::error!("cannot see what came from {host} for {owner}: {error}");
            None
        })
    }

    /// Appends a line of an outbox of a host.
    pub(crate) fn take(&mut self, host: &Name, mail: &MailLine) -> Result<(), IntakeError> {
        let dir = Arc::clone(&self.dir);
        let Some(link) = self.links.get_mut(host) else {
            return Ok(());
        };
        let message = match link.intake.take(&dir, mail) {
            Ok(message) => message,
            Err(error) => {
                // What is in the inbox is looked up again.
                link.intake.forget(&mail.owner);
                return Err(error);
            }
        };
        if mail.owner == Name::lead()
            && let Some(message) = message
        {
            link.last_to_lead = Some((mail.line, Box::new(message)));
        }
        Ok(())
    }

    /// Returns the message of a line of the outbox to the lead that was taken.
    pub(crate) fn taken_message(
        &self,
        host: &Name,
        line: LinePlace,
    ) -> Result<Box<Message>, String> {
        let no_line = || "the line that was submitted is not there".to_owned();
        let link = self.links.get(host).ok_or_else(no_line)?;
        if let Some((last, message)) = &link.last_to_lead
            && *last == line
        {
            return Ok(message.clone());
        }
        let found = teamd_shared::inbox::message_via(&self.dir, &Name::lead(), host.as_str(), line)
            .map_err(|error| error.to_string())?;
        found.map(Box::new).ok_or_else(no_line)
    }

    /// Forgets what is known of the inbox of a member whose files went into the archive.
    pub(crate) fn forget(&mut self, owner: &Name) {
        for link in self.links.values_mut() {
            link.intake.forget(owner);
            if let Some(connection) = &mut link.connection {
                connection.outboxes.remove(owner);
            }
        }
    }

    /// Reads the outbox to a member of a host from now on, behind the line that the host has taken
    /// last.
    pub(crate) fn add_outbox(&mut self, host: &Name, owner: &Name, taken: Option<LinePlace>) {
        let dir = Arc::clone(&self.dir);
        let Some(connection) = self.connection_mut(host) else {
            return;
        };
        if connection.outboxes.contains_key(owner) {
            return;
        }
        match OutboxReader::open(&dir, owner, taken) {
            Ok(reader) => {
                let outbox = OutboxToMember {
                    reader,
                    sent: VecDeque::new(),
                    read: None,
                    is_searched: false,
                };
                connection.outboxes.insert(owner.clone(), outbox);
            }
            Err(error) => {
                tracing::error!("the outbox to {owner} on {host} cannot be read: {error}")
            }
        }
    }

    /// Sends what is new in the outbox to a member of a host, as long as there is room.
    pub(crate) fn pump(&mut self, host: &Name, owner: &Name) {
        let dir = Arc::clone(&self.dir);
        let Some(link) = self.links.get_mut(host) else {
            return;
        };
        let Some(connection) = &mut link.connection else {
            return;
        };
        let Some(outbox) = connection.outboxes.get_mut(owner) else {
            return;
        };
        outbox.reader.has_more = true;
        loop {
            if connection.frames.capacity() < QUEUE / 2 {
                link.wants_room.store(true, Ordering::Relaxed);
                return;
            }
            let line = match outbox.reader.next(&dir, clock::wall()) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    outbox.reader.has_more = false;
                    tracing::error!("the outbox to {owner} on {host} cannot be read: {error}");
                    return;
                }
            };
            let OutboxLine { mail, end } = line;
            outbox.sent.push_back((mail.line, end));
            if connection.frames.try_send(ToHost::Mail(mail)).is_err() {
                tracing::warn!("{host} does not read what it is told");
                connection.cut.notify_one();
                return;
            }
        }
        // All lines are on their way: the answer comes behind them.
        if self.deliveries.take_unasked(owner) {
            let owner = owner.clone();
            self.say(host, ToHost::SayTaken { owner });
        }
    }

    /// Sends what is new in all outboxes to the members of a host.
    pub(crate) fn pump_all(&mut self, host: &Name) {
        let owners: Vec<Name> = self
            .connection(host)
            .map(|connection| connection.outboxes.keys().cloned().collect())
            .unwrap_or_default();
        for owner in owners {
            self.pump(host, &owner);
        }
    }

    /// Returns the end of the line of home's inbox that a worker on a host has read last, in bytes.
    pub(crate) fn end_of_read(&mut self, host: &Name, owner: &Name, line: LinePlace) -> u64 {
        let dir = Arc::clone(&self.dir);
        let outbox = self
            .connection_mut(host)
            .and_then(|connection| connection.outboxes.get_mut(owner));
        let Some(outbox) = outbox else {
            return end_of_line(&dir, owner, line);
        };
        if let Some((read, end)) = outbox.read
            && read == line
        {
            return end;
        }
        let known = outbox.sent.iter().position(|(sent, _)| *sent == line);
        let end = match known {
            Some(index) => {
                let passed = outbox.sent.drain(..=index).next_back();
                passed.map_or(0, |(_, end)| end)
            }
            None if outbox.is_searched => outbox.read.map_or(0, |(_, end)| end),
            None => {
                outbox.is_searched = true;
                end_of_line(&dir, owner, line)
            }
        };
        outbox.read = Some((line, end));
        end
    }

    fn connection(&self, host: &Name) -> Option<&LinkConnection> {
        self.links.get(host)?.connection.as_ref()
    }

    fn connection_mut(&mut self, host: &Name) -> Option<&mut LinkConnection> {
        self.links.get_mut(host)?.connection.as_mut()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for link in self.links.values() {
            link.task.abort();
        }
    }
}

/// Returns how frames name an incarnation.
pub(crate) fn whose(incarnation: &Incarnation) -> Whose {
    Whose {
        name: incarnation.name.clone(),
        incarnation: incarnation.number,
    }
}

fn end_of_line(dir: &TeamDir, owner: &Name, line: LinePlace) -> u64 {
    let position = position_after(dir, owner, line).ok().flatten();
    position.map_or(0, |position| position.offset)
}

fn line_of(dir: &TeamDir, owner: &Name, offset: u64) -> Result<Option<LinePlace>, String> {
    if offset == 0 {
        return Ok(None);
    }
    match line_before(dir, owner, offset) {
        Err(ReadError::NoInbox(_)) => Ok(None),
        other => other.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests;
