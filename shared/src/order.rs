//! Orders: `[[order]]` in `team.toml`. At its time, or when something has happened, the daemon makes
//! a task of it: never a bare prompt, so that a check decides and a person sees what was done.
//!
//! They are part of the journal line of a start, as `[work]` is: decisions depend on them.

mod every;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use crate::effects::KeyEffects;
use crate::name::Name;
use crate::task::{Task, TaskEvent, TaskFields, TaskId};

pub use every::Every;
pub use state::{Cause, DUE_FOR, Made, OrderState};

/// Who makes the tasks of an order, and chooses their checks.
pub const TEAM_TOML: &str = "team.toml";

/// How many tasks an order makes in 24 hours by default.
const MOST: u32 = 10;

/// The largest `most`: a larger one is a slip of the hand.
const MOST_MOST: u32 = 1000;

/// How many bytes all orders may have together: the daemon gets them in one variable, which Linux
/// limits.
const MAX_SIZE: usize = 100_000;

/// An order. It is checked where `team.toml` is read, and not again in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// Its name.
    pub name: Name,
    /// When it makes a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Every>,
    /// After what it makes a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Trigger>,
    /// The task.
    pub task: TaskFields,
    /// How many tasks it makes in 24 hours at most.
    #[serde(default = "most")]
    pub most: u32,
    /// What becomes of what was due while no daemon ran.
    #[serde(default)]
    pub missed: Missed,
    /// What becomes of what is due while an earlier task of it is not ended.
    #[serde(default)]
    pub overlap: Overlap,
}

/// After what an order makes a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
pub enum Trigger {
    /// A task has failed.
    #[serde(rename = "task.failed")]
    #[strum(serialize = "task.failed")]
    TaskFailed,
    /// A task was completed.
    #[serde(rename = "task.completed")]
    #[strum(serialize = "task.completed")]
    TaskCompleted,
    /// An incarnation of a member has crashed.
    #[serde(rename = "member.crashed")]
    #[strum(serialize = "member.crashed")]
    MemberCrashed,
}

impl Trigger {
    /// Returns it as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns what an event of a task triggers.
    pub const fn of(event: TaskEvent) -> Option<Self> {
        match event {
            TaskEvent::Failed => Some(Self::TaskFailed),
            TaskEvent::Completed => Some(Self::TaskCompleted),
            _ => None,
        }
    }
}

/// What becomes of what was due while no daemon ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// One task is made, however often it was due.
    Once,
}

/// What becomes of what is due while an earlier task of the order is not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Nothing.
    #[default]
    Skip,
    /// The next task is made when that one has ended: one, however often it was due; of an order
    /// with `on`, one for each event.
    Queue,
}

/// Of which order a task is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfOrder {
    /// The name of the order.
    pub name: Name,
    /// When it was due, or when what triggered it happened: seconds since 1970.
    pub due: f64,
    /// Whether it only follows from a task of the order. Neither triggers an order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
}

impl OfOrder {
    /// Returns what holds for a task that follows from one of these.
    #[must_use]
    pub fn follow_up(&self) -> Self {
        Self {
            follows: true,
            ..self.clone()
        }
    }
}

impl Order {
    /// Makes its task.
    ///
    /// # Errors
    /// What is wrong with a field.
    pub fn task(
        &self,
        id: TaskId,
        due: f64,
        cause: Option<&Cause>,
        at: f64,
    ) -> Result<Task, String> {
        let mut fields = self.task.clone();
        if let Some(cause) = cause {
            let text = fields.description.unwrap_or_default();
            let text = format!("{text}\n\nOrder {}: {cause}.", self.name);
            fields.description = Some(text.trim_start().to_owned());
        }
        let task = fields.create(id, TEAM_TOML, at)?;
        let of = OfOrder {
            name: self.name.clone(),
            due,
            follows: false,
        };
        Ok(Task {
            order: Some(of),
            ..task
        })
    }

    /// Returns when it makes a task, as it is written.
    pub fn when(&self) -> String {
        match (&self.every, self.on) {
            (Some(every), _) => every.as_str().to_owned(),
            (None, Some(on)) => on.as_str().to_owned(),
            (None, None) => String::new(),
        }
    }
}

/// An order as it is written, which may be wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderText {
    name: Name,
    every: Option<String>,
    on: Option<Trigger>,
    task: TaskText,
    #[serde(default = "most")]
    most: u32,
    #[serde(default)]
    missed: Missed,
    #[serde(default)]
    overlap: Overlap,
}

fn most() -> u32 {
    MOST
}

/// The fields of its task.
#[derive(Deserialize)]
struct TaskText {
    #[serde(flatten)]
    fields: TaskFields,
    /// Any other key is a mistake: a misspelled one could remove a check.
    #[serde(flatten)]
    more: BTreeMap<String, IgnoredAny>,
}

impl TryFrom<OrderText> for Order {
    type Error = String;

    fn try_from(text: OrderText) -> Result<Self, String> {
        let OrderText {
            name,
            every,
            on,
            task,
            most,
            missed,
            overlap,
        } = text;
        let wrong = |what: &str| Err(format!("order {name}: {what}"));
        if every.is_some() == on.is_some() {
            return wrong("it has either `every` or `on`");
        }
        if on.is_some() && missed != Missed::Skip {
            return wrong("`missed` belongs to an order with `every`");
        }
        if !(1..=MOST_MOST).contains(&most) {
            return wrong(&format!("`most` is a number from 1 to {MOST_MOST}"));
        }
        if let Some(unknown) = task.more.keys().next() {
            return wrong(&format!("a task has no field `{unknown}`"));
        }
        if task.fields.blocked_by.iter().flatten().next().is_some() {
            return wrong("its task waits for no other one");
        }
        let every = match every.map(Every::new).transpose() {
            Ok(every) => every,
            Err(why) => return wrong(&why),
        };
        let fields = task.fields;
        if let Err(why) = fields.create(1, TEAM_TOML, 0.0) {
            return wrong(&why);
        }
        Ok(Self {
            name,
            every,
            on,
            task: fields,
            most,
            missed,
            overlap,
        })
    }
}

/// An order that was checked.
#[derive(Deserialize)]
#[serde(try_from = "OrderText")]
struct Checked(Order);

impl TryFrom<OrderText> for Checked {
    type Error = String;

    fn try_from(text: OrderText) -> Result<Self, String> {
        Order::try_from(text).map(Self)
    }
}

/// Reads the orders of a variable, as JSON.
///
/// # Errors
/// As [`orders`].
pub(crate) fn of_variable(text: &str) -> Result<Vec<Order>, serde_json::Error> {
    orders(&mut serde_json::Deserializer::from_str(text))
}

/// Reads the orders of a file.
///
/// # Errors
/// For a wrong one, for two of one name, and for more than the daemon can be given.
pub(crate) fn orders<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Order>, D::Error> {
    let checked = Vec::<Checked>::deserialize(deserializer)?;
    let orders: Vec<Order> = checked.into_iter().map(|Checked(order)| order).collect();
    let mut names = BTreeSet::new();
    if let Some(twice) = orders.iter().find(|order| !names.insert(&order.name)) {
        let name = &twice.name;
        return Err(D::Error::custom(format_args!(
            "two orders are named {name}"
        )));
    }
    let size = serde_json::to_string(&orders).map_or(0, |text| text.len());
    if size > MAX_SIZE {
        return Err(D::Error::custom(format_args!(
            "the orders have {size} bytes together, the limit is {MAX_SIZE}"
        )));
    }
    Ok(orders)
}

/// Says what orders do: they have teammates work, and commands run, without a person.
pub(crate) fn effects(orders: &[Order], to: &mut KeyEffects<'_>) {
    to.widens("order", orders.iter().map(Trusted));
}

/// An order as a person sees it before it is trusted: all of it.
struct Trusted<'o>(&'o Order);

impl fmt::Debug for Trusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut order = serde_json::to_value(self.0).unwrap_or_default();
        if let Some(task) = order["task"].as_object_mut() {
            task.retain(|_, value| !value.is_null());
        }
        write!(f, "{order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Order, String> {
        let checked = toml::from_str::<Checked>(text);
        let checked = checked.map_err(|error| error.message().to_owned())?;
        Ok(checked.0)
    }

    #[test]
    fn an_order_is_read_and_a_wrong_one_says_what_is_wrong() {
        let nightly =
            "name = 'nightly'\nevery = '0 2 * * *'\ntask.subject = 'update'\ntask.check = 'make'\n";
        let order = read(nightly).unwrap();
        assert_eq!((order.most, order.missed), (10, Missed::Skip));
        let json = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&json).unwrap(), order);
        let task = order.task(7, 5.0, None, 6.0).unwrap();
        assert_eq!(task.check.unwrap().set_by, TEAM_TOML);
        assert_eq!(task.created_by, TEAM_TOML);
        for (text, what) in [
            (
                "name = 'a'\ntask.subject = 'x'",
                "it has either `every` or `on`",
            ),
            (
                "name = 'a'\nevery = '1h'\non = 'task.failed'\ntask.subject = 'x'",
                "it has either `every` or `on`",
            ),
            (
                "name = 'a'\nevery = '1h'\ntask = {}",
                "a task needs a subject",
            ),
            (
                "name = 'a'\nevery = '1h'\ntask.subject = 'x'\ntask.chek = 'x'",
                "order a: a task has no field `chek`",
            ),
            (
                "name = 'a'\nevery = '1h'\ntask.subject = 'x'\ntask.blocked_by = [1]",
                "its task waits for no other one",
            ),
            (
                "name = 'a'\nevery = '0 0 30 2 *'\ntask.subject = 'x'",
                "\"0 0 30 2 *\" never comes",
            ),
            (
                "name = 'a'\nevery = '1h'\nmost = 0\ntask.subject = 'x'",
                "from 1 to 1000",
            ),
            (
                "name = 'a'\non = 'task.failed'\nmissed = 'once'\ntask.subject = 'x'",
                "`missed` belongs to an order with `every`",
            ),
            (
                "name = 'a'\non = 'task.lost'\ntask.subject = 'x'",
                "unknown variant",
            ),
            (
                "name = 'A'\nevery = '1h'\ntask.subject = 'x'",
                "is not a name",
            ),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(what), "{text}: {told}");
        }
    }
}
