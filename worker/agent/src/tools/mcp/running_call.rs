//! A call of a tool of an MCP server that runs.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};
use teamd_shared::mcp_tools::cut;
use teamd_worker_core::mcp::visible;
use teamd_worker_core::secret::{Secret, hide_all};
use teamd_worker_core::tools::Outcome;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::connection::{LAST_WORDS, McpConnection, innermost};
use super::result::{MAX_RESULT, outcome_of};

/// A call that has been started.
#[derive(Debug)]
pub(crate) struct RunningMcpCall {
    task: JoinHandle<Outcome>,
    /// Dropped: the call is broken off.
    cancel: Option<oneshot::Sender<String>>,
    done: Option<Outcome>,
}

impl RunningMcpCall {
    /// Starts a call.
    pub(super) fn start(
        connection: McpConnection,
        tool: String,
        arguments: Map<String, Value>,
        timeout: Duration,
    ) -> Self {
        let (cancel, cancelled) = oneshot::channel();
        let secrets = connection.secrets.clone();
        let calling = call(connection, tool, arguments, timeout, cancelled);
        let task = tokio::spawn(async move {
            let mut outcome = calling.await;
            outcome.content = bounded(&outcome.content, &secrets);
            outcome
        });
        Self {
            task,
            cancel: Some(cancel),
            done: None,
        }
    }

    /// Waits for the outcome. May be dropped halfway and called again.
    pub(crate) async fn finish(&mut self) -> Outcome {
        if let Some(done) = &self.done {
            return done.clone();
        }
        let outcome = (&mut self.task)
            .await
            .unwrap_or_else(|error| Outcome::error(format!("the call was broken off: {error}")));
        self.done = Some(outcome.clone());
        outcome
    }

    /// Breaks the call off, and tells the server so.
    pub(crate) async fn cancel(mut self, why: &str) -> Outcome {
        if let Some(cancel) = self.cancel.take()
            && cancel.send(why.to_owned()).is_err()
        {
            tracing::debug!("the call has ended by itself");
        }
        self.finish().await
    }
}

/// Returns what a model gets of a text: without secrets first, since a cut could leave the half of
/// one.
fn bounded(text: &str, secrets: &[Secret]) -> String {
    cut(&hide_all(secrets, text), MAX_RESULT)
}

async fn call(
    mut connection: McpConnection,
    tool: String,
    arguments: Map<String, Value>,
    timeout: Duration,
    mut cancelled: oneshot::Receiver<String>,
) -> Outcome {
    let peer = tokio::select! {
        ready = connection.ready() => match ready {
            Ok(peer) => peer,
            Err(how) => return Outcome::error(format!("the MCP server {how}")),
        },
        why = &mut cancelled => return broken_off(why),
    };
    if !connection.has_tool(&tool) {
        return Outcome::error("gone: the MCP server no longer has this tool");
    }
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::with_timeout(timeout);
    let sent = tokio::select! {
        sent = peer.send_cancellable_request(request, options) => sent,
        why = &mut cancelled => return broken_off(why),
    };
    let handle = match sent {
        Ok(handle) => handle,
        Err(error) => return Outcome::error(format!("the MCP server cannot be asked: {error}")),
    };
    let id = handle.id.clone();
    let response = tokio::select! {
        response = handle.await_response() => response,
        how = connection.ended() => {
            return Outcome::error(format!("the MCP server {how}; the call may have run"));
        }
        why = &mut cancelled => {
            let outcome = broken_off(why);
            let param = CancelledNotificationParam::new(Some(id), Some(outcome.content.clone()));
            if let Err(error) = peer.notify_cancelled(param).await {
                tracing::debug!("the MCP server cannot be told that a call is broken off: {error}");
            }
            return outcome;
        }
    };
    match response {
        Ok(ServerResult::CallToolResult(result)) => outcome_of(result),
        Ok(ServerResult::InputRequiredResult(_)) => Outcome::error(
            "the tool asks a person for something, and no person is asked for it: call it with all that it needs",
        ),
        Ok(_) => {
            Outcome::error("the MCP server answers with something that is no result of a call")
        }
        Err(ServiceError::Timeout { .. }) => Outcome::error(format!(
            "no answer within {} s: the call is broken off, and may have run (`timeout` of `[mcp.NAME]` sets the limit)",
            timeout.as_secs()
        )),
        Err(ServiceError::McpError(error)) => Outcome::error(visible(&error.message)),
        Err(error) => {
            let ended = tokio::time::timeout(2 * LAST_WORDS, connection.ended()).await;
            let how = ended.unwrap_or_else(|_| format!("fails: {}", innermost(&error)));
            Outcome::error(format!("the MCP server {how}; the call may have run"))
        }
    }
}

fn broken_off(why: Result<String, oneshot::error::RecvError>) -> Outcome {
    let why = why.unwrap_or_else(|_| "broken off".to_owned());
    Outcome::error(format!("[{why}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_bounded_and_holds_no_part_of_a_secret() {
        let secret = Secret::new("TOKEN", "tok-3c1f".to_owned());
        let text = format!(
            "{}tok-3c1f{}",
            "é".repeat(MAX_RESULT / 2 - 2),
            "x".repeat(100)
        );
        let shown = bounded(&text, &[secret]);
        assert!(!shown.contains("tok") && shown.ends_with("more bytes are not shown]"));
        assert!(shown.len() < MAX_RESULT + 100);
    }
}
