//! Reads a line that any program may have written.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Body, IdleReason, LEAD, MAX_LINE, MAX_NEST, Message};
use crate::id::RequestId;
use crate::json;

/// Why a line is no message. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The line is longer than [`MAX_LINE`].
    #[error("the line has {0} bytes, the limit is {MAX_LINE}")]
    TooLong(u64),
    /// The bytes are not UTF-8.
    #[error("not UTF-8: invalid byte at {0}")]
    NotUtf8(usize),
    /// The text is not JSON (or nested more deeply than this program reads).
    #[error("not JSON: {0}")]
    NotJson(String),
    /// The text is nested more deeply than [`MAX_NEST`].
    #[error("it is nested more than {MAX_NEST} levels deep")]
    TooDeep,
    /// The text is JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field that the type needs is not there.
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    /// A field has a value of another type, or one that is not allowed.
    #[error("the field {field:?} is not {expected}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
}

impl Message {
    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    /// [`ParseError`] says what is wrong with the line; the caller puts it into quarantine.
    pub fn parse(line: &[u8]) -> Result<Self, ParseError> {
        if line.len() > MAX_LINE {
            return Err(ParseError::TooLong(line.len() as u64));
        }
        let text = std::str::from_utf8(line).map_err(|e| ParseError::NotUtf8(e.valid_up_to()))?;
        let value = json::value(text.as_bytes()).map_err(|e| ParseError::NotJson(e.to_string()))?;
        if !is_nested_within(&value, MAX_NEST) {
            return Err(ParseError::TooDeep);
        }
        Self::from_json(value)
    }

    /// Reads a message that was consumed before, as a transcript has it: written again, it may be
    /// longer than its line.
    ///
    /// # Errors
    /// As [`Message::parse`], but for its length and its depth.
    pub fn from_json(value: Value) -> Result<Self, ParseError> {
        match value {
            Value::Object(fields) => LineFields(fields).message(),
            _ => Err(ParseError::NotAnObject),
        }
    }
}

/// Tells whether a value has at most so many levels: an array or object in another one is one level
/// more.
pub fn is_nested_within(value: &Value, levels: usize) -> bool {
    let inner: Vec<&Value> = match value {
        Value::Array(values) => values.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => return true,
    };
    levels > 0
        && inner
            .into_iter()
            .all(|inner| is_nested_within(inner, levels - 1))
}

/// The fields of a line that have not been understood yet. What is left at the end is kept as
/// `extra`.
struct LineFields(Map<String, Value>);

impl LineFields {
    fn message(mut self) -> Result<Message, ParseError> {
        let kind = self.text("type")?.ok_or(ParseError::Missing("type"))?;
        let from = self.text("from")?.ok_or(ParseError::Missing("from"))?;
        let to = self.text("to")?;
        let content = match self.text("content")? {
            Some(content) => Some(content),
            None => self.text("text")?,
        };
        let timestamp = self.seconds(&["timestamp", "ts"]);
        let id = self.uuid();
        let body = self.body(&kind, &from, content.as_deref().unwrap_or_default())?;
        // Other writers leave it out if a reason, plan or feedback says everything.
        let content = content.unwrap_or_else(|| body.text());
        Ok(Message {
            id,
            from,
            to,
            timestamp,
            content,
            body,
            extra: self.0,
        })
    }

    fn body(&mut self, kind: &str, from: &str, content: &str) -> Result<Body, ParseError> {
        Ok(match kind {
            "message" => Body::Message,
            "broadcast" => Body::Broadcast,
            "shutdown_request" => Body::ShutdownRequest {
                request_id: self.request_id()?,
                incarnation: self.number("incarnation")?,
                reason: self.text_or("reason", content)?,
                decide_within: self.seconds(&["decide_within"]),
            },
            "shutdown_response" => self.shutdown_response(content, None)?,
            "shutdown_approved" => self.shutdown_response(content, Some(true))?,
            "shutdown_rejected" => self.shutdown_response(content, Some(false))?,
            "plan_request" => Body::PlanRequest {
                gate_closed: self.gate_closed(),
            },
            "plan_approval_request" => self.plan(content)?,
            // Other writers use one type for both directions; only a submission has a plan.
            "plan_approval_response" if from != LEAD && self.0.contains_key("plan") => {
                self.plan(content)?
            }
            "plan_approval_response" => Body::PlanApprovalResponse {
                request_id: self.request_id()?,
                approve: self.approve()?.ok_or(ParseError::Missing("approve"))?,
                feedback: self.text_or("feedback", content)?,
            },
            "review_request" => Body::ReviewRequest {
                request_id: self.request_id()?,
                task_id: self.task_id(),
            },
            "permission_request" => Body::PermissionRequest {
                request_id: self.request_id()?,
                tool: self.text_or("tool", content)?,
                input: self.take("input").unwrap_or(Value::Null),
                incarnation: self.number("incarnation")?,
            },
            "idle_notification" => Body::IdleNotification {
                idle_reason: self.idle_reason()?,
                summary: self.text_or("summary", &super::summary_of(content))?,
            },
            "teammate_terminated" => Body::TeammateTerminated {
                name: self.text("name")?.ok_or(ParseError::Missing("name"))?,
                exit: self.take("exit").unwrap_or(Value::Null),
                unread: self
                    .take("unread")
                    .and_then(|v| json::whole(&v))
                    .unwrap_or(0),
            },
            "task_assignment" => Body::TaskAssignment {
                task_id: self.task_id(),
                gate_closed: self.gate_closed(),
                subject: self
                    .take("subject")
                    .and_then(|v| v.as_str().map(str::to_owned))
                    .unwrap_or_default(),
            },
            "returned" => Body::Returned {
                message_id: self.message_id(),
                name: self.text("name")?.ok_or(ParseError::Missing("name"))?,
                why: self.text_or("why", "")?,
                text: self.text_or("text", content)?,
            },
            other => Body::Unknown {
                kind: other.to_owned(),
            },
        })
    }

    fn gate_closed(&mut self) -> Option<u64> {
        self.take("gate_closed").and_then(|v| json::whole(&v))
    }

    fn message_id(&mut self) -> Option<Uuid> {
        let id = self.take("message_id")?;
        Uuid::try_parse(id.as_str()?).ok()
    }

    fn task_id(&mut self) -> Option<u32> {
        self.take("task_id")
            .and_then(|v| json::whole(&v))
            .and_then(|n| u32::try_from(n).ok())
    }

    fn shutdown_response(
        &mut self,
        content: &str,
        implied: Option<bool>,
    ) -> Result<Body, ParseError> {
        let approve = match implied {
            Some(approve) => approve,
            None => self.approve()?.ok_or(ParseError::Missing("approve"))?,
        };
        let answered_by = self
            .text("answered_by")?
            .and_then(|by| serde_json::from_value(by.into()).ok());
        let request_id = self.request_id()?;
        let reason = self.text_or("reason", content)?;
        Ok(Body::ShutdownResponse {
            request_id,
            approve,
            reason,
            answered_by,
        })
    }

    fn plan(&mut self, content: &str) -> Result<Body, ParseError> {
        Ok(Body::PlanApprovalRequest {
            request_id: self.request_id()?,
            plan: self.text_or("plan", content)?,
            incarnation: self.number("incarnation")?,
        })
    }

    fn idle_reason(&mut self) -> Result<IdleReason, ParseError> {
        let expected = "one of available, failed, max_turns, max_tokens, max_cost, interrupted";
        let wrong = ParseError::Wrong {
            field: "idle_reason",
            expected,
        };
        let reason = self.text("idle_reason")?;
        reason.map_or(Ok(IdleReason::Available), |text| {
            serde_json::from_value(text.into()).map_err(|_| wrong)
        })
    }

    fn request_id(&mut self) -> Result<RequestId, ParseError> {
        let value = ["request_id", "requestId"]
            .into_iter()
            .find_map(|name| self.take(name));
        let value = value
            .or_else(|| self.metadata("request_id"))
            .ok_or(ParseError::Missing("request_id"))?;
        value
            .as_str()
            .and_then(|id| RequestId::new(id).ok())
            .ok_or(ParseError::Wrong {
                field: "request_id",
                expected: "1 to 64 of A-Z, a-z, 0-9, _ and -",
            })
    }

    fn approve(&mut self) -> Result<Option<bool>, ParseError> {
        let value = ["approve", "approved"]
            .into_iter()
            .find_map(|name| self.take(name));
        match value.or_else(|| self.metadata("approve")) {
            None => Ok(None),
            Some(Value::Bool(approve)) => Ok(Some(approve)),
            Some(_) => Err(ParseError::Wrong {
                field: "approve",
                expected: "true or false",
            }),
        }
    }

    /// Takes a field; null counts as absent.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.0.shift_remove(field).filter(|value| !value.is_null())
    }

    /// Looks into `metadata`, and leaves it where it is: it may hold more.
    fn metadata(&self, field: &str) -> Option<Value> {
        self.0
            .get("metadata")?
            .get(field)
            .filter(|value| !value.is_null())
            .cloned()
    }

    fn text(&mut self, field: &'static str) -> Result<Option<String>, ParseError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ParseError::Wrong {
                field,
                expected: "a string",
            }),
        }
    }

    fn text_or(&mut self, field: &'static str, otherwise: &str) -> Result<String, ParseError> {
        Ok(self.text(field)?.unwrap_or_else(|| otherwise.to_owned()))
    }

    fn number(&mut self, field: &'static str) -> Result<Option<u32>, ParseError> {
        let wrong = ParseError::Wrong {
            field,
            expected: "a whole number",
        };
        self.take(field)
            .map(|v| {
                json::whole(&v)
                    .and_then(|n| u32::try_from(n).ok())
                    .ok_or(wrong)
            })
            .transpose()
    }

    /// Takes the first of some fields that is a number. A time in another form (an RFC 3339 text,
    /// say) stays among the unknown fields.
    fn seconds(&mut self, names: &[&str]) -> Option<f64> {
        let field = names
            .iter()
            .find(|name| self.0.get(**name).is_some_and(Value::is_number));
        field
            .and_then(|name| self.take(name))
            .and_then(|v| v.as_f64())
    }

    /// Only a UUID identifies a message: other writers number theirs from 1 in every file.
    fn uuid(&mut self) -> Option<Uuid> {
        let id = self
            .0
            .get("id")
            .and_then(Value::as_str)
            .and_then(|id| Uuid::try_parse(id).ok())?;
        self.0.shift_remove("id");
        Some(id)
    }
}
