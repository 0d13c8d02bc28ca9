//! Fields that a reader took for something else than what stands there.

use serde::Serialize;
use serde_json::Value;
use teamd_shared::json;

use super::Remark;

/// What names a process: all of it, or the reader knows none.
const PROCESS: [&str; 3] = ["pid", "start_ticks", "boot_id"];

/// Compares what stands in a line with what a reader of ours made of it.
pub(super) fn misread<T: Serialize>(line: usize, text: &[u8], read: &T) -> impl Iterator<Item = Remark> {
    const READER: &str = "no writer of ours writes it so, and the next version may refuse it";
    let mut found = Vec::new();
    if let (Ok(written), Ok(read)) = (json::value(text), serde_json::to_value(read)) {
        compare("", &written, &read, &mut found);
    }
    found.into_iter().map(move |what| Remark::warning((line, 1), what, READER))
}

fn compare(name: &str, written: &Value, read: &Value, found: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(fields), Value::Object(understood)) => {
            if let Some(field) = PROCESS.iter().find(|&&field| {
                fields.get(field).is_some_and(|value| !value.is_null()) && !understood.contains_key(field)
            }) {
                found.push(format!(
                    "{field} belongs to no process: pid and start_ticks are whole numbers, boot_id is text"
                ));
            }
            // Several receivers of one line may be written in two ways.
            for (field, value) in fields.iter().filter(|(field, _)| *field != "tell") {
                understood.get(field).into_iter().for_each(|read| compare(field, value, read, found));
            }
        }
        (Value::Array(values), Value::Array(understood)) => {
            values.iter().zip(understood).for_each(|(value, read)| compare(name, value, read, found));
        }
        (Value::Number(number), Value::Number(read)) if number.as_f64() == read.as_f64() => {}
        _ if written == read => {}
        _ => found.push(format!("{name} is {written}, and is read as {read}")),
    }
}
