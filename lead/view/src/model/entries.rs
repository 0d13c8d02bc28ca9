//! The transcript of one agent and the text of its answer in progress, read as they grow.

use std::io::Read;

use rustix::fs::OFlags;
use teamd_client::read::tail::{Mark, Tail};
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::transcript::Entry;

/// A reader of both files.
pub(crate) struct EntryReader<'d> {
    dir: &'d TeamDir,
    name: Name,
    tail: Tail<'d>,
}

/// What is new in a conversation.
#[derive(Debug)]
pub(crate) struct NewEntries {
    /// The text of the answer in progress, as far as its characters are complete.
    pub live: String,
    /// The new entries, read after that text: they have each answer whose text made room for the
    /// next one. An entry of a newer program is not among them.
    pub entries: Vec<Entry>,
    /// Where each of them begins.
    pub places: Vec<Mark>,
    /// The new entries as they are in the file.
    pub lines: Vec<Vec<u8>>,
}

impl<'d> EntryReader<'d> {
    /// Begins at the last `last` entries of an agent's conversation.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn begin(dir: &'d TeamDir, name: &Name, last: usize) -> Result<Self, DirError> {
        let mut tail = Tail::new(dir, TeamPath::transcript(name));
        tail.begin(Some(last), is_entry)?;
        Ok(Self {
            dir,
            name: name.clone(),
            tail,
        })
    }

    /// Returns how many bytes stand before the next entry.
    pub(crate) fn offset(&self) -> u64 {
        self.tail.mark().map_or(0, Mark::offset)
    }

    /// Reads the last `count` entries that stand before a place.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn before(&self, offset: u64, count: usize) -> Result<NewEntries, DirError> {
        Ok(NewEntries::of(
            String::new(),
            self.tail.read_before(offset, count, is_entry)?,
        ))
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn read(&mut self) -> Result<NewEntries, DirError> {
        let live = self.live()?;
        Ok(NewEntries::of(live, self.tail.read_placed()?))
    }

    /// Returns the entry that begins at a place of a file; none if there is none, or if that is not
    /// the file any more.
    pub(crate) fn entry_at(&self, file: u64, offset: u64) -> Option<Entry> {
        let line = self.tail.line_at(file, offset).ok()??;
        json::read(&line).ok()
    }

    fn live(&self) -> Result<String, DirError> {
        let at = TeamPath::live(&self.name);
        let mut file = match self.dir.open_file(&at, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => return Ok(String::new()),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(self.dir.cannot("read", &at))?;
        // The last character may not be complete yet.
        let complete =
            std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        Ok(String::from_utf8_lossy(&bytes[..complete]).into_owned())
    }
}

impl NewEntries {
    fn of(live: String, read: Vec<(Mark, Vec<u8>)>) -> Self {
        let (places, entries) = read
            .iter()
            .filter_map(|(at, line)| Some((*at, json::read(line).ok()?)))
            .unzip();
        Self {
            live,
            entries,
            places,
            lines: read.into_iter().map(|(_, line)| line).collect(),
        }
    }
}

fn is_entry(line: &[u8]) -> bool {
    !line.trim_ascii().is_empty()
}
