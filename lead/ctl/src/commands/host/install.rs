//! `teamctl host add --install`: puts the programs of this version on a host, over one `ssh`. They
//! are whole and checked before they count: their folder gets its name last.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::programs::NAMES;
use teamd_shared::fingerprint::sha256_of;
use teamd_shared::host::{Host, INSTALLED};

use super::{not_connected, place, ssh_to};

/// The exit codes of [`SCRIPT`].
const ANOTHER_MACHINE: i32 = 3;
const DAMAGED: i32 = 4;

/// What runs on the host, with the archive of the programs as its input. Where they are there
/// already, the archive is not read.
const SCRIPT: &str = r#"
found="$(uname -s) $(uname -m)"
if [ "$found" != "Linux MACHINE" ]; then echo "$found"; exit 3; fi
set -e
umask 022
dir="$HOME/FOLDER/VERSION-MACHINE"
sums() { printf "SUMS"; }
if [ -d "$dir" ] && cd "$dir" && sums | sha256sum -c >/dev/null 2>&1; then echo there; exit 0; fi
new="$dir.new.$$"
trap "rm -rf \"$new\"" EXIT
rm -rf "$new"
mkdir -p "$new"
cd "$new"
tar -xf -
if ! sums | sha256sum -c >/dev/null; then exit 4; fi
sync
cd /
if [ -d "$dir" ]; then mv "$dir" "$new.old"; fi
mv "$new" "$dir"
rm -rf "$new.old"
"#;

/// A program that is installed.
struct InstallFile {
    name: &'static str,
    path: PathBuf,
    size: u64,
    sha256: String,
}

/// Installs the programs of this version on a host: those beside this one, or of a directory.
///
/// # Errors
/// [`CommandError`] if the host is another machine, or something fails.
pub(super) fn install(
    context: &Context,
    host: &Host,
    programs: Option<&Path>,
) -> Result<(), CommandError> {
    let folder = match programs {
        Some(folder) => folder.to_owned(),
        None => own_folder()?,
    };
    let mut files = Vec::new();
    for name in NAMES {
        let path = folder.join(name);
        files.push(InstallFile::read(name, &path).map_err(|error| unreadable(&path, &error))?);
    }
    let machine = machine_of(&folder.join(NAMES[0]))?;
    let line = line_of(machine, &files);
    let place = place(host)?;
    let mut child = ssh_to(place, &line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CommandError::refused("cannot run ssh", &error))?;
    let written = child
        .stdin
        .take()
        .map(|stdin| write_archive(stdin, &files))
        .unwrap_or(Ok(()));
    let ended = child
        .wait_with_output()
        .map_err(|error| CommandError::refused("cannot run ssh", &error))?;
    let place = escape::line(place).into_owned();
    // What a login shell prints comes before.
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let said = escape::line(said.lines().last().unwrap_or_default()).into_owned();
    let version = env!("CARGO_PKG_VERSION");
    match ended.status.code() {
        Some(0) if said == "there" => {
            context
                .out
                .note(format_args!("teamd {version} is at {place} already"));
            Ok(())
        }
        Some(0) => {
            written.map_err(|error| CommandError::refused("cannot send the programs", &error))?;
            context.out.note(format_args!(
                "teamd {version} is installed at {place}, in ~/{INSTALLED}/{version}-{machine}"
            ));
            Ok(())
        }
        Some(ANOTHER_MACHINE) => {
            let message = format!("{place} is {said}, and these programs are for Linux {machine}");
            Err(CommandError::new(ExitCode::Failed, message)
                .hint("name a directory with programs for it: `--install --programs DIR`"))
        }
        Some(DAMAGED) => {
            let message = format!("the programs did not arrive whole at {place}");
            Err(CommandError::new(ExitCode::Failed, message).hint("try it again"))
        }
        Some(255) => Err(not_connected(&place)),
        _ => {
            let message = format!(
                "the programs could not be installed at {place} ({})",
                ended.status
            );
            Err(CommandError::new(ExitCode::Failed, message).hint(
                "it needs sh, tar and sha256sum, and room in the home; what it printed is above",
            ))
        }
    }
}

fn own_folder() -> Result<PathBuf, CommandError> {
    let own = std::env::current_exe()
        .map_err(|error| CommandError::refused("cannot find its own program", &error))?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

fn unreadable(path: &Path, error: &io::Error) -> CommandError {
    let message = format!("cannot read {}: {error}", path.display());
    CommandError::new(ExitCode::Failed, message)
        .hint("teamd, teamctl and team-worker must be in one directory")
}

impl InstallFile {
    fn read(name: &'static str, path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            name,
            path: path.to_owned(),
            size: file.metadata()?.len(),
            sha256: sha256_of(file)?,
        })
    }
}

/// Returns the machine of a program, as `uname -m` names it: byte 18 of its header (`elf(5)`).
fn machine_of(path: &Path) -> Result<&'static str, CommandError> {
    let mut header = [0; 20];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut header))
        .map_err(|error| unreadable(path, &error))?;
    let machine = match (&header[..4], header[18], header[19]) {
        (b"\x7fELF", 62, 0) => Some("x86_64"),
        (b"\x7fELF", 183, 0) => Some("aarch64"),
        (b"\x7fELF", 243, 0) => Some("riscv64"),
        _ => None,
    };
    machine.ok_or_else(|| {
        let message = format!("{} is no program for a known machine", path.display());
        CommandError::new(ExitCode::Failed, message)
            .hint("name a directory with teamd, teamctl and team-worker: `--programs DIR`")
    })
}

/// Returns the line for the login shell. It has no single quotes, which mean the same to every
/// shell.
fn line_of(machine: &str, files: &[InstallFile]) -> String {
    let sums = files
        .iter()
        .map(|file| format!("{}  {}\\n", file.sha256, file.name));
    let script = SCRIPT
        .replace("MACHINE", machine)
        .replace("FOLDER", INSTALLED)
        .replace("VERSION", env!("CARGO_PKG_VERSION"))
        .replace("SUMS", &sums.collect::<String>());
    // csh would take a newline in quotes for its end.
    let script: Vec<&str> = script.lines().filter(|line| !line.is_empty()).collect();
    format!("exec sh -c '{}'", script.join("; "))
}

/// Writes an archive (`tar(5)`, ustar). A host that has the programs does not read it.
fn write_archive(into: impl Write, files: &[InstallFile]) -> io::Result<()> {
    let mut into = BufWriter::with_capacity(256 << 10, into);
    let written = files
        .iter()
        .try_for_each(|file| write_entry(&mut into, file))
        .and_then(|()| into.write_all(&[0; 2 * BLOCK]))
        .and_then(|()| into.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The length of a block of an archive, in bytes.
const BLOCK: usize = 512;

fn write_entry(into: &mut impl Write, file: &InstallFile) -> io::Result<()> {
    into.write_all(&header_of(file.name, file.size))?;
    let content = File::open(&file.path)?.take(file.size);
    let copied = io::copy(&mut { content }, into)?;
    if copied < file.size {
        return Err(io::Error::other("a program has become shorter meanwhile"));
    }
    let block = BLOCK as u64;
    let padding = usize::try_from((block - copied % block) % block).unwrap_or_default();
    into.write_all(&[0; BLOCK][..padding])
}

fn header_of(name: &str, size: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The checksum counts as blanks in itself.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    header[148..156].copy_from_slice(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_the_archive() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("teamd");
        let text = "x".repeat(700);
        let mut file = File::create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let file = InstallFile::read("teamd", &path).unwrap();
        let archive = scratch.path().join("archive.tar");
        write_archive(File::create(&archive).unwrap(), &[file]).unwrap();
        let folder = scratch.path().join("out");
        std::fs::create_dir(&folder).unwrap();
        let unpacked = Command::new("tar")
            .args(["-xf", archive.to_str().unwrap()])
            .current_dir(&folder)
            .status()
            .unwrap();
        assert!(unpacked.success());
        assert_eq!(std::fs::read_to_string(folder.join("teamd")).unwrap(), text);
    }

    #[test]
    fn the_line_is_one_line_in_single_quotes() {
        let line = line_of("x86_64", &[]);
        assert_eq!(line.matches('\'').count(), 2);
        assert!(!line.contains('\n'), "{line}");
        let own = std::env::current_exe().unwrap();
        assert!(machine_of(&own).is_ok());
    }
}
