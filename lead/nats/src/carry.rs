//! Carries one stream of bytes in both directions, at either end of it.
//!
//! The other side says how many packets it has taken, so at most [`WINDOW`] of them are on the way:
//! neither a server nor a process keeps more of a stream than that.

use std::time::Duration;

use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::end::NatsError;
use crate::packet::{MAX_DATA, Numbers, Packet};

/// How many packets of data may be on the way in one direction: on a slow line the link waits for those
/// of a file.
pub(crate) const WINDOW: u32 = 16;
/// How many messages of a stream may wait here: those of a full window, and what is said of another.
pub(crate) const WAITING: usize = 2 * WINDOW as usize + 16;
/// How many streams a host may have: its link, and the files that cross now.
pub(crate) const MAX_STREAMS: usize = 32;
/// How long a side that has nothing to say is silent.
const BEAT: Duration = Duration::from_secs(5);
/// From then on a side that says nothing counts as gone.
const GONE: Duration = Duration::from_secs(30);

/// What a side sends on a stream.
#[derive(Debug)]
pub(crate) struct PacketSender {
    client: Client,
    to: Subject,
    /// Where the server reports that no program listens there any more.
    reply: Subject,
    numbers: Numbers,
    last: Instant,
}

impl PacketSender {
    pub(crate) fn new(client: Client, to: Subject, reply: Subject) -> Self {
        Self {
            client,
            to,
            reply,
            numbers: Numbers::default(),
            last: Instant::now(),
        }
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) async fn send(&mut self, packet: &Packet) -> Result<(), NatsError> {
        let message = self.next(packet);
        let (to, reply) = (self.to.clone(), self.reply.clone());
        let published = self.client.publish_with_reply(to, reply, message).await;
        published.map_err(|error| NatsError::passing(error.to_string()))
    }

    /// Sends what follows elsewhere.
    pub(crate) fn redirect(&mut self, to: Subject) {
        self.to = to;
    }

    fn next(&mut self, packet: &Packet) -> Bytes {
        self.last = Instant::now();
        packet.encode(self.numbers.take())
    }
}

/// What a side receives on a stream.
#[derive(Debug)]
pub(crate) struct PacketReceiver {
    messages: mpsc::Receiver<Bytes>,
    numbers: Numbers,
    last: Instant,
}

impl PacketReceiver {
    pub(crate) fn new(messages: mpsc::Receiver<Bytes>) -> Self {
        Self {
            messages,
            numbers: Numbers::default(),
            last: Instant::now(),
        }
    }

    /// Receives what follows the first message, which was received elsewhere.
    pub(crate) fn behind_the_first(messages: mpsc::Receiver<Bytes>) -> Self {
        let mut receiver = Self::new(messages);
        receiver.numbers.take();
        receiver
    }

    /// Waits for the next packet. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// Why the stream has ended.
    pub(crate) async fn receive(&mut self) -> Result<Packet, NatsError> {
        let gone = sleep_until(self.last + GONE);
        let message = tokio::select! {
            message = self.messages.recv() => message,
            () = gone => return Err(NatsError::passing("the other side says nothing any more")),
        };
        let Some(message) = message else {
            return Err(NatsError::passing("the stream was given up"));
        };
        let Some((number, packet)) = Packet::decode(&message) else {
            return Err(NatsError::passing("a message is of no stream"));
        };
        // It ends the stream in any case, and can come of a program that knows no numbers of it.
        if let Packet::Failed(_) = packet {
            return Ok(packet);
        }
        self.numbers
            .expect(number)
            .map_err(|why| NatsError::passing(format!("the stream broke: {why}")))?;
        self.last = Instant::now();
        Ok(packet)
    }
}

/// How a stream was ended: well, or why not.
pub(crate) type StreamEnd = Result<(), String>;

/// A stream, between the messages and two descriptors.
#[derive(Debug)]
pub(crate) struct NatsStream<R> {
    sender: PacketSender,
    receiver: PacketReceiver,
    input: R,
    /// Whether the end of the input was not read yet.
    reads: bool,
    /// How many packets of data may be sent.
    credit: u32,
    output: Output,
    /// How many packets were taken that the other side does not know of.
    owed: u32,
}

impl<R: AsyncRead + Unpin> NatsStream<R> {
    /// Begins to carry what both sides have agreed on.
    pub(crate) fn new(
        sender: PacketSender,
        receiver: PacketReceiver,
        input: R,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        Self {
            sender,
            receiver,
            input,
            reads: true,
            credit: WINDOW,
            output: Output::new(output),
            owed: 0,
        }
    }

    /// Carries bytes until the other side ends the stream, and all that it has said is written; or
    /// until `own_end`, behind the end of the input, says how this side ends it.
    ///
    /// # Errors
    /// Why the stream broke.
    pub(crate) async fn carry(
        mut self,
        own_end: impl Future<Output = StreamEnd>,
    ) -> Result<StreamEnd, NatsError> {
        let ended = self.exchange(own_end).await;
        match &ended {
            // All that the other side has sent is written first.
            Ok(_) => self.output.finish().await,
            Err(error) => {
                // If that cannot be sent, the other side finds out by itself.
                let last = Packet::Failed(error.to_string());
                self.sender.send(&last).await.ok();
            }
        }
        ended
    }

    async fn exchange(
        &mut self,
        own_end: impl Future<Output = StreamEnd>,
    ) -> Result<StreamEnd, NatsError> {
        let mut own_end = std::pin::pin!(own_end);
        let mut block = vec![0; MAX_DATA];
        loop {
            let beat = sleep_until(self.sender.last + BEAT);
            tokio::select! {
                packet = self.receiver.receive() => {
                    if let Some(end) = self.take(packet?)? {
                        return Ok(end);
                    }
                }
                Some(()) = self.output.taken.recv() => self.tell_taken().await?,
                read = self.input.read(&mut block), if self.reads && self.credit > 0 => {
                    // A descriptor that fails has no more to say.
                    let length = read.unwrap_or(0);
                    self.send_read(&block[..length]).await?;
                }
                end = &mut own_end, if !self.reads => {
                    let last = match &end {
                        Ok(()) => Packet::Done,
                        Err(why) => Packet::Failed(why.clone()),
                    };
                    self.sender.send(&last).await?;
                    return Ok(end);
                }
                () = beat => self.sender.send(&Packet::Beat).await?,
            }
        }
    }

    /// Takes what the other side says. Returns how it ends the stream, if it does.
    fn take(&mut self, packet: Packet) -> Result<Option<StreamEnd>, NatsError> {
        match packet {
            Packet::Data(bytes) => self.output.write(bytes)?,
            // Of more than were sent none is taken.
            Packet::Taken(packets) => self.credit = self.credit.saturating_add(packets).min(WINDOW),
            Packet::Eof => self.output.close(),
            Packet::Done => return Ok(Some(Ok(()))),
            Packet::Failed(why) => return Ok(Some(Err(why))),
            Packet::Beat => {}
            Packet::Open(_) | Packet::Opened(_) => {
                return Err(NatsError::passing("another program answers on this stream"));
            }
        }
        Ok(None)
    }

    /// Sends what was read: nothing at the end.
    async fn send_read(&mut self, bytes: &[u8]) -> Result<(), NatsError> {
        if bytes.is_empty() {
            self.reads = false;
            return self.sender.send(&Packet::Eof).await;
        }
        self.credit -= 1;
        let packet = Packet::Data(Bytes::copy_from_slice(bytes));
        self.sender.send(&packet).await
    }

    /// Tells how many packets were taken, now and then: the other side has the rest of its window.
    async fn tell_taken(&mut self) -> Result<(), NatsError> {
        self.owed += 1;
        if self.owed < WINDOW / 4 {
            return Ok(());
        }
        let taken = Packet::Taken(self.owed);
        self.owed = 0;
        self.sender.send(&taken).await
    }
}

/// Writes what is heard: a writer that waits holds up nothing that is read.
#[derive(Debug)]
struct Output {
    /// None at the end.
    packets: Option<mpsc::Sender<Bytes>>,
    /// Each packet that was taken.
    taken: mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

impl Output {
    fn new(writer: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let (packets, waiting) = mpsc::channel(WINDOW as usize);
        let (takes, taken) = mpsc::channel(WINDOW as usize);
        Self {
            packets: Some(packets),
            taken,
            task: tokio::spawn(write(writer, waiting, takes)),
        }
    }

    fn write(&self, bytes: Bytes) -> Result<(), NatsError> {
        let Some(packets) = &self.packets else {
            return Err(NatsError::passing("the other side goes on behind its end"));
        };
        packets
            .try_send(bytes)
            .map_err(|_| NatsError::passing("the other side sends more than it may"))
    }

    fn close(&mut self) {
        self.packets = None;
    }

    /// Waits until all is written, or what reads it has stopped.
    async fn finish(mut self) {
        self.close();
        let writes = async {
            // It ends when all is written: then no more is taken.
            while self.taken.recv().await.is_some() {}
        };
        if timeout(GONE, writes).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut packets: mpsc::Receiver<Bytes>,
    takes: mpsc::Sender<()>,
) {
    let mut is_read = true;
    while let Some(packet) = packets.recv().await {
        // What reads no more may still say why: the rest is dropped.
        is_read = is_read && writer.write_all(&packet).await.is_ok();
        if takes.send(()).await.is_err() {
            return;
        }
    }
}
