//! Orders: one timer for the next, and a task for each that is due, also while lines cannot be
//! written.

use teamd_shared::control::TaskOrder;
use teamd_shared::order::Order;
use teamd_shared::task::{TaskFields, TaskStatus};

use super::*;

impl Fixture {
    /// A daemon that begins with these orders.
    fn with_orders(orders: &str) -> Self {
        let mut fixture = Self::new();
        let orders: Vec<Order> = serde_json::from_str(orders).unwrap();
        let record = TeamRecord {
            orders: Some(orders),
            ..TeamRecord::of(TeamEvent::Started, "default".to_owned(), None)
        };
        fixture.dispatcher.begin(record, &mut fixture.io);
        fixture.turn(0.0);
        fixture
    }

    /// Lets time pass by both clocks, and takes a turn.
    fn turn(&mut self, seconds: f64) {
        self.io.now.wall += seconds;
        self.io.now.monotonic += Duration::from_secs_f64(seconds);
        self.dispatcher.handle(Vec::new(), &mut self.io);
    }

    /// Returns after how many seconds something is due.
    fn wakes_in(&self) -> Option<f64> {
        let at = self.dispatcher.next_due()?;
        Some((at.as_secs_f64() - self.io.now.monotonic.as_secs_f64()).round())
    }

    fn tasks(&self) -> Vec<TaskStatus> {
        let tasks = self.dispatcher.team.tasks.values();
        tasks.map(|task| task.status).collect()
    }

    fn ask(&mut self, order: TaskOrder) {
        self.on(Event::Command(CLIENT, Actor::Person, Command::Task(order)));
    }
}

const HOURLY: &str = r#"[{"name": "a", "every": "1h", "task": {"subject": "x"}},
    {"name": "b", "every": "2h", "task": {"subject": "y"}}]"#;

#[test]
fn one_timer_is_set_to_the_next_order_and_none_while_its_task_is_not_ended() {
    let mut fixture = Fixture::with_orders(HOURLY);
    assert_eq!(
        (fixture.wakes_in(), fixture.tasks().len()),
        (Some(3600.0), 0)
    );
    fixture.turn(3599.9);
    assert_eq!(fixture.tasks().len(), 0);
    fixture.turn(0.2);
    assert_eq!(
        (fixture.wakes_in(), fixture.tasks().len()),
        (Some(3600.0), 1)
    );
    let lines = fixture.io.journal.len();
    fixture.turn(1.0);
    assert_eq!(
        fixture.io.journal.len(),
        lines,
        "once, and nothing is written in between"
    );
    // The other one waits for its task.
    fixture.turn(3600.0);
    assert_eq!((fixture.wakes_in(), fixture.tasks().len()), (None, 2));
    fixture.ask(TaskOrder::Cancel(1));
    assert_eq!(
        (fixture.wakes_in(), fixture.tasks().len()),
        (Some(3599.0), 2)
    );
    assert_eq!(
        fixture.dispatcher.team.tasks[&1]
            .order
            .as_ref()
            .unwrap()
            .name
            .as_str(),
        "a"
    );
}

#[test]
fn an_order_that_cannot_be_journaled_is_made_when_it_can() {
    let mut fixture = Fixture::with_orders(HOURLY);
    fixture.io.full = true;
    fixture.turn(3600.0);
    assert_eq!((fixture.wakes_in(), fixture.tasks().len()), (Some(1.0), 0));
    fixture.turn(1.0);
    assert_eq!((fixture.wakes_in(), fixture.tasks().len()), (Some(1.0), 0));
    fixture.io.full = false;
    fixture.turn(1.0);
    assert_eq!(fixture.tasks().len(), 1);
    fixture.turn(2.0);
    assert_eq!(fixture.tasks().len(), 1);
}

#[test]
fn a_clock_that_is_set_back_or_ahead_is_noticed_in_the_next_turn() {
    let mut fixture = Fixture::with_orders(HOURLY);
    fixture.turn(1800.0);
    // The timer is monotonic: it is set anew.
    fixture.io.now.wall -= 600.0;
    fixture.turn(0.0);
    assert_eq!(fixture.wakes_in(), Some(2400.0));
    fixture.io.now.wall += 2390.0;
    fixture.turn(0.0);
    assert_eq!(fixture.wakes_in(), Some(10.0));
    // Far ahead: what was due on the way is missed, but for the last minute.
    fixture.io.now.wall += 86_400.0 - 60.0;
    fixture.turn(0.0);
    assert_eq!(fixture.tasks().len(), 0);
    fixture.turn(75.0);
    assert_eq!(fixture.tasks().len(), 1);
}

#[test]
fn a_task_that_a_member_makes_while_it_works_for_an_order_follows_from_it() {
    let mut fixture = Fixture::with_orders(
        r#"[{"name": "mend", "on": "task.failed", "task": {"subject": "look", "for": "alice"}}]"#,
    );
    let add = |by: &str, number: u32| {
        let fields = TaskFields {
            subject: Some(by.to_owned()),
            ..TaskFields::default()
        };
        TaskOrder::Add {
            id: RequestId::from_bits(0x6000_0000 + number),
            tasks: vec![fields],
            within: false,
        }
    };
    fixture.on(spawn_alice(CLIENT));
    fixture.on(Event::Greeted {
        incarnation: alice(),
    });
    fixture.ask(add("person", 1));
    let mut failed = fixture.dispatcher.team.tasks[&1].clone();
    failed.status = TaskStatus::Failed;
    let record = teamd_shared::journal::TaskRecord::of(TaskEvent::Failed, failed, "teamd");
    let line = Line {
        seq: fixture.dispatcher.team.seq + 1,
        at: fixture.io.now.wall,
        version: None,
        done: 0,
        lead: None,
        record: Record::Task(Box::new(record)),
    };
    fixture.dispatcher.team.apply(&line).unwrap();
    fixture.turn(0.0);
    let made = &fixture.dispatcher.team.tasks[&2];
    assert!(made.order.as_ref().is_some_and(|of| !of.follows));
    assert_eq!(made.description, "Order mend: task 1 has failed.");
    let by = Actor::Member(alice().name);
    let claim = Command::Task(TaskOrder::Claim(Some(2)));
    fixture.on(Event::Command(CLIENT, by.clone(), claim));
    fixture.on(Event::Command(CLIENT, by, Command::Task(add("alice", 2))));
    fixture.ask(add("person", 3));
    let tasks = &fixture.dispatcher.team.tasks;
    assert!(tasks[&3].order.as_ref().is_some_and(|of| of.follows));
    assert_eq!(tasks[&4].order, None);
}
