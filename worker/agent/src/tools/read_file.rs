//! `read_file`: lines of a text file in the workspace, or an image.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use teamd_shared::image::{Image, ImageType, MAX_IMAGE, placeholder};
use teamd_worker_core::tools::{Outcome, ReadFile};

use super::workspace::{Workspace, not_text};
use teamd_worker_sandbox::run::KEPT;

/// How many lines are read unless a call says otherwise.
const DEFAULT_LINES: u64 = 2000;

/// How much of a line is read, in bytes: more than [`KEPT`] characters, which have at most four
/// bytes each.
const MAX_LINE: u64 = 4 * KEPT as u64 + 1;

/// How much is skipped before the first line, in bytes. A sparse file can be larger than any disk,
/// and the worker serves no event meanwhile.
const MAX_SKIPPED: u64 = 64 << 20;

/// The largest image that a model is shown, in bytes, and in pixels each way: with those in base64,
/// the limits of the services.
const MOST_BYTES: usize = MAX_IMAGE / 4 * 3;
const MOST_PIXELS: usize = 8000;

/// How much of a file is read to decide whether it is text, in bytes.
const PROBE: usize = 8 << 10;

impl Workspace {
    /// Reads lines of a text file, at most 50,000 characters, or an image.
    pub(super) fn read(&self, file: &ReadFile) -> Outcome {
        self.try_read(file).unwrap_or_else(Outcome::error)
    }

    fn try_read(&self, call: &ReadFile) -> Result<Outcome, String> {
        let path = &call.path;
        let (file, stat) = self.open_file(path)?;
        let mut reader = BufReader::with_capacity(PROBE, file);
        let begin = reader
            .fill_buf()
            .map_err(|error| format!("cannot read {path}: {error}"))?;
        if let Some(kind) = ImageType::of_bytes(begin) {
            return read_image(path, kind, reader);
        }
        if begin.contains(&0) {
            return Err(not_text(path, &stat));
        }
        read_lines(call, reader).map(Outcome::ok)
    }
}

/// Reads an image; the result has a text in its place, for a model that takes none.
fn read_image(path: &str, kind: ImageType, reader: impl Read) -> Result<Outcome, String> {
    let mut bytes = Vec::new();
    reader
        .take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    if bytes.len() > MOST_BYTES {
        return Err(format!(
            "{path} is an image of more than {MOST_BYTES} bytes, which no model takes: make a smaller one with bash"
        ));
    }
    let size = imagesize::blob_size(&bytes)
        .map_err(|_| format!("{path} begins as an image, and is broken"))?;
    let (width, height) = (size.width, size.height);
    if width.max(height) > MOST_PIXELS {
        return Err(format!(
            "{path} is an image of {width}×{height} pixels; a model takes {MOST_PIXELS} each way: make a smaller one \
             with bash"
        ));
    }
    let mut outcome = Outcome::ok(placeholder(kind, bytes.len()));
    outcome.images.push(Image {
        media_type: kind,
        data: STANDARD.encode(&bytes),
    });
    Ok(outcome)
}

fn read_lines(
    ReadFile {
        path,
        limit,
        offset,
    }: &ReadFile,
    mut reader: BufReader<File>,
) -> Result<String, String> {
    let error = |error| format!("cannot read {path}: {error}");
    let first = offset.unwrap_or(1);
    let limit = limit.unwrap_or(DEFAULT_LINES);
    let mut left = MAX_SKIPPED;
    for line in 1..first {
        let skipped = reader
            .by_ref()
            .take(left)
            .skip_until(b'\n')
            .map_err(error)?;
        left = left.saturating_sub(skipped as u64);
        if left == 0 {
            return Err(format!(
                "offset {first} lies more than {MAX_SKIPPED} bytes behind the beginning of {path}: look there with bash \
                     (`sed -n {first},{}p`)",
                first.saturating_add(limit)
            ));
        }
        if skipped == 0 {
            return Err(format!(
                "{path} has {} lines: offset {first} is behind its end",
                line - 1
            ));
        }
    }
    let text = page(&mut reader, first, limit).map_err(error)?;
    if !text.is_empty() {
        return Ok(text);
    }
    let nothing = if first == 1 {
        "the file is empty"
    } else {
        "the file ends here"
    };
    Ok(format!("[{nothing}]"))
}

/// Reads some lines. Unless the file ends there, a note at the end tells where to continue.
fn page(reader: &mut impl BufRead, first: u64, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let mut chars = 0;
    for number in first..first.saturating_add(limit) {
        let mut line = Vec::new();
        if reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(text);
        }
        let line = String::from_utf8_lossy(&line);
        let length = line.chars().count();
        if chars + length > KEPT {
            let why = format!("{KEPT} characters are the limit");
            return Ok(if chars > 0 {
                format!("{text}[{why}: read on with offset {number}]")
            } else {
                let line: String = line.chars().take(KEPT).collect();
                format!(
                    "{line}\n[{why}, and line {number} alone is longer: look at its end with bash]"
                )
            });
        }
        text.push_str(&line);
        chars += length;
    }
    if !reader.fill_buf()?.is_empty() {
        text.push_str(&format!(
            "[the file continues: read on with offset {}]",
            first.saturating_add(limit)
        ));
    }
    Ok(text)
}
