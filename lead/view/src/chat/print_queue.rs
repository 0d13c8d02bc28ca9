//! What the commands of a chat print, on its way to the log.

use std::io::{self, Write};

use teamd_client::print::output::Output;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Where the commands of a chat print, also those that still run when the person turns to another
/// agent.
pub(super) struct PrintQueue {
    sender: UnboundedSender<String>,
    texts: UnboundedReceiver<String>,
}

impl PrintQueue {
    pub(super) fn new() -> Self {
        let (sender, texts) = unbounded_channel();
        Self { sender, texts }
    }

    /// Returns what makes an output that prints here, perhaps in another thread.
    pub(super) fn output(&self) -> impl FnOnce(usize) -> Output + Send + 'static {
        let sender = self.sender.clone();
        |columns| {
            let sink = Sink {
                sender,
                kept: Vec::new(),
            };
            Output::stored_in(columns, Box::new(sink.clone()), Box::new(sink))
        }
    }

    /// Waits for the next text. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> String {
        // This holds a sender itself, so there is no end.
        self.texts.recv().await.unwrap_or_default()
    }

    /// Returns the next text that is there.
    pub(super) fn take(&mut self) -> Option<String> {
        self.texts.try_recv().ok()
    }
}

/// Texts on their way to the log.
#[derive(Clone)]
struct Sink {
    sender: UnboundedSender<String>,
    kept: Vec<u8>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        let text = String::from_utf8_lossy(&kept).into_owned();
        // The chat may have ended.
        self.sender.send(text).ok();
        Ok(())
    }
}
