//! Header ingress in the load: a plain producer writes records that schedule, move and cancel by their headers, and in the end
//! the topic itself says what was asked for and the receipts say what became of it.
//!
//! A record that is in the topic has to come to exactly one receipt (written twice, it says the same twice) and, where that
//! says scheduled, to exactly one message. Messages of the ingress are changed by records alone, which are carried out in their
//! order, so the ledger is told of them once, behind the last round.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use client::api::message::{MessageReceipt, Status};
use client::http::HttpClient;
use client::instant::format_instant_ms;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::chance::{percent, stream};
use super::content::Content;
use super::ledger::{Change, Due, Ledger, Rule};
use super::load::{Round, new_due, own_id};
use super::topics::DESTINATIONS;
use super::{EXPIRY_MS_MIN, SETTLE_LIMIT, SETTLE_PAUSE};
use crate::console::say;
use crate::kafka::{Cluster, Outgoing, Record, Writer};
use crate::wall_clock::now_ms;

const INGRESS: &str = "plain";
const SOURCE: &str = "plain.in";
const REFUSALS: &str = "plain.refused";
const RECEIPTS: &str = "plain.receipts";
const PARTITIONS: i32 = 2;
/// Records of one round at most: a run's size is bounded by its rounds.
const RECORDS_PER_ROUND_MAX: u64 = 400;
/// Between two small batches of records.
const PAUSE: Duration = Duration::from_millis(20);
/// Records that are being changed by others later.
const POOL_MAX: usize = 100;
/// How long the broker may take for what was written while it was away.
const FLUSH_LIMIT: Duration = Duration::from_secs(60);
/// A record whose only fault is this header has to be refused.
const MISSPELT: &str = "nereus-dealy";
const INVALID_HEADER: &str = "INVALID_HEADER";

/// A place in the source topic.
type Offset = (i32, i64);

/// What became of the records of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressAccount {
    /// Records in the source topic.
    pub records: u64,
    /// Messages they scheduled.
    pub scheduled: u64,
    /// Messages they moved or canceled.
    pub changed: u64,
    /// Records that were refused.
    pub refused: u64,
    /// Receipts beyond the first of a record.
    pub repeated_receipts: u64,
}

/// The writing side.
pub(crate) struct Ingress {
    cluster: Cluster,
    writer: Writer,
    /// Messages with an own id, and the partition their records are in.
    pool: RefCell<Vec<(u64, i32)>>,
    written: Cell<u64>,
}

/// What a receipt says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Receipt {
    code: String,
    message_id: Option<String>,
    deliver_at_ms: Option<i64>,
    expires_at_ms: Option<i64>,
    source_partition: i32,
    source_offset: i64,
}

impl Receipt {
    fn is_refusal(&self) -> bool {
        !matches!(self.code.as_str(), "SCHEDULED" | "SUPERSEDED" | "CANCELED")
    }

    /// Whether it says the same. One that was written after a crash may know less of a message that was changed before it.
    fn agrees_with(&self, other: &Receipt) -> bool {
        let same_message = match (&self.message_id, &other.message_id) {
            (Some(one), Some(other)) => one == other,
            _ => self.code != "SCHEDULED",
        };
        self.code == other.code && (same_message || self.is_refusal())
    }

    fn as_answer(&self, due: Due, version: u64) -> MessageReceipt {
        let deliver_at_ms = self.deliver_at_ms.unwrap_or(due.earliest_ms());
        let expires_at_ms = self.expires_at_ms.unwrap_or(deliver_at_ms);
        MessageReceipt {
            message_id: self.message_id.clone().unwrap_or_default(),
            id: None,
            status: Status::Scheduled,
            deliver_at: format_instant_ms(deliver_at_ms),
            deliver_at_ms,
            expires_at: format_instant_ms(expires_at_ms),
            expires_at_ms,
            version: Some(version),
            server_time: String::new(),
            server_time_ms: 0,
            delivery: None,
            lateness_ms: None,
        }
    }
}

impl Ingress {
    /// Makes the source topic.
    pub(crate) async fn prepare(cluster: &Cluster) -> anyhow::Result<Ingress> {
        cluster.create_topic(SOURCE, PARTITIONS, &[]).await?;
        Ok(Ingress {
            cluster: Cluster::new(cluster.bootstrap())?,
            writer: Writer::new(cluster.bootstrap(), &[("linger.ms", "1")])?,
            pool: RefCell::default(),
            written: Cell::new(0),
        })
    }

    /// Has the server read it.
    pub(crate) async fn create(&self, client: &HttpClient) -> anyhow::Result<()> {
        let spec = json!({
            "kafka": { "bootstrap.servers": self.cluster.bootstrap(), "topic": SOURCE },
            "destination": DESTINATIONS[0].name,
            "refusals": REFUSALS,
            "receipts": RECEIPTS,
        });
        let call = client.call(Method::PUT, &["v1", "ingresses", INGRESS]).json(&spec);
        call.send::<Value>().await.context("creating the ingress").map(drop)
    }

    /// Writes records until the round is over.
    pub(crate) async fn write(&self, round: &Round<'_>) -> anyhow::Result<()> {
        let chance = &mut stream(round.seed, "ingress", round.number);
        let until = self.written.get() + RECORDS_PER_ROUND_MAX;
        while !round.is_over.get() {
            if self.written.get() < until {
                for _ in 0..chance.u32(1..12) {
                    self.write_one(round, chance)?;
                }
            }
            self.writer.poll();
            sleep_until(Instant::now() + PAUSE).await;
        }
        Ok(())
    }

    fn write_one(&self, round: &Round<'_>, chance: &mut fastrand::Rng) -> anyhow::Result<()> {
        let (partition, record) = match chance.u32(..100) {
            0..10 => self.change(round, chance, Change::Cancel),
            10..20 => self.change(round, chance, Change::Move { due: Due::At(0), if_match: None }),
            _ => None,
        }
        .unwrap_or_else(|| self.schedule(round, chance));
        let record = Outgoing { partition: Some(partition), ..record };
        self.written.set(self.written.get() + 1);
        self.writer.send(SOURCE, &record)
    }

    /// A record that schedules a message.
    fn schedule(&self, round: &Round<'_>, chance: &mut fastrand::Rng) -> (i32, Outgoing) {
        let expires_soon = percent(chance, 15);
        let destination = if expires_soon && round.is_paused { 1 } else { chance.usize(..DESTINATIONS.len()) };
        let written_ms = now_ms();
        let (due, mut headers) = when(chance, written_ms);
        let has_id = percent(chance, 60);
        let number = round.ledger.borrow_mut().plan(destination, due, |number| has_id.then(|| own_id(round, number)));
        // The first destination is the ingress's own.
        if destination != 0 || percent(chance, 50) {
            headers.push(text("nereus-destination", DESTINATIONS[destination].name));
        }
        if has_id {
            headers.push(text("nereus-id", &own_id(round, number)));
        }
        if expires_soon {
            let expires_ms = due.earliest_ms().max(written_ms) + EXPIRY_MS_MIN + chance.i64(0..3_000);
            headers.push(text("nereus-expires-at", &expires_ms.to_string()));
        }
        let partition = chance.i32(0..PARTITIONS);
        if percent(chance, 3) {
            headers.push(text(MISSPELT, "1s"));
        } else if has_id {
            let pool = &mut *self.pool.borrow_mut();
            pool.push((number, partition));
            let surplus = pool.len().saturating_sub(POOL_MAX);
            pool.drain(..surplus);
        }
        let content = Content::of(round.seed, number);
        let mut record = content.outgoing();
        record.timestamp_ms = Some(written_ms);
        // Ours may stand anywhere among the caller's.
        let at = chance.usize(..=record.headers.len());
        record.headers.splice(at..at, headers);
        (partition, record)
    }

    /// A record that changes a message, in the partition that the message's own record is in: behind it.
    fn change(&self, round: &Round<'_>, chance: &mut fastrand::Rng, kind: Change) -> Option<(i32, Outgoing)> {
        let pool = self.pool.borrow();
        if pool.is_empty() {
            return None;
        }
        let (number, partition) = pool[chance.usize(..pool.len())];
        let (written_ms, id) = (now_ms(), own_id(round, number));
        let mut headers = vec![text(Content::NUMBER_HEADER, &number.to_string())];
        match kind {
            Change::Cancel => headers.push(text("nereus-cancel", &id)),
            Change::Move { .. } => {
                headers.push(text("nereus-reschedule", &id));
                headers.extend(when(chance, written_ms).1);
            }
        }
        Some((partition, Outgoing { timestamp_ms: Some(written_ms), headers, ..Outgoing::default() }))
    }

    /// Waits until every record has been written, and has come to a receipt.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        self.writer.flush(FLUSH_LIMIT)?;
        let written = self.cluster.read(SOURCE)?.len();
        let deadline = Instant::now() + SETTLE_LIMIT;
        loop {
            let settled = receipts(&self.cluster.read(RECEIPTS)?)?.len();
            if settled == written {
                return Ok(());
            }
            if Instant::now() > deadline {
                // What is missing is named when everything is checked.
                say(&format!("{settled} of {written} records of the ingress have a receipt"));
                return Ok(());
            }
            sleep_until(Instant::now() + SETTLE_PAUSE).await;
        }
    }

    /// Tells the ledger of every record, in the order of the source.
    pub(crate) fn replay(&self, ledger: &mut Ledger) -> anyhow::Result<IngressAccount> {
        let source = self.cluster.read(SOURCE)?;
        let receipts = receipts(&self.cluster.read(RECEIPTS)?)?;
        let refusals = refusals(&self.cluster.read(REFUSALS)?);
        Ok(replay(ledger, &source, &receipts, &refusals))
    }
}

/// Every receipt, by the record it is of, in the order they were written.
fn receipts(records: &[Record]) -> anyhow::Result<BTreeMap<Offset, Vec<Receipt>>> {
    let mut receipts: BTreeMap<Offset, Vec<Receipt>> = BTreeMap::new();
    for record in records {
        let value = record.value.as_deref().context("a receipt without a value")?;
        let receipt: Receipt = serde_json::from_slice(value).context("a receipt that is not understood")?;
        receipts.entry((receipt.source_partition, receipt.source_offset)).or_default().push(receipt);
    }
    Ok(receipts)
}

/// The code of every refused record, by its place in the source.
fn refusals(records: &[Record]) -> BTreeMap<Offset, String> {
    let read = |record: &Record| {
        let partition = record.header("nereus.delay.source_partition")?.parse().ok()?;
        let offset = record.header("nereus.delay.source_offset")?.parse().ok()?;
        Some(((partition, offset), record.header("nereus.delay.refusal_code")?.to_owned()))
    };
    records.iter().filter_map(read).collect()
}

fn replay(
    ledger: &mut Ledger,
    source: &[Record],
    receipts: &BTreeMap<Offset, Vec<Receipt>>,
    refusals: &BTreeMap<Offset, String>,
) -> IngressAccount {
    let mut account = IngressAccount { records: source.len() as u64, ..IngressAccount::default() };
    let moves = moves(source);
    for record in source {
        let place = (record.partition, record.offset);
        let Some(number) = number_of(record).filter(|number| *number < ledger.len()) else {
            ledger.violate(Rule::Foreign, None, format!("{place:?} of {SOURCE} is of no message"));
            continue;
        };
        let Some((receipt, repeated)) = receipts.get(&place).and_then(|receipts| receipts.split_first()) else {
            ledger.violate(Rule::Lost, Some(number), format!("{place:?} of {SOURCE} came to no receipt"));
            continue;
        };
        account.repeated_receipts += repeated.len() as u64;
        if let Some(other) = repeated.iter().find(|other| !receipt.agrees_with(other)) {
            let detail = format!("{place:?} of {SOURCE} came to {receipt:?} and then to {other:?}");
            ledger.violate(Rule::EndChanged, Some(number), detail);
        }
        let refusal = receipt.is_refusal().then_some(&receipt.code);
        if refusal != refusals.get(&place) {
            let detail = format!("{place:?} of {SOURCE} came to {receipt:?}, refused with {:?}", refusals.get(&place));
            ledger.violate(Rule::WrongAnswer, Some(number), detail);
        }
        if receipt.is_refusal() {
            ledger.refused(&receipt.code);
            account.refused += 1;
        }
        let is_change = record.header("nereus-cancel").is_some() || record.header("nereus-reschedule").is_some();
        if is_change {
            enter_change(ledger, number, record, receipt, &mut account);
        } else {
            let moves = moves.get(&number).map_or(&[][..], Vec::as_slice);
            enter_schedule(ledger, number, (record, moves), receipt, &mut account);
        }
    }
    account
}

fn number_of(record: &Record) -> Option<u64> {
    record.header(Content::NUMBER_HEADER)?.parse().ok()
}

/// Every time that a record of the source moves a message to.
fn moves(source: &[Record]) -> BTreeMap<u64, Vec<Due>> {
    let mut moves: BTreeMap<u64, Vec<Due>> = BTreeMap::new();
    for record in source.iter().filter(|record| record.header("nereus-reschedule").is_some()) {
        if let (Some(number), Some(due)) = (number_of(record), due_of(record)) {
            moves.entry(number).or_default().push(due);
        }
    }
    moves
}

/// Enters what a record that moves or cancels came to.
fn enter_change(ledger: &mut Ledger, number: u64, record: &Record, receipt: &Receipt, account: &mut IngressAccount) {
    let is_cancel = record.header("nereus-cancel").is_some();
    let due = due_of(record).unwrap_or(Due::At(i64::MAX));
    ledger.change_sent(number, if is_cancel { Change::Cancel } else { Change::Move { due, if_match: None } });
    match receipt.code.as_str() {
        "CANCELED" if is_cancel => {
            account.changed += 1;
            ledger.canceled(number);
        }
        "SUPERSEDED" if !is_cancel => {
            account.changed += 1;
            let version = ledger.entry(number).and_then(|entry| entry.version).unwrap_or_default() + 1;
            ledger.moved(number, &receipt.as_answer(due, version));
        }
        code if receipt.is_refusal() => ledger.change_refused(number, code, None),
        code => {
            let detail = format!("a record that is no schedule came to {code}");
            ledger.violate(Rule::WrongAnswer, Some(number), detail);
        }
    }
}

/// Enters what a record that schedules came to.
fn enter_schedule(
    ledger: &mut Ledger,
    number: u64,
    (record, moves): (&Record, &[Due]),
    receipt: &Receipt,
    account: &mut IngressAccount,
) {
    let is_misspelt = record.header(MISSPELT).is_some();
    // A record that waited for its broker or its server may be read behind its expiry.
    let may_be_refused = is_misspelt || record.header("nereus-expires-at").is_some();
    if (is_misspelt && receipt.code != INVALID_HEADER) || (receipt.is_refusal() && !may_be_refused) {
        ledger.violate(Rule::WrongAnswer, Some(number), format!("its record came to {receipt:?}"));
    }
    if receipt.is_refusal() {
        return ledger.not_taken(number, &receipt.code);
    }
    if receipt.message_id.is_none() {
        return ledger.violate(Rule::WrongAnswer, Some(number), format!("its record came to {receipt:?}"));
    }
    account.scheduled += 1;
    let due = due_of(record).unwrap_or(Due::At(i64::MIN));
    let mut answer = receipt.as_answer(due, 1);
    // A receipt that was written after a crash shows the message as it was by then: perhaps moved by a record behind it.
    if moves.iter().any(|moved| moved.admits(answer.deliver_at_ms)) {
        answer.deliver_at_ms = due.earliest_ms();
    }
    ledger.scheduled(number, &answer);
}

/// When a record asks to be delivered: its own time, or a delay from when it was written.
fn due_of(record: &Record) -> Option<Due> {
    if let Some(at_ms) = record.header("nereus-deliver-at") {
        return at_ms.parse().ok().map(Due::At);
    }
    let delay_ms: i64 = record.header("nereus-delay")?.strip_suffix("ms")?.parse().ok()?;
    Some(Due::At(record.timestamp_ms? + delay_ms))
}

/// A time of chance, and the header that says it.
fn when(chance: &mut fastrand::Rng, written_ms: i64) -> (Due, Vec<(String, Option<bytes::Bytes>)>) {
    let (due, delay_ms) = new_due(chance);
    let header = match due {
        Due::At(_) => text("nereus-deliver-at", &(written_ms + delay_ms).to_string()),
        Due::NotBefore(_) => text("nereus-delay", &format!("{delay_ms}ms")),
    };
    (Due::At(written_ms + delay_ms), vec![header])
}

fn text(name: &str, value: &str) -> (String, Option<bytes::Bytes>) {
    (name.to_owned(), Some(bytes::Bytes::copy_from_slice(value.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN_MS: i64 = 1_000_000;
    const DUE_MS: i64 = WRITTEN_MS + 500;

    /// A topic, what was said of its records, and the ledger they are held against.
    #[derive(Default)]
    struct History {
        ledger: Ledger,
        source: Vec<Record>,
        receipts: BTreeMap<Offset, Vec<Receipt>>,
        refusals: BTreeMap<Offset, String>,
    }

    impl History {
        fn planned(&mut self) -> u64 {
            self.ledger.plan(0, Due::At(DUE_MS), |number| Some(number.to_string()))
        }

        /// A record, and what its receipt says, if there is one.
        fn record(&mut self, number: u64, headers: &[(&str, &str)], code: Option<&str>) -> Offset {
            let offset = i64::try_from(self.source.len()).expect("few");
            let number_text = number.to_string();
            let number_header = [(Content::NUMBER_HEADER, number_text.as_str())];
            let headers = headers.iter().chain(&number_header).map(|(name, value)| text(name, value)).collect();
            let record =
                Record { partition: 0, offset, timestamp_ms: Some(WRITTEN_MS), key: None, value: None, headers };
            self.source.push(record);
            if let Some(code) = code {
                self.receipt(number, (0, offset), code);
            }
            (0, offset)
        }

        fn receipt(&mut self, number: u64, place: Offset, code: &str) -> &mut Receipt {
            let receipts = self.receipts.entry(place).or_default();
            receipts.push(Receipt {
                code: code.to_owned(),
                message_id: Some(format!("ndm1_{number}")),
                deliver_at_ms: None,
                expires_at_ms: None,
                source_partition: place.0,
                source_offset: place.1,
            });
            receipts.last_mut().expect("just pushed")
        }

        fn scheduled(&mut self) -> (u64, Offset) {
            let number = self.planned();
            let place = self.record(number, &[("nereus-delay", "500ms")], Some("SCHEDULED"));
            (number, place)
        }

        fn replayed(mut self) -> (Ledger, IngressAccount, Vec<Rule>) {
            let account = replay(&mut self.ledger, &self.source, &self.receipts, &self.refusals);
            let rules = self.ledger.violations().iter().map(|violation| violation.rule).collect();
            (self.ledger, account, rules)
        }

        fn rules(self) -> Vec<Rule> {
            self.replayed().2
        }
    }

    #[test]
    fn records_that_came_to_what_they_ask_for_enter_the_ledger_in_their_order() {
        let mut history = History::default();
        let (moved, _) = history.scheduled();
        let place = history.record(moved, &[("nereus-reschedule", "0"), ("nereus-delay", "900ms")], None);
        history.receipt(moved, place, "SUPERSEDED").deliver_at_ms = Some(WRITTEN_MS + 900);
        let (canceled, place) = history.scheduled();
        history.receipt(canceled, place, "SCHEDULED");
        history.record(canceled, &[("nereus-cancel", "1")], Some("CANCELED"));
        let misspelt = history.planned();
        let headers = [("nereus-delay", "500ms"), (MISSPELT, "1s")];
        let place = history.record(misspelt, &headers, Some(INVALID_HEADER));
        history.refusals.insert(place, INVALID_HEADER.to_owned());

        let (ledger, account, rules) = history.replayed();
        assert_eq!(rules, []);
        let expected = IngressAccount { records: 5, scheduled: 2, changed: 2, refused: 1, repeated_receipts: 1 };
        assert_eq!(account, expected);
        let entry = |number| ledger.entry(number).expect("planned");
        assert_eq!((entry(moved).due_ms(), entry(moved).version), (WRITTEN_MS + 900, Some(2)));
        assert!(entry(canceled).has_ended() && entry(canceled).is_taken() && !entry(misspelt).is_taken());
    }

    #[test]
    fn a_record_without_a_receipt_is_caught() {
        let mut history = History::default();
        let number = history.planned();
        history.record(number, &[("nereus-delay", "500ms")], None);
        assert_eq!(history.rules(), [Rule::Lost]);
    }

    #[test]
    fn a_record_that_schedules_twice_is_caught() {
        let mut history = History::default();
        let (number, place) = history.scheduled();
        history.receipt(number, place, "SCHEDULED").message_id = Some("ndm1_other".to_owned());
        assert_eq!(history.rules(), [Rule::EndChanged]);
    }

    #[test]
    fn a_repeated_receipt_of_a_change_may_know_less_and_nothing_else() {
        for (code, message_id, expected) in [
            ("CANCELED", None, vec![]),
            ("TOO_LATE", None, vec![Rule::EndChanged]),
            ("CANCELED", Some("ndm1_other".to_owned()), vec![Rule::EndChanged]),
        ] {
            let mut history = History::default();
            let (number, _) = history.scheduled();
            let place = history.record(number, &[("nereus-cancel", "0")], Some("CANCELED"));
            history.receipt(number, place, code).message_id = message_id;
            assert_eq!(history.rules(), expected, "{code}");
        }
    }

    #[test]
    fn a_time_that_the_record_does_not_ask_for_is_caught() {
        let mut history = History::default();
        let (_, place) = history.scheduled();
        history.receipts.get_mut(&place).expect("there")[0].deliver_at_ms = Some(DUE_MS - 1);
        assert_eq!(history.rules(), [Rule::WrongAnswer]);
    }

    #[test]
    fn a_receipt_from_after_a_crash_may_show_the_time_that_a_later_record_asked_for() {
        let mut history = History::default();
        let (number, place) = history.scheduled();
        history.receipts.get_mut(&place).expect("there")[0].deliver_at_ms = Some(WRITTEN_MS + 900);
        history.record(number, &[("nereus-reschedule", "0"), ("nereus-delay", "900ms")], Some("SUPERSEDED"));
        assert_eq!(history.rules(), []);
    }

    #[test]
    fn refusals_of_good_records_and_receipts_of_bad_ones_are_caught() {
        let mut history = History::default();
        let number = history.planned();
        let place = history.record(number, &[("nereus-delay", "500ms")], Some("INVALID_DELIVERY_WINDOW"));
        history.refusals.insert(place, "INVALID_DELIVERY_WINDOW".to_owned());
        assert_eq!(history.rules(), [Rule::WrongAnswer]);

        let mut history = History::default();
        let number = history.planned();
        history.record(number, &[("nereus-delay", "500ms"), (MISSPELT, "1s")], Some("SCHEDULED"));
        assert_eq!(history.rules(), [Rule::WrongAnswer]);
    }

    #[test]
    fn a_refusal_that_is_not_in_the_refusals_topic_is_caught_and_so_is_one_too_many() {
        for is_refused in [false, true] {
            let mut history = History::default();
            let number = history.planned();
            let headers = [("nereus-delay", "500ms"), (MISSPELT, "1s")];
            let place =
                if is_refused { history.scheduled().1 } else { history.record(number, &headers, Some(INVALID_HEADER)) };
            if is_refused {
                history.refusals.insert(place, INVALID_HEADER.to_owned());
            }
            assert_eq!(history.rules(), [Rule::WrongAnswer], "{is_refused}");
        }
    }

    #[test]
    fn a_record_of_nobody_is_caught() {
        let mut history = History::default();
        history.record(7, &[("nereus-delay", "500ms")], Some("SCHEDULED"));
        assert_eq!(history.rules(), [Rule::Foreign]);
    }
}
