//! Carries one stream of bytes in both directions, at either end of it.
//!
//! The other side says how many pieces it has taken, so at most [`WINDOW`] of them are on the way:
//! neither a server nor a process keeps more of a stream than that.

use std::time::Duration;

use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::end::NatsError;
use crate::piece::{Numbers, PIECE, Piece};

/// How many pieces of data may be on the way in one direction: on a slow line the link waits for those
/// of a file.
pub(crate) const WINDOW: u32 = 16;
/// How many messages of a stream may wait here: those of a full window, and what is said of another.
pub(crate) const WAITING: usize = 2 * WINDOW as usize + 16;
/// How long a side that has nothing to say is silent.
const BEAT: Duration = Duration::from_secs(10);
/// From then on a side that says nothing counts as gone.
const GONE: Duration = Duration::from_secs(30);

/// What a side sends on a stream.
#[derive(Debug)]
pub(crate) struct Outgoing {
    client: Client,
    to: Subject,
    numbers: Numbers,
    last: Instant,
}

impl Outgoing {
    pub(crate) fn new(client: Client, to: Subject) -> Self {
        Self {
            client,
            to,
            numbers: Numbers::default(),
            last: Instant::now(),
        }
    }

    /// Sends a piece.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) async fn send(&mut self, piece: &Piece) -> Result<(), NatsError> {
        let message = self.next(piece);
        let published = self.client.publish(self.to.clone(), message).await;
        published.map_err(|error| NatsError::passing(error.to_string()))
    }

    /// Sends what follows elsewhere.
    pub(crate) fn redirect(&mut self, to: Subject) {
        self.to = to;
    }

    /// Sends the first piece. Where no program listens the server reports that to `reply`.
    pub(crate) async fn send_first(
        &mut self,
        reply: Subject,
        piece: &Piece,
    ) -> Result<(), NatsError> {
        let message = self.next(piece);
        let to = self.to.clone();
        let published = self.client.publish_with_reply(to, reply, message).await;
        published.map_err(|error| NatsError::passing(error.to_string()))
    }

    fn next(&mut self, piece: &Piece) -> Bytes {
        self.last = Instant::now();
        piece.encode(self.numbers.take())
    }
}

/// What a side receives on a stream.
#[derive(Debug)]
pub(crate) struct Incoming {
    messages: mpsc::Receiver<Bytes>,
    numbers: Numbers,
    last: Instant,
}

impl Incoming {
    pub(crate) fn new(messages: mpsc::Receiver<Bytes>) -> Self {
        Self {
            messages,
            numbers: Numbers::default(),
            last: Instant::now(),
        }
    }

    /// Receives what follows the first message, which was received elsewhere.
    pub(crate) fn behind_the_first(messages: mpsc::Receiver<Bytes>) -> Self {
        let mut incoming = Self::new(messages);
        incoming.numbers.take();
        incoming
    }

    /// Waits for the next piece. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// Why the stream has ended.
    pub(crate) async fn receive(&mut self) -> Result<Piece, NatsError> {
        let gone = sleep_until(self.last + GONE);
        let message = tokio::select! {
            message = self.messages.recv() => message,
            () = gone => return Err(NatsError::passing("the other side says nothing any more")),
        };
        let Some(message) = message else {
            return Err(NatsError::passing("the connection to the server broke"));
        };
        let Some((number, piece)) = Piece::decode(&message) else {
            return Err(NatsError::passing("a message is of no stream"));
        };
        self.numbers
            .expect(number)
            .map_err(|why| NatsError::passing(format!("the stream broke: {why}")))?;
        self.last = Instant::now();
        Ok(piece)
    }
}

/// How a stream was ended: well, or why not.
pub(crate) type StreamEnd = Result<(), String>;

/// A stream, between the messages and two descriptors.
#[derive(Debug)]
pub(crate) struct Stream<R> {
    outgoing: Outgoing,
    incoming: Incoming,
    input: R,
    /// Whether the end of the input was not read yet.
    reads: bool,
    /// How many pieces of data may be sent.
    credit: u32,
    output: Output,
    /// How many pieces were taken that the other side does not know of.
    owed: u32,
}

impl<R: AsyncRead + Unpin> Stream<R> {
    /// Begins to carry what both sides have agreed on.
    pub(crate) fn new(
        outgoing: Outgoing,
        incoming: Incoming,
        input: R,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        Self {
            outgoing,
            incoming,
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
        let mut own_end = std::pin::pin!(own_end);
        let mut block = vec![0; PIECE];
        loop {
            let beat = sleep_until(self.outgoing.last + BEAT);
            tokio::select! {
                piece = self.incoming.receive() => {
                    if let Some(end) = self.take(piece?)? {
                        self.output.finish().await;
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
                        Ok(()) => Piece::Done,
                        Err(why) => Piece::Failed(why.clone()),
                    };
                    self.outgoing.send(&last).await?;
                    return Ok(end);
                }
                () = beat => self.outgoing.send(&Piece::Beat).await?,
            }
        }
    }

    /// Takes what the other side says. Returns how it ends the stream, if it does.
    fn take(&mut self, piece: Piece) -> Result<Option<StreamEnd>, NatsError> {
        match piece {
            Piece::Data(bytes) => self.output.write(bytes)?,
            // Of more than were sent none is taken.
            Piece::Taken(pieces) => self.credit = self.credit.saturating_add(pieces).min(WINDOW),
            Piece::Eof => self.output.close(),
            Piece::Done => return Ok(Some(Ok(()))),
            Piece::Failed(why) => return Ok(Some(Err(why))),
            Piece::Beat => {}
            Piece::Open(_) | Piece::Opened(_) => {
                return Err(NatsError::passing("another program answers on this stream"));
            }
        }
        Ok(None)
    }

    /// Sends what was read: nothing at the end.
    async fn send_read(&mut self, bytes: &[u8]) -> Result<(), NatsError> {
        if bytes.is_empty() {
            self.reads = false;
            return self.outgoing.send(&Piece::Eof).await;
        }
        self.credit -= 1;
        let piece = Piece::Data(Bytes::copy_from_slice(bytes));
        self.outgoing.send(&piece).await
    }

    /// Tells how many pieces were taken, now and then: the other side has the rest of its window.
    async fn tell_taken(&mut self) -> Result<(), NatsError> {
        self.owed += 1;
        if self.owed < WINDOW / 4 {
            return Ok(());
        }
        let taken = Piece::Taken(self.owed);
        self.owed = 0;
        self.outgoing.send(&taken).await
    }
}

/// Writes what is heard: a writer that waits holds up nothing that is read.
#[derive(Debug)]
struct Output {
    /// None at the end.
    pieces: Option<mpsc::Sender<Bytes>>,
    /// Each piece that was taken.
    taken: mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

impl Output {
    fn new(writer: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let (pieces, waiting) = mpsc::channel(WINDOW as usize);
        let (takes, taken) = mpsc::channel(WINDOW as usize);
        Self {
            pieces: Some(pieces),
            taken,
            task: tokio::spawn(write(writer, waiting, takes)),
        }
    }

    fn write(&self, bytes: Bytes) -> Result<(), NatsError> {
        let Some(pieces) = &self.pieces else {
            return Err(NatsError::passing("the other side goes on behind its end"));
        };
        pieces
            .try_send(bytes)
            .map_err(|_| NatsError::passing("the other side sends more than it may"))
    }

    fn close(&mut self) {
        self.pieces = None;
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
    mut pieces: mpsc::Receiver<Bytes>,
    takes: mpsc::Sender<()>,
) {
    let mut is_read = true;
    while let Some(piece) = pieces.recv().await {
        // What reads no more may still say why: the rest is dropped.
        is_read = is_read && writer.write_all(&piece).await.is_ok();
        if takes.send(()).await.is_err() {
            return;
        }
    }
}
