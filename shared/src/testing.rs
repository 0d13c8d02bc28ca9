//! Records for the tests of several crates.

use serde_json::{Value, json};

use crate::member::{Bounds, Limits, Permissions, Sandbox};
use crate::usage::Usage;

/// Makes a member of a roster that has these fields; the others say nothing.
pub fn roster_member(fields: &Value) -> Value {
    let others = json!({"role": "", "incarnation": 1, "model": "script", "workspace": "/w", "gate": "open",
        "sandbox": Sandbox::default(), "limits": Limits::default(), "bounds": Bounds::default(),
        "usage": Usage::default(), "activity": "", "spawned_at": 0.0, "updated_at": 0.0, "spawned_seq": 0,
        "restarts": 0});
    filled(others, fields)
}

/// Makes the record of a member in a journal that has these fields; the others say nothing.
pub fn journal_member(fields: &Value) -> Value {
    let others = json!({"role": "", "model": "script", "workspace": "/w", "plan": false, "approve_by": "person",
        "restart": "never", "auto": false, "permissions": Permissions::default(), "sandbox": Sandbox::default(),
        "limits": Limits::default(), "bounds": Bounds::default(), "incarnation": 1, "conversation": 1,
        "begins_at": {"offset": 0, "tail": "cbf29ce484222325"}, "phase": "running", "gate": "open", "ending": null,
        "restarts": [], "restarted": 0, "exit": null, "spawned_at": 1.0, "updated_at": 1.0});
    filled(others, fields)
}

fn filled(mut record: Value, fields: &Value) -> Value {
    let more = fields.as_object().cloned().unwrap_or_default();
    if let Some(record) = record.as_object_mut() {
        record.extend(more);
    }
    record
}
