//! The input of `todo_write`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use teamd_shared::todo::{TodoList, TodoStep};

/// Writes down the steps of your work, if there are three or more, for you and for those who look
/// on. Each call replaces the list. At most one step is in_progress; mark it completed once it is
/// done.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoWrite {
    /// All steps, in order.
    #[serde(deserialize_with = "list")]
    #[schemars(with = "Vec<TodoStep>")]
    pub todos: TodoList,
}

fn list<'de, D: Deserializer<'de>>(input: D) -> Result<TodoList, D::Error> {
    let steps = Vec::<TodoStep>::deserialize(input)?;
    TodoList::new(steps).map_err(serde::de::Error::custom)
}
