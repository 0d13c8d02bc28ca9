//! A simulated inbox, as bytes: several writers, foreign programs and a reader, each of which may
//! die between any two steps or in the middle of any line. Writing, looking back and reading are
//! the real code, on a real file; what is simulated is who does what when. All follows from a seed.
//!
//! `TEAM_SIM_SEED=n` replays one schedule; `TEAM_SIM_FROM=n` and `TEAM_SIM_SCHEDULES=n` run others.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// How many schedules a test run takes. The same ones every time, so that it never fails by chance.
const SCHEDULES: u64 = 500;
/// The steps of a schedule, before all that was begun is ended.
const STEPS: usize = 60;
/// How many schedules may pass before a mutant is missed.
const MUTATED: u64 = 300;
/// Those who append as the rules say.
const WRITERS: usize = 3;

/// A rule that is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Rule 2: the writer looks back.
    NoLookBack,
    /// Rule 2: a short write is never continued.
    ShortWritesGoOn,
    /// Rule 3: the position travels with the effect.
    PositionLags,
    /// Section 5: an id drops a line that its sender wrote twice.
    NoMemory,
    /// Section 5: whole lines only.
    HalfLinesAreRead,
}

/// Numbers that follow from a seed (splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A message on its way.
struct Sending {
    text: String,
    line: Vec<u8>,
    /// What is written next.
    bytes: Vec<u8>,
}

struct Writer {
    appender: Appender,
    sending: Option<Sending>,
    /// What a death or a short write broke off: some write it again, under the same id.
    broken_off: Option<(String, Vec<u8>)>,
}

/// What the reader has recorded, each time in one step.
#[derive(Default)]
struct Taken {
    texts: Vec<String>,
    ids: Vec<Uuid>,
    position: Position,
}

struct World<'d> {
    dir: &'d Arc<TeamDir>,
    rng: Rng,
    mutant: Option<Mutant>,
    writers: Vec<Writer>,
    reader: Option<Reader>,
    taken: Taken,
    /// What was sent, in order, and whether it must be read.
    sent: Vec<(String, bool)>,
    written: BTreeMap<String, usize>,
    emptied: bool,
    numbers: u128,
}

impl<'d> World<'d> {
    fn new(dir: &'d Arc<TeamDir>, seed: u64, mutant: Option<Mutant>) -> Self {
        overwrite(inbox_path(dir), b"");
        Self {
            dir,
            rng: Rng(seed),
            mutant,
            writers: (0..WRITERS)
                .map(|_| Writer {
                    appender: Appender::new(&alice()),
                    sending: None,
                    broken_off: None,
                })
                .collect(),
            reader: None,
            taken: Taken::default(),
            sent: Vec::new(),
            written: BTreeMap::new(),
            emptied: false,
            numbers: 0,
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(40) {
            0..=17 => {
                let writer = self.rng.below(WRITERS);
                self.writes(writer)
            }
            18..=20 => {
                let writer = self.rng.below(WRITERS);
                self.breaks_off(writer);
                Ok(())
            }
            21..=31 => self.reads(),
            32 => {
                // It is killed; what it has recorded holds.
                self.reader = None;
                Ok(())
            }
            33..=36 => {
                self.echoes();
                Ok(())
            }
            37 => {
                let torn: &[u8] = [&b"{\"type\":\"mess"[..], b" ", b"\n", b"{}"][self.rng.below(4)];
                raw(self.dir, torn);
                Ok(())
            }
            38 if self.rng.one_in(6) => {
                self.empties();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A writer begins with a message, or goes on with it: one write, and the look back.
    fn writes(&mut self, number: usize) -> Result<(), String> {
        if self.writers[number].sending.is_none() {
            let (text, line) = match self.writers[number].broken_off.take() {
                Some(again) if !self.rng.one_in(3) => again,
                _ => self.new_message(number),
            };
            self.writers[number].sending = Some(Sending {
                text,
                bytes: line.clone(),
                line,
            });
        }
        let Writer {
            appender, sending, ..
        } = &mut self.writers[number];
        let Some(mut now) = sending.take() else {
            return Ok(());
        };
        let placed = appender
            .attempt(self.dir, &now.bytes, now.line.len())
            .map_err(|e| e.to_string())?;
        let Some(offset) = placed.or(self.is(Mutant::NoLookBack).then_some(0)) else {
            now.bytes = [b"\n", &now.line[..]].concat();
            self.writers[number].sending = Some(now);
            return Ok(());
        };
        if placed.is_some() {
            let there = read_line_at(self.dir, &alice(), offset, now.line.len() as u64);
            if there.map_err(|e| e.to_string())? != now.line[..now.line.len() - 1] {
                return Err(format!("{} does not stand where it was said to", now.text));
            }
        }
        self.acknowledged(&now.text);
        Ok(())
    }

    fn acknowledged(&mut self, text: &str) {
        let sent = self.sent.iter_mut().find(|(sent, _)| sent == text);
        if let Some((_, must)) = sent {
            *must = true;
        }
    }

    fn new_message(&mut self, number: usize) -> (String, Vec<u8>) {
        self.numbers += 1;
        let text = format!("{number} {}", self.numbers);
        let message = Message::new(
            Uuid::from_u128(self.numbers),
            &number.to_string(),
            "alice",
            1.5,
            Body::Message,
        );
        self.written.insert(text.clone(), self.sent.len());
        self.sent.push((text.clone(), false));
        (text.clone(), message.with_content(text).to_line().unwrap())
    }

    /// A writer is killed in its write, or behind it, or the disk is full: some of the line is
    /// there.
    fn breaks_off(&mut self, number: usize) {
        let again = self.writers[number].broken_off.take();
        let (text, line, bytes) = match self.writers[number].sending.take() {
            Some(Sending { text, line, bytes }) => (text, line, bytes),
            None => {
                let (text, line) = again.unwrap_or_else(|| self.new_message(number));
                (text, line.clone(), line)
            }
        };
        let part = match self.rng.below(4) {
            0 => bytes.len(),
            1 => bytes.len() - 1,
            _ => self.rng.below(bytes.len()),
        };
        raw(self.dir, &bytes[..part]);
        if self.is(Mutant::ShortWritesGoOn) {
            if self.rng.one_in(2) {
                raw(self.dir, &line[line.len() - 1..]);
            }
            raw(self.dir, &bytes[part..]);
            return self.acknowledged(&text);
        }
        self.writers[number] = Writer {
            appender: Appender::new(&alice()),
            sending: None,
            broken_off: Some((text, line)),
        };
    }

    /// A foreign program appends a line, without an id and without a look back.
    fn echoes(&mut self) {
        let well = std::fs::read(inbox_path(self.dir))
            .unwrap()
            .last()
            .is_none_or(|&byte| byte == b'\n');
        self.numbers += 1;
        let text = format!("echo {}", self.numbers);
        raw(self.dir, &line(&text));
        self.written.insert(text.clone(), self.sent.len());
        self.sent.push((text, well));
    }

    /// A foreign program empties the inbox: what no reader had read is lost.
    fn empties(&mut self) {
        for (_, must) in &mut self.sent {
            *must = false;
        }
        self.emptied = true;
        if self.rng.one_in(2) {
            overwrite(inbox_path(self.dir), b"");
        } else {
            overwrite(inbox_path(self.dir).with_extension("new"), b"");
            std::fs::rename(
                inbox_path(self.dir).with_extension("new"),
                inbox_path(self.dir),
            )
            .unwrap();
        }
    }

    fn reads(&mut self) -> Result<(), String> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let mut reader = reader(self.dir, self.taken.position);
                let ids = self
                    .taken
                    .ids
                    .iter()
                    .filter(|_| self.mutant != Some(Mutant::NoMemory));
                for &id in ids {
                    reader.seen(id);
                }
                if self.is(Mutant::NoMemory) {
                    reader.without_memory()
                } else {
                    reader
                }
            }
        };
        let batch = reader.read_new().map_err(|e| e.to_string())?;
        if batch.restarted.is_some() {
            if !self.emptied {
                return Err("it begins again although no program has changed the inbox".to_owned());
            }
            self.taken.position = Position::START;
        }
        let dies = self.rng.one_in(6);
        let lines = batch.lines.len();
        let takes = if dies {
            self.rng.below(lines + 1)
        } else {
            lines
        };
        for line in batch.lines.into_iter().take(takes) {
            if let Ok(message) = line.message {
                self.taken.texts.push(message.content);
                self.taken.ids.extend(message.id);
            }
            // The effect and the position are one record: who dies has both, or neither.
            if !(self.is(Mutant::PositionLags) && dies) {
                self.taken.position = line.position;
            }
        }
        if self.is(Mutant::HalfLinesAreRead) {
            self.reads_half_a_line();
        }
        if !dies {
            self.taken.position = batch.position;
            self.reader = Some(reader);
        }
        Ok(())
    }

    /// Of a mutant: what stands behind the last newline is read, too.
    fn reads_half_a_line(&mut self) {
        let bytes = std::fs::read(inbox_path(self.dir)).unwrap();
        let half = bytes
            .rsplit(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default();
        if let Ok(message) = Message::parse(half) {
            self.taken.texts.push(message.content);
        }
    }

    /// All that was begun is ended, and read.
    fn ends(mut self) -> Result<(), String> {
        for _ in 0..4 {
            for number in 0..WRITERS {
                if self.writers[number].sending.is_some() {
                    self.writes(number)?;
                }
            }
        }
        let mut before = usize::MAX;
        let mut rounds = 0;
        while before != self.taken.texts.len() || rounds < 12 {
            before = self.taken.texts.len();
            rounds += 1;
            self.reads()?;
        }
        for (text, must) in &self.sent {
            let times = self
                .taken
                .texts
                .iter()
                .filter(|taken| *taken == text)
                .count();
            if times > 1 {
                return Err(format!("{text:?} is read {times} times"));
            }
            if *must && times == 0 {
                return Err(format!("{text:?} is lost"));
            }
        }
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &self.taken.texts {
            let (from, _) = text.split_once(' ').unwrap();
            let number = self.written[text];
            if last
                .insert(from, number)
                .is_some_and(|before| before > number)
            {
                return Err(format!("{text:?} is out of order"));
            }
        }
        Ok(())
    }
}

fn place() -> (tempfile::TempDir, Arc<TeamDir>) {
    // In memory, where there is a place for it: nothing here is to outlive the test.
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    create(&dir, &alice()).unwrap();
    (scratch, dir)
}

fn run(dir: &Arc<TeamDir>, seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut world = World::new(dir, seed, mutant);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.ends()
}

fn keep_their_promises(seeds: impl Iterator<Item = u64>) {
    let (_scratch, dir) = place();
    for seed in seeds {
        if let Err(what) = run(&dir, seed, None) {
            let inbox = std::fs::read(inbox_path(&dir)).unwrap();
            panic!(
                "{}\nbroken: {what}\nreplay: TEAM_SIM_SEED={seed} cargo test -p teamd-shared simulation",
                String::from_utf8_lossy(&inbox)
            );
        }
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn every_promise_of_an_inbox_holds_in_every_schedule() {
    if let Some(seed) = from_env("TEAM_SIM_SEED") {
        return keep_their_promises(seed..=seed);
    }
    let from = from_env("TEAM_SIM_FROM").unwrap_or(0);
    keep_their_promises(from..from + from_env("TEAM_SIM_SCHEDULES").unwrap_or(SCHEDULES));
}

/// The real rules keep their promises in all of these schedules; the mutant breaks one.
fn is_missed(mutant: Mutant) {
    let (_scratch, dir) = place();
    let broken =
        (0..MUTATED).find_map(|seed| run(&dir, seed, Some(mutant)).err().map(|what| (seed, what)));
    match broken {
        Some((seed, what)) => println!("{mutant:?}: seed {seed}: {what}"),
        None => panic!("{mutant:?} breaks no promise in {MUTATED} schedules"),
    }
}

macro_rules! missed {
    ($($name:ident: $mutant:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            is_missed(Mutant::$mutant);
        }
    )* };
}

missed! {
    the_look_back_is_missed: NoLookBack,
    the_end_of_a_short_write_is_missed: ShortWritesGoOn,
    the_position_with_the_effect_is_missed: PositionLags,
    the_memory_of_ids_is_missed: NoMemory,
    the_wait_for_the_newline_is_missed: HalfLinesAreRead,
}
