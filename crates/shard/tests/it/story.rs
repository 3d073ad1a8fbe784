//! A tiny language for stories about a shard: one line a record, and what it came to behind it.
//!
//! ```text
//! at 10s schedule m deliver=1m expire=2m key=order-7
//! at 1m  admit m
//! show m
//! ```
//!
//! Times count from the start of the log. Every line is told to the model too, which must agree; so a snapshot says what a user
//! sees, and the model says why. Options that are left out have the plainest value.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::command::{
    AdapterMetadata, ClientCommand, CommandBody, KafkaHeader, KafkaMetadata, OrderingMode, Precondition,
};
use protocol::id::{CommandId, MessageId, ShardId, Uuid7};
use protocol::mutation_v2::{
    Admission, ControlPayload, DestinationRebind, Disposition, Limits, Outcome, Refusal, Roles,
};
use protocol::policy::{RetryPolicy, UncertainPolicy};
use protocol::resource::Resource;
use shard::commit::{Shard, ShardIdentity};
use shard::effect::Effect;
use shard::machine::SourceRecord;
use shard::machine::verdict::{RecordResult, Rule, Status, Verdict};
use shard::memory::{MemoryDisk, MemoryStore};
use shard::query::{self, PositionResult};
use shard::state::generation::MessageState;
use testkit::log::{
    self, AttemptId, Destination, LogWriter, Operation, Owner, START_MS, default_limits, default_policy, key_entry,
};
use testkit::model::{Model, audit, compare};

/// Tells a story with the default limits and compares what came of it.
pub(crate) fn check(script: &str, expected: &expect_test::Expect) {
    check_with(default_limits(), script, expected);
}

/// Tells a story with these limits and compares what came of it.
pub(crate) fn check_with(limits: Limits, script: &str, expected: &expect_test::Expect) {
    expected.assert_eq(&tell(limits, script));
}

fn tell(limits: Limits, script: &str) -> String {
    let mut story = Story::new(limits);
    let mut told = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let result = story.line(line);
        writeln!(told, "{line:<60} → {result}").expect("a string has room");
    }
    compare::assert_agree(story.shard.store(), &story.model);
    audit::assert_consistent(story.shard.store());
    told
}

/// A shard with one destination `orders`, one policy `default` and owner 1, all from time 0.
pub(crate) struct Story {
    pub(crate) shard: Shard<MemoryStore>,
    pub(crate) model: Model,
    pub(crate) log: LogWriter,
    pub(crate) effects: Vec<Effect>,
    disk: MemoryDisk,
    identity: ShardIdentity,
    limits: Limits,
    owners: BTreeMap<u64, Owner>,
    owner: u64,
    messages: BTreeMap<String, Uuid7>,
    commands: BTreeMap<String, (Bytes, CommandId, SourceRecord)>,
    operations: BTreeMap<String, Operation>,
    destinations: BTreeMap<String, Destination>,
    policies: BTreeMap<String, RetryPolicy>,
    last: Bytes,
}

/// What follows a verb: names, and options of the form `name=value`.
struct Args<'a> {
    names: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Args<'a> {
    fn new(words: impl Iterator<Item = &'a str>) -> Args<'a> {
        let mut args = Args { names: Vec::new(), options: BTreeMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((name, value)) => drop(args.options.insert(name, value)),
                None => args.names.push(word),
            }
        }
        args
    }

    fn name(&self) -> &'a str {
        self.names.first().copied().expect("the verb needs a name")
    }

    fn time(&self, option: &str) -> Option<i64> {
        self.options.get(option).map(|text| time(text))
    }

    fn number(&self, option: &str) -> Option<u64> {
        self.options.get(option).map(|text| text.parse().expect("a number"))
    }

    fn small(&self, option: &str) -> Option<u32> {
        self.number(option).map(|number| u32::try_from(number).expect("a small number"))
    }

    fn has(&self, flag: &str) -> bool {
        self.names.contains(&flag)
    }
}

/// `90s`, `1h+1ms`, `2d-1ms`: milliseconds since the epoch, counted from the start of the log.
fn time(text: &str) -> i64 {
    START_MS + duration(text)
}

fn duration(text: &str) -> i64 {
    let mut total = 0;
    let mut rest = text;
    let mut sign = 1;
    while !rest.is_empty() {
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |at| at + 1);
        let (term, tail) = rest.split_at(end);
        let term = match term.strip_prefix(['+', '-']) {
            Some(bare) => {
                sign = if term.starts_with('-') { -1 } else { 1 };
                bare
            }
            None => term,
        };
        let digits = term.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(term.len());
        let count: i64 = term[..digits].parse().expect("a number of units");
        let unit = match &term[digits..] {
            "" if count == 0 => 1,
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            unit => panic!("no unit {unit:?}"),
        };
        total += sign * count * unit;
        rest = tail;
    }
    total
}

fn show_time(time_ms: i64) -> String {
    let mut rest = time_ms - START_MS;
    if rest == 0 {
        return "0".to_owned();
    }
    let mut shown = if rest < 0 { "-".to_owned() } else { String::new() };
    rest = rest.abs();
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= length {
            if !shown.is_empty() && shown != "-" {
                shown.push('+');
            }
            write!(shown, "{}{unit}", rest / length).expect("a string has room");
            rest %= length;
        }
    }
    shown
}

impl Story {
    pub(crate) fn new(limits: Limits) -> Story {
        let log = LogWriter::default();
        let genesis = log.genesis_mutation(limits);
        let protocol::mutation_v2::MutationBody::ShardControl(control) = &genesis.body else { panic!("a genesis") };
        let ControlPayload::Genesis(body) = &control.payload else { panic!("a genesis") };
        let identity = ShardIdentity { shard: log.shard(), genesis_hash: genesis.hash };
        let disk = MemoryDisk::new();
        let mut story = Story {
            shard: Shard::open(disk.open(), identity).expect("an empty store opens"),
            model: Model::new(body),
            log,
            effects: Vec::new(),
            disk,
            identity,
            limits,
            owners: BTreeMap::new(),
            owner: 1,
            messages: BTreeMap::new(),
            commands: BTreeMap::new(),
            operations: BTreeMap::new(),
            destinations: BTreeMap::new(),
            policies: BTreeMap::new(),
            last: Bytes::new(),
        };
        let record = story.log.genesis(limits);
        story.shard.commit(&[record]).expect("a genesis founds its shard");
        story.line("policy default");
        story.line("destination orders");
        story.line("owner 1");
        story.effects.clear();
        story
    }

    /// Carries out one line and says what came of it.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let mut verb = words.next().expect("a line has a verb");
        if verb == "at" {
            self.log.set_now(time(words.next().expect("at needs a time")));
            verb = words.next().expect("a line has a verb");
        }
        let args = Args::new(words);
        let record = match verb {
            "schedule" | "cancel" | "reschedule" | "prepare" | "unreadable" => self.command(verb, &args),
            "again" => {
                let frame = match args.names.first() {
                    Some(name) => self.commands[*name].0.clone(),
                    None => self.last.clone(),
                };
                self.log.append(frame)
            }
            "owner" => self.owner_epoch(&args),
            "admit" => self.admit(&args),
            "published" | "retriable" | "permanent" | "lane" | "unknown" => self.outcome(verb, &args),
            "resolve" => self.resolve(&args),
            "refuse" => self.refuse(&args),
            "fence" => self.fence(&args),
            "policy" => self.policy(&args),
            "destination" => self.destination(&args),
            "control" => self.control(&args),
            "garbage" => self.log.append(Bytes::from_static(b"garbage")),
            "reopen" => {
                self.shard = Shard::open(self.disk.open(), self.identity).expect("it was open before");
                return "opened".to_owned();
            }
            "release" => {
                self.shard.release_ended();
                return "released".to_owned();
            }
            "show" => return self.show(args.name()),
            "topic" => return self.topic(args.name()),
            "key" => return self.show_key(args.name()),
            "counts" => return self.counts(),
            "quota" => {
                let progress = self.shard.progress().expect("founded");
                return format!("{} live, {} bytes", progress.active_messages, progress.active_bytes);
            }
            "result" => return self.result_of(args.name()),
            verb => panic!("no verb {verb:?}"),
        };
        self.apply(record)
    }

    /// Has the shard and the model apply a record; they must agree.
    pub(crate) fn apply(&mut self, record: SourceRecord) -> String {
        self.last = record.frame.clone();
        let expected = self.model.apply(record.position.broker_time_ms(), &record.frame);
        let committed = self.shard.commit(std::slice::from_ref(&record)).expect("the store answers");
        let result = &committed.results()[0].result;
        assert_eq!(compare::answer(result), expected, "{result:?}");
        self.effects.extend_from_slice(committed.effects());
        show_result(result)
    }

    pub(crate) fn message(&mut self, name: &str) -> Uuid7 {
        if !self.messages.contains_key(name) {
            let uuid = self.log.message_id().uuid;
            self.messages.insert(name.to_owned(), uuid);
        }
        self.messages[name]
    }

    fn command(&mut self, verb: &str, args: &Args<'_>) -> SourceRecord {
        if let Some(made_ms) = args.time("made") {
            let uuid = self.log.uuid(made_ms);
            self.messages.insert(args.name().to_owned(), uuid);
        }
        let uuid = self.message(args.name());
        let partition = args.small("partition").unwrap_or_else(|| self.log.shard().partition);
        let message = MessageId { shard: ShardId { partition, ..self.log.shard() }, uuid };
        let expected = Precondition { generation: args.small("generation"), state_version: args.number("version") };
        let now_ms = self.log.now_ms();
        let deliver_at_ms = args.time("deliver").unwrap_or(now_ms);
        let expire_at_ms = args.time("expire").unwrap_or(deliver_at_ms + 3_600_000);
        let body = match verb {
            "schedule" => self.schedule(args, deliver_at_ms, expire_at_ms),
            "cancel" => log::cancel(expected),
            "reschedule" => log::reschedule(expected, deliver_at_ms, expire_at_ms),
            "unreadable" => {
                let frame = self.log.unreadable_command(&self.limits, message);
                return self.log.append(frame);
            }
            _ => self.prepare_large(deliver_at_ms, expire_at_ms),
        };
        let command_uuid = match args.options.get("id") {
            Some(name) if self.commands.contains_key(*name) => self.commands[*name].1.uuid,
            _ => self.log.uuid(args.time("command-made").unwrap_or(now_ms)),
        };
        let mut command = self.log.prepare_as(command_uuid, &self.limits, message, body);
        if let Some(retry_until_ms) = args.time("retry-until") {
            command = ClientCommand::new(command.command_id, message, retry_until_ms, command.body).expect("legal");
        }
        let record = self.log.command(&command);
        if let Some(name) = args.options.get("id") {
            self.commands.insert((*name).to_owned(), (record.frame.clone(), command.command_id, record.clone()));
        }
        record
    }

    fn schedule(&mut self, args: &Args<'_>, deliver_at_ms: i64, expire_at_ms: i64) -> CommandBody {
        let destination = &self.destinations[args.options.get("to").copied().unwrap_or("orders")];
        let policy = &self.policies[args.options.get("policy").copied().unwrap_or("default")];
        let payload = vec![b'p'; usize::try_from(args.number("bytes").unwrap_or(0)).expect("a small number")];
        let mut intent = destination.intent(policy, deliver_at_ms, expire_at_ms, payload);
        intent.business_key = args.options.get("key").map(|key| Bytes::copy_from_slice(key.as_bytes()));
        if let Some(version) = args.number("profile-version") {
            intent.profile.version = version;
        }
        if args.has("wrong-profile-hash") {
            intent.profile.semantic_hash = [0; 32];
        }
        if args.has("wrong-policy-hash") {
            intent.retry_policy.semantic_hash = [0; 32];
        }
        if args.has("ordered") {
            intent.ordering = OrderingMode::DeliveryTimeFifo;
        }
        if args.has("pulsar") {
            intent.metadata = AdapterMetadata::Pulsar(protocol::command::PulsarMetadata::default());
        }
        if let Some(name) = args.options.get("header") {
            let header = KafkaHeader { name: (*name).try_into().expect("text"), value: Bytes::new() };
            intent.metadata = AdapterMetadata::Kafka(KafkaMetadata { key: None, headers: vec![header] });
        }
        log::schedule(intent)
    }

    fn prepare_large(&self, deliver_at_ms: i64, expire_at_ms: i64) -> CommandBody {
        let mut intent = self.destinations["orders"].intent(&self.policies["default"], deliver_at_ms, expire_at_ms, "");
        intent.payload = None;
        let trust_set = protocol::reference::TrustSetRef { version: 1, semantic_hash: [1; 32] };
        let store = protocol::reference::ProfileRef { id: "objects".into(), version: 1, semantic_hash: [2; 32] };
        let body = protocol::command::PrepareLarge::new(intent, 1, [3; 32], 1, trust_set, store).expect("legal");
        CommandBody::PrepareLarge(Box::new(body))
    }

    fn owner_mut(&mut self, args: &Args<'_>) -> Owner {
        let epoch = args.number("by").unwrap_or(self.owner);
        self.owners.get(&epoch).expect("an owner that was there").clone()
    }

    fn owner_epoch(&mut self, args: &Args<'_>) -> SourceRecord {
        let epoch: u64 = args.name().parse().expect("an epoch");
        let mut owner = Owner::new(epoch);
        if let Some(run) = args.number("run") {
            owner.run = [u8::try_from(run).expect("a small number"); 16];
        }
        owner.key_version = args.small("key").unwrap_or(owner.key_version);
        let record = self.log.owner_epoch(&mut owner);
        self.owners.insert(epoch, owner);
        self.owner = epoch;
        record
    }

    fn interval(&self, args: &Args<'_>) -> (i64, i64) {
        let earliest_ms = args.time("earliest").unwrap_or_else(|| self.log.now_ms());
        (earliest_ms, args.time("latest").unwrap_or(earliest_ms).max(earliest_ms))
    }

    fn admit(&mut self, args: &Args<'_>) -> SourceRecord {
        for name in &args.names {
            self.message(name);
        }
        let entry = |name: &&str| {
            let message = self.messages[*name];
            let row = self.model.message(message);
            Admission {
                message,
                generation: args.small("generation").or(row.map(|row| row.generation)).unwrap_or(0),
                log_rev: args.number("rev").or(row.map(|row| row.log_rev)).unwrap_or(1),
                sequence: None,
            }
        };
        let entries = args.names.iter().map(entry).collect();
        let mut owner = self.owner_mut(args);
        self.log.admission(&mut owner, self.interval(args), entries)
    }

    fn attempt(&self, args: &Args<'_>) -> AttemptId {
        let message = self.messages[*args.names.last().expect("an outcome is of a message")];
        let row = self.model.message(message).expect("a message that was scheduled");
        let last = row.open.keys().next_back().copied().unwrap_or(row.attempts_used);
        let generation = args.small("generation").unwrap_or(row.generation);
        AttemptId { message, generation, attempt: args.small("attempt").unwrap_or(last) }
    }

    fn entry(&self, verb: &str, args: &Args<'_>) -> Outcome {
        let attempt = self.attempt(args);
        match verb {
            "published" => attempt.published(self.log.now_ms()),
            "retriable" | "absent" => attempt.not_published(Disposition::MessageRetriable),
            "permanent" => attempt.not_published(Disposition::MessagePermanent),
            "lane" => attempt.not_published(Disposition::LaneUnavailable),
            _ => attempt.unknown(),
        }
    }

    fn outcome(&mut self, verb: &str, args: &Args<'_>) -> SourceRecord {
        let entry = self.entry(verb, args);
        let mut owner = self.owner_mut(args);
        self.log.outcomes(&mut owner, self.interval(args), vec![entry])
    }

    fn resolve(&mut self, args: &Args<'_>) -> SourceRecord {
        let entry = self.entry(args.name(), args);
        let mut owner = self.owner_mut(args);
        self.log.resolutions(&mut owner, self.interval(args), vec![entry])
    }

    fn refuse(&mut self, args: &Args<'_>) -> SourceRecord {
        let message = self.messages[args.name()];
        let row = self.model.message(message).expect("a message that was scheduled");
        let entry = Refusal {
            message,
            generation: args.small("generation").unwrap_or(row.generation),
            log_rev: args.number("rev").unwrap_or(row.log_rev),
            code: StableCode::ClaimPermanentFailure,
        };
        let mut owner = self.owner_mut(args);
        self.log.refusals(&mut owner, self.interval(args), vec![entry])
    }

    fn fence(&mut self, args: &Args<'_>) -> SourceRecord {
        let close_through_ms = time(args.name());
        let earliest_ms = args.time("earliest").unwrap_or(close_through_ms + self.limits.fence_margin_ms);
        let latest_ms = args.time("latest").unwrap_or(earliest_ms);
        let mut owner = self.owner_mut(args);
        self.log.fence(&mut owner, (earliest_ms, latest_ms), close_through_ms, args.small("max").unwrap_or(100))
    }

    fn policy(&mut self, args: &Args<'_>) -> SourceRecord {
        let option_ms = |name| args.options.get(name).map(|text| duration(text).unsigned_abs());
        let mut policy = RetryPolicy { id: Bytes::copy_from_slice(args.name().as_bytes()), ..default_policy() };
        policy.publish_admissions_max = args.small("attempts").unwrap_or(policy.publish_admissions_max);
        policy.uncertain_retries_max = args.small("unknown").unwrap_or(policy.uncertain_retries_max);
        policy.retry_duration_ms_max = option_ms("duration").unwrap_or(policy.retry_duration_ms_max);
        // Without an option there is no jitter, so that a story can name its times.
        policy.initial_backoff_ms = option_ms("backoff").unwrap_or(0);
        policy.backoff_ms_max = policy.initial_backoff_ms;
        if args.has("terminal") || args.has("hold") {
            policy.uncertain = if args.has("hold") {
                UncertainPolicy::HoldForEvidence
            } else {
                UncertainPolicy::BoundedTerminalPossibleDelivery
            };
            policy.uncertain_retries_max = 0;
        }
        self.policies.insert(args.name().to_owned(), policy.clone());
        self.log.control(ControlPayload::RetryPolicyActivate(Box::new(policy)))
    }

    fn destination(&mut self, args: &Args<'_>) -> SourceRecord {
        let mut destination = Destination::new(args.name(), &self.policies["default"]);
        let body = &mut destination.body;
        body.partition_count = args.small("partitions").unwrap_or(body.partition_count);
        body.lane_bucket_count = args.small("buckets").unwrap_or(body.lane_bucket_count);
        body.record_bytes_max = args.small("bytes").map_or(body.record_bytes_max, |bytes| bytes + 1_000);
        body.delay_ms_max = args.options.get("delay").map_or(body.delay_ms_max, |text| duration(text));
        self.destinations.insert(args.name().to_owned(), destination.clone());
        self.log.control(destination.activate())
    }

    fn control(&mut self, args: &Args<'_>) -> SourceRecord {
        let about = args.names.get(1).copied().unwrap_or_default();
        let id = Bytes::copy_from_slice(about.as_bytes());
        let lane = |story: &Story| {
            let row = story.messages.get(about).and_then(|message| story.model.message(*message));
            row.map_or(protocol::lane::LaneId([0; 32]), |row| story.model.lanes()[&row.lane].0)
        };
        let payload = match args.name() {
            "pause-lane" => ControlPayload::LanePause(lane(self)),
            "resume-lane" => ControlPayload::LaneResume(lane(self)),
            "pause" => ControlPayload::DestinationPause { profile_id: id },
            "resume" => ControlPayload::DestinationResume { profile_id: id },
            "activate" => self.destinations[about].activate(),
            "close" => Destination::new(about, &self.policies["default"]).close(),
            "close-policy" => ControlPayload::RetryPolicyClose { policy_id: id, version: 1 },
            "activate-policy" => ControlPayload::RetryPolicyActivate(Box::new(self.policies[about].clone())),
            "rebind" => self.rebinding(about, args.options.get("topic").copied().unwrap_or_default()),
            "stop" => ControlPayload::StopNewSchedules,
            "genesis" => match self.log.genesis_mutation(self.limits).body {
                protocol::mutation_v2::MutationBody::ShardControl(control) => control.payload,
                _ => panic!("a genesis"),
            },
            "add-key" => {
                let roles = Roles { owner: args.has("owner"), control: args.has("control") };
                ControlPayload::KeyAdd(key_entry(about.parse().expect("a key version"), roles))
            }
            "retire-key" => ControlPayload::KeyRetire { version: about.parse().expect("a key version") },
            verb => panic!("no operation {verb:?}"),
        };
        let mut operation = match args.options.get("operation") {
            Some(name) => {
                let new = self.log.operation();
                *self.operations.entry((*name).to_owned()).or_insert(new)
            }
            None => self.log.operation(),
        };
        operation.expected_version = args.number("version");
        operation.key_version = args.small("signed").unwrap_or(operation.key_version);
        operation.retry_until_ms = args.time("until").unwrap_or(operation.retry_until_ms);
        self.log.control_as(&operation, payload)
    }

    /// To a topic that is named by a number, to the one that the body pins, or to one of Kafka.
    fn rebinding(&self, name: &str, topic: &str) -> ControlPayload {
        let profile_id = Bytes::copy_from_slice(name.as_bytes());
        let resource = match topic {
            "pinned" => self.destinations[name].body.resource.clone(),
            "kafka" => Resource::Kafka { cluster_id: "cluster".into(), topic: [1; 16] },
            number => Resource::Embedded { topic: [number.parse().expect("the number of a topic"); 16] },
        };
        ControlPayload::DestinationRebind(Box::new(DestinationRebind { profile_id, resource }))
    }

    /// Where a destination delivers, as its lanes would be told.
    fn topic(&self, name: &str) -> String {
        let resource = query::profile_resource(self.shard.store(), name.as_bytes(), 1).expect("the store answers");
        let profile = self.shard.bindings().and_then(|bindings| bindings.profile(name.as_bytes(), 1));
        assert_eq!(profile.map(|profile| profile.in_force().resource), resource);
        match resource {
            Some(pinned) if pinned == self.destinations[name].body.resource => "pinned".to_owned(),
            Some(Resource::Embedded { topic }) => format!("topic {}", topic[0]),
            other => panic!("{name} delivers to {other:?}"),
        }
    }

    fn show(&self, name: &str) -> String {
        let message = self.messages[name];
        let Some(view) = query::message(self.shard.store(), message).expect("the store answers") else {
            return "gone".to_owned();
        };
        let row = &view.row;
        let mut shown =
            format!("{} g{} v{} r{}", state_name(view.state), row.generation, row.state_version, row.log_rev);
        match &row.terminal {
            None => {
                let due = row.due_key().map_or("never".to_owned(), |key| show_time(key.eligible_at_ms));
                write!(shown, " due {due} expires {}", show_time(row.expire_at_ms))
            }
            Some(terminal) => {
                let code = StableCode::from_u32(terminal.code).expect("a stable code");
                let evidence = if terminal.evidence.is_some() { " with evidence" } else { "" };
                let (at, until) = (show_time(terminal.at_ms), show_time(terminal.ends_at_ms));
                write!(shown, " {} at {at} until {until}{evidence}", code.name())
            }
        }
        .expect("a string has room");
        if row.attempts_used > 0 {
            write!(shown, " attempts {}/{}", row.attempts_charged, row.attempts_used).expect("a string has room");
        }
        for open in &row.open {
            write!(shown, " {}:{}", open.attempt, if open.uncertain { "unknown" } else { "publishing" }).expect("room");
        }
        if row.possible_duplicate {
            shown.push_str(" maybe-twice");
        }
        shown
    }

    fn show_key(&self, key: &str) -> String {
        let newest = query::by_business_key(self.shard.store(), key.as_bytes()).expect("the store answers");
        let name = |uuid| self.messages.iter().find(|(_, message)| **message == uuid).map(|(name, _)| name.clone());
        newest.and_then(name).unwrap_or_else(|| "nobody".to_owned())
    }

    fn counts(&self) -> String {
        let mut counts: BTreeMap<MessageState, u64> = BTreeMap::new();
        for (lane_no, lane) in query::lanes(self.shard.store()).expect("the store answers") {
            let mut live = lane.live.unwrap_or_default();
            for state in MessageState::ALL {
                let kept = query::terminal_count(self.shard.store(), lane_no, state).expect("the store answers");
                *counts.entry(state).or_default() += live.counter(state).map_or(kept, |counter| *counter);
            }
        }
        let shown = counts.iter().filter(|(_, count)| **count > 0);
        shown.map(|(state, count)| format!("{} {count}", state_name(*state))).collect::<Vec<_>>().join(", ")
    }

    fn result_of(&self, name: &str) -> String {
        let (_, command, record) = &self.commands[name];
        let token = record.position.order_token();
        let result = query::result_at(self.shard.store(), token.as_bytes(), command.uuid.to_bytes());
        match result.expect("the store answers") {
            PositionResult::Command(verdict) => show_verdict(&verdict),
            PositionResult::Exception(position) => {
                format!("position {}{}", position.code.name(), show_rule(position.rule))
            }
            PositionResult::Unknown => "unknown".to_owned(),
        }
    }
}

fn show_rule(rule: Rule) -> String {
    if rule == Rule::None { String::new() } else { format!(" ({rule:?})") }
}

fn show_verdict(verdict: &Verdict) -> String {
    let status = if verdict.status == Status::Applied { "APPLIED" } else { "REJECTED" };
    let message = match (verdict.generation, verdict.state_version) {
        (Some(generation), Some(version)) => format!(" g{generation} v{version}"),
        _ => String::new(),
    };
    format!("{status} {}{message}{}", verdict.code.name(), show_rule(verdict.rule))
}

fn show_result(result: &RecordResult) -> String {
    match result {
        RecordResult::Command { verdict, .. } => show_verdict(verdict),
        RecordResult::Duplicate { verdict, .. } => format!("duplicate of {}", show_verdict(verdict)),
        RecordResult::Position(position) => format!("position {}{}", position.code.name(), show_rule(position.rule)),
        RecordResult::Owner { accepted, failed } => format!("{accepted} accepted, {failed} failed"),
        RecordResult::Control { code, rule, .. } => format!("control {}{}", code.name(), show_rule(*rule)),
    }
}

fn state_name(state: MessageState) -> &'static str {
    match state {
        MessageState::Scheduled => "SCHEDULED",
        MessageState::Publishing => "PUBLISHING",
        MessageState::RetryWait => "RETRY_WAIT",
        MessageState::Uncertain => "UNCERTAIN",
        MessageState::Published => "PUBLISHED",
        MessageState::Canceled => "CANCELED",
        MessageState::Expired => "EXPIRED",
        MessageState::DeadLetter => "DEAD_LETTER",
    }
}
