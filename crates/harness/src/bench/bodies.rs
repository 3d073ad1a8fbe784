//! Request bodies, made once. Before a body is sent only its delivery times are written into it.

use bytes::Bytes;

use super::DESTINATION;

/// Messages in a batch.
pub(crate) const BATCH_LENGTH: usize = 100;
/// Bytes of a message's value.
pub(crate) const VALUE_BYTES: usize = 200;
/// Different keys: many more than partitions, so that these are evenly used.
const KEY_COUNT: u32 = 100_000;
/// Different bodies of a kind, sent in turn.
const BODY_COUNT: usize = 64;
/// Epoch milliseconds have this many digits until the year 2286.
const DUE_DIGITS: usize = 13;
const DUE_PLACEHOLDER: &str = "0000000000000";

/// One request's body, with places for the delivery times.
#[derive(Clone, Debug)]
struct Template {
    text: Vec<u8>,
    due_at: Vec<usize>,
}

/// Bodies of one kind, in turn.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    templates: Vec<Template>,
    next: usize,
    /// Messages in each.
    pub(crate) length: usize,
    /// Where they are posted.
    pub(crate) path: &'static str,
}

impl Bodies {
    /// Batches of a hundred messages.
    pub(crate) fn batches() -> Bodies {
        Bodies::batches_to(DESTINATION)
    }

    /// Batches of a hundred messages for another destination.
    pub(crate) fn batches_to(destination: &str) -> Bodies {
        let mut chance = fastrand::Rng::with_seed(1);
        let template = |_| {
            let messages: Vec<String> = (0..BATCH_LENGTH).map(|_| message(&mut chance, destination)).collect();
            Template::new(format!("{{\"messages\":[{}]}}", messages.join(",")))
        };
        let templates = (0..BODY_COUNT).map(template).collect();
        Bodies { templates, next: 0, length: BATCH_LENGTH, path: "/v1/messages:batch" }
    }

    /// Single messages.
    pub(crate) fn singles() -> Bodies {
        let mut chance = fastrand::Rng::with_seed(2);
        let templates =
            (0..BODY_COUNT * BATCH_LENGTH).map(|_| Template::new(message(&mut chance, DESTINATION))).collect();
        Bodies { templates, next: 0, length: 1, path: "/v1/messages" }
    }

    /// The next body, its messages due when `due_ms` says.
    pub(crate) fn next(&mut self, due_ms: impl FnMut() -> i64) -> Bytes {
        let template = &self.templates[self.next];
        self.next = (self.next + 1) % self.templates.len();
        template.fill(due_ms)
    }
}

impl Template {
    fn new(text: String) -> Template {
        let due_at = text.match_indices(DUE_PLACEHOLDER).map(|(at, _)| at).collect();
        Template { text: text.into_bytes(), due_at }
    }

    fn fill(&self, mut due_ms: impl FnMut() -> i64) -> Bytes {
        let mut text = self.text.clone();
        for at in &self.due_at {
            let mut rest = due_ms();
            for digit in text[*at..*at + DUE_DIGITS].iter_mut().rev() {
                *digit = b'0' + u8::try_from(rest.rem_euclid(10)).unwrap_or(0);
                rest /= 10;
            }
        }
        text.into()
    }
}

/// A message of chance: a value that does not compress better than text does, and a key that picks the partition.
fn message(chance: &mut fastrand::Rng, destination: &str) -> String {
    let key = chance.u32(..KEY_COUNT);
    // No zero, so that the placeholder of the delivery time is nowhere else.
    let value: String = (0..VALUE_BYTES).map(|_| chance.alphabetic()).collect();
    format!(
        "{{\"destination\":\"{destination}\",\"key\":\"k{key}\",\"value\":\"{value}\",\"deliver_at_ms\":{DUE_PLACEHOLDER}}}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_batch_is_json_with_a_time_for_each_message() {
        let mut bodies = Bodies::batches();
        let mut due_ms = 1_700_000_000_000;
        let body = bodies.next(|| {
            due_ms += 1;
            due_ms
        });
        let body: Value = serde_json::from_slice(&body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages.len(), BATCH_LENGTH);
        for (message, due_ms) in messages.iter().zip(1_700_000_000_001_i64..) {
            assert_eq!(message["deliver_at_ms"], due_ms);
            assert_eq!(message["value"].as_str().unwrap().len(), VALUE_BYTES);
            assert_eq!(message["destination"], DESTINATION);
        }
    }

    #[test]
    fn a_body_is_used_again_with_other_times() {
        let mut bodies = Bodies::singles();
        let first = bodies.next(|| 1_700_000_000_000);
        for _ in 1..BODY_COUNT * BATCH_LENGTH {
            bodies.next(|| 1_700_000_000_000);
        }
        let again = bodies.next(|| 1_800_000_000_000);
        assert_eq!(
            String::from_utf8_lossy(&first).replace("1700000000000", "1800000000000"),
            String::from_utf8_lossy(&again)
        );
    }
}
