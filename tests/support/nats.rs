//! A real `nats-server` on loopback, with a certificate, two users and a spy.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::cgroup::note;
use super::poll_until;
use super::sshd::make_program;

/// The seeds of two users' nkeys, and what the server knows of them. They are of no use elsewhere.
const HOME: [&str; 2] = [
    "SUAHGYVW4IUAA2TLG4REMRG4ANADYOLUA4HCGUKGFCCAAHXUWES3HHGGPY",
    "UCHAICVOYPUOX7FDAEW4RKQCZ3ZZFGG3PGJ6UDEAJDLILKMPRSZOZP3Z",
];
const HOST: [&str; 2] = [
    "SUAGGS4FAFCGE2CUOLKCLPSQMGJLM4FJADF2CGGGAUF66THBU54XDCWRAA",
    "UBELC25COGG5KWYBTIW2S7TCUP7G55OBSPLQSJVZ6XLI7TPWVUIERBRG",
];

/// Makes the certificate of the server.
const CERTIFICATE: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out ca.pem -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE 2>/dev/null";

/// The server. It ends with the test.
pub(crate) struct NatsServer {
    folder: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    /// None while it is down.
    server: Option<Child>,
}

impl NatsServer {
    /// Starts a server that lets no user do anything yet. None, and a note, where there is no program
    /// for it, or `teamd-nats` was not built.
    pub(crate) fn start() -> Option<Self> {
        if option_env!("CARGO_BIN_EXE_teamd-nats").is_none() {
            note("skipped over NATS: the feature `nats` is not built");
            return None;
        }
        let Some(program) = program() else {
            note("skipped over NATS: there is no nats-server (scripts/test-hosts --install)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("sh")
            .args(["-c", CERTIFICATE])
            .current_dir(folder.path())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            note("skipped over NATS: there is no openssl");
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut server = Self {
            folder,
            program,
            port,
            server: None,
        };
        server.allow("nothing");
        Some(server)
    }

    /// Lets home and the host use their subjects of a link, and nothing else. The server starts anew.
    pub(crate) fn allow(&mut self, link: &str) {
        let ways = format!("subscribe: \"{link}.up.>\", publish: \"{link}.down.>\"");
        let other = format!("publish: \"{link}.up.>\", subscribe: \"{link}.down.>\"");
        let config = format!(
            "listen: \"127.0.0.1:{}\"\ntls {{ cert_file: \"ca.pem\", key_file: \"key.pem\", handshake_first: auto }}\ntrace: true\nlogfile: \"log\"\n\
             authorization {{ users = [\n{{ nkey: {}, permissions {{ {ways} }} }}\n{{ nkey: {}, permissions {{ {other} }} }}\n\
             {{ user: spy, password: spy }}\n] }}\n",
            self.port, HOME[1], HOST[1]
        );
        make_program(&self.folder.path().join("config"), &config);
        self.stop();
        self.begin();
    }

    /// Starts it again.
    pub(crate) fn begin(&mut self) {
        let server = Command::new(&self.program)
            .args(["-c", "config"])
            .current_dir(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.server = Some(server.unwrap());
        let port = self.port;
        let answers = poll_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(answers, "nats-server does not start: {}", self.log());
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    /// Writes its certificate authority below a home directory. Returns the file.
    pub(crate) fn ca(&self, below: &Path) -> String {
        let folder = below.join(".config/nats");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        std::fs::copy(self.folder.path().join("ca.pem"), &file).unwrap();
        file.display().to_string()
    }

    /// All that was said on it.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Writes the credentials of home below a home directory. Returns their file.
    pub(crate) fn credentials_of_home(below: &Path) -> String {
        credentials(below, HOME[0])
    }

    /// Writes those of the host.
    pub(crate) fn credentials_of_host(below: &Path) -> String {
        credentials(below, HOST[0])
    }

    /// Publishes messages as a user who may say anything.
    pub(crate) fn spoof(&self, messages: &[(String, Vec<u8>)]) {
        let mut spy = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect"])
            .arg(format!("localhost:{}", self.port))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = spy.stdin.take().unwrap();
        let login = "CONNECT {\"user\":\"spy\",\"pass\":\"spy\",\"verbose\":false}\r\n";
        stdin.write_all(login.as_bytes()).unwrap();
        for (subject, message) in messages {
            let length = message.len();
            write!(stdin, "PUB {subject} {length}\r\n").unwrap();
            stdin.write_all(message).unwrap();
            stdin.write_all(b"\r\n").unwrap();
        }
        stdin.write_all(b"PING\r\n").unwrap();
        stdin.flush().unwrap();
        let mut said = BufReader::new(spy.stdout.take().unwrap()).lines();
        let took_all = said.any(|line| line.unwrap() == "PONG");
        assert!(took_all, "the server does not take what is said");
        drop(stdin);
        spy.kill().unwrap();
        spy.wait().unwrap();
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn credentials(below: &Path, seed: &str) -> String {
    let folder = below.join(".config/nats");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("seed.nk");
    make_program(&file, seed);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).unwrap();
    file.display().to_string()
}

/// Finds the program: where `scripts/test-hosts` has put it, else on the `PATH`.
fn program() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_teamd")).ancestors().nth(2)?;
    let own = target.join("nats/bin/nats-server");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    std::iter::once(own)
        .chain(on_path)
        .find(|program| program.is_file())
}
