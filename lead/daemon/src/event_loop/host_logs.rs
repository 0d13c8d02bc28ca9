//! Logs on hosts, which a person reads over the link.

use teamd_shared::control::{Done, Refusal, RefusalCode};
use teamd_shared::host::LogPiece;
use teamd_shared::name::Name;

use super::EventLoop;
use crate::core::caller::ReplyTo;
use crate::core::runtime::first_line;
use crate::io::links::LogReader;

impl EventLoop {
    /// Has a piece of the log of a member on a host sent.
    pub(super) fn read_host_log(&mut self, client: ReplyTo, name: &Name, from: Option<u64>) {
        let state = self.dispatcher.team.members.get(name);
        let host = state.and_then(|state| state.record.terms.host.clone());
        let Some(host) = host else {
            let refusal = Refusal::new(RefusalCode::NotFound, format!("{name} is on no host"));
            let refusal = refusal.hint(format!("`teamctl logs {name}` reads its log"));
            self.resources.connections.reply(client, Err(refusal));
            return;
        };
        if !self.resources.links.has_said(&host) {
            self.cannot_read(client, &host);
            return;
        }
        let reader = LogReader { client, host };
        self.resources.links.ask_log(reader, name, from);
    }

    /// Takes a piece of a log.
    pub(super) fn log_read(&mut self, host: &Name, number: u64, piece: Result<LogPiece, String>) {
        let readers = &mut self.resources.links.log_readers;
        let Some(reader) = readers.remove(&number) else {
            return;
        };
        if reader.host != *host {
            tracing::warn!("{host} answers what it was not asked");
            readers.insert(number, reader);
            return;
        }
        let answer = match piece {
            Ok(piece) => Ok(Done::HostLog(piece)),
            Err(why) => {
                let message = format!("the log on {host}: {}", first_line(&why));
                Err(Refusal::new(RefusalCode::NotFound, message))
            }
        };
        self.resources.connections.reply(reader.client, answer);
    }

    /// Answers those who read logs on a host that cannot be reached any more.
    pub(super) fn logs_cut_off(&mut self, host: &Name) {
        let readers = &mut self.resources.links.log_readers;
        let cut_off = readers.values().filter(|reader| reader.host == *host);
        let clients: Vec<ReplyTo> = cut_off.map(|reader| reader.client).collect();
        readers.retain(|_, reader| reader.host != *host);
        for client in clients {
            self.cannot_read(client, host);
        }
    }

    fn cannot_read(&mut self, client: ReplyTo, host: &Name) {
        let message = format!("the log is on {host}, which cannot be reached");
        let refusal = Refusal::new(RefusalCode::Failed, message);
        let refusal = refusal.hint("`teamctl host list` shows the links");
        self.resources.connections.reply(client, Err(refusal));
    }
}
