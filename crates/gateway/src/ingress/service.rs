//! Ingresses as operators set them up: created, shown, paused, deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::api::destination::Check;
use client::api::ingress::{Ingress, IngressPartition, IngressSpec, IngressState};
use client::api::kafka::KafkaConnection;
use client::api::problem::{Problem, SurfaceCode};
use client::instant::format_instant_ms;
use control::cas::{Change, Record as _, RecordError};
use control::ingress::{self, IngressProgress, IngressRecord};
use data_encoding::HEXLOWER;
use ports::source::{Source, SourcePartition, SourceSystem};
use ports::target::TargetError;

use super::settings::Settings;
use super::status::{Entry, PartitionStatus};
use crate::destinations;
use crate::messages::parse::invalid;
use crate::problem::record_problem;
use crate::state::Gateway;

/// The only system whose topics can schedule, as requests name it.
const KAFKA: &str = "kafka";

/// Creates an ingress or changes it. The same request again changes nothing. Says whether it was created.
pub(crate) async fn put(
    gateway: &Gateway,
    name: &str,
    spec: IngressSpec,
    dry_run: bool,
) -> Result<(Ingress, bool), Problem> {
    check_name(name)?;
    let wanted = record_of(gateway, name, spec)?;
    let existing = gateway.ingresses.get(name).and_then(|entry| entry.record());
    let (next, is_new) = succeed(existing.as_deref(), &wanted)?;
    let settings = Settings::read(&next).map_err(|detail| Problem::new(SurfaceCode::Internal, detail))?;
    let system = system(gateway)?;
    // Everything is checked before anything is made.
    let planned = system.check(settings.source(), true).await.map_err(source_problem)?;
    if dry_run {
        let view = view(gateway, &next, &Entry::new(next.clone())).await?;
        return Ok((Ingress { checks: checks(&planned), ..view }, is_new));
    }
    let source = system.check(settings.source(), false).await.map_err(source_problem)?;
    let key = ingress::key(&gateway.config.tenant, name);
    let (record, is_new) = gateway
        .records
        .change(&key, |current: Option<&IngressRecord>| {
            let (next, is_new) = succeed(current, &wanted)?;
            let is_same = current == Some(&next);
            let result = (next.clone(), is_new);
            Ok(if is_same { Change::Keep(result) } else { Change::Write(next, result) })
        })
        .await
        .map_err(|error: Refused| error.0)?;
    let entry = gateway.ingresses.put(record.clone());
    let view = view(gateway, &record, &entry).await?;
    Ok((Ingress { checks: checks(&source), ..view }, is_new))
}

/// A problem inside of a change.
struct Refused(Problem);

impl From<RecordError> for Refused {
    fn from(error: RecordError) -> Self {
        Refused(record_problem(error))
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Refused(problem)
    }
}

/// What follows the record that is there, and whether none is.
fn succeed(current: Option<&IngressRecord>, wanted: &IngressRecord) -> Result<(IngressRecord, bool), Problem> {
    let Some(current) = current else { return Ok((wanted.clone(), true)) };
    let next = IngressRecord { paused: current.paused, created_at_ms: current.created_at_ms, ..wanted.clone() };
    current.check_successor(&next).map_err(|rule| {
        let detail = format!("ingress {:?}: {rule}; create another ingress for it, under another name", wanted.name);
        Problem::new(SurfaceCode::IngressConflict, detail)
    })?;
    Ok((next, false))
}

/// The record of a request, with what it left open settled.
fn record_of(gateway: &Gateway, name: &str, mut spec: IngressSpec) -> Result<IngressRecord, Problem> {
    let Some(KafkaConnection { topic, .. }) = spec.kafka.clone() else {
        return Err(invalid(KAFKA, "name the system the topic is on: kafka".to_owned()));
    };
    if let Some(destination) = &spec.destination
        && gateway.destinations.get(destination).is_none()
    {
        return Err(destinations::unknown(gateway, destination));
    }
    let group = spec.group.get_or_insert_with(|| format!("nereus-delay.{name}")).clone();
    let refusals = spec.refusals.get_or_insert_with(|| format!("{topic}.refused")).clone();
    // A side topic that is read again would go round for ever.
    if refusals == topic {
        return Err(conflict("refusals", format!("refusals and the topic are both {topic:?}")));
    }
    match &spec.receipts {
        Some(receipts) if *receipts == topic => {
            return Err(conflict("receipts", format!("receipts and the topic are both {topic:?}")));
        }
        Some(receipts) if *receipts == refusals => {
            let detail = format!("refusals and receipts are both {receipts:?}; each needs a topic of its own");
            return Err(conflict("receipts", detail));
        }
        _ => {}
    }
    for (field, text) in [("kafka.topic", &topic), ("group", &group), ("refusals", &refusals)] {
        if text.is_empty() {
            return Err(invalid(field, format!("{field} is empty")));
        }
    }
    Ok(IngressRecord {
        name: name.to_owned(),
        system: KAFKA.to_owned(),
        topic,
        group,
        paused: false,
        // A plain struct of strings serialises.
        spec: serde_json::to_value(&spec).unwrap_or_default(),
        created_at_ms: gateway.now_ms(),
    })
}

fn conflict(field: &'static str, detail: String) -> Problem {
    Problem::new(SurfaceCode::IngressConflict, detail).field(field)
}

fn system(gateway: &Gateway) -> Result<Arc<dyn SourceSystem>, Problem> {
    let missing = || invalid(KAFKA, "this server cannot read topics of Kafka".to_owned());
    gateway.sources.get(KAFKA).cloned().ok_or_else(missing)
}

fn source_problem(error: TargetError) -> Problem {
    match error {
        TargetError::Malformed { reason, field } => Problem::new(SurfaceCode::InvalidField, reason).field(field),
        TargetError::Refused { reason, field } => Problem::new(SurfaceCode::IngressConflict, reason).field(field),
        TargetError::CheckFailed { ref checks } => {
            let checks = checks.iter().map(check).collect();
            Problem { checks, ..Problem::new(SurfaceCode::IngressCheckFailed, error.to_string()) }
        }
        TargetError::Unavailable { reason } => {
            Problem::new(SurfaceCode::Unavailable, format!("the source system is unavailable: {reason}"))
        }
    }
}

fn checks(source: &Source) -> Vec<Check> {
    source.checks.iter().map(check).collect()
}

fn check(check: &ports::target::TargetCheck) -> Check {
    Check { name: check.name.to_owned(), ok: check.ok, detail: check.detail.clone() }
}

/// Lets an ingress rest, or go on.
pub(crate) async fn set_paused(gateway: &Gateway, name: &str, paused: bool) -> Result<Ingress, Problem> {
    let key = ingress::key(&gateway.config.tenant, name);
    let changed: Result<Option<IngressRecord>, RecordError> = gateway
        .records
        .change(&key, |current: Option<&IngressRecord>| {
            Ok(match current {
                Some(current) if current.paused != paused => {
                    let next = IngressRecord { paused, ..current.clone() };
                    Change::Write(next.clone(), Some(next))
                }
                unchanged => Change::Keep(unchanged.cloned()),
            })
        })
        .await;
    let record = changed.map_err(record_problem)?.ok_or_else(|| unknown(gateway, name))?;
    let entry = gateway.ingresses.put(record.clone());
    view(gateway, &record, &entry).await
}

/// Deletes an ingress, and says what it was. What it has settled stays known: made again under its name, it goes on there.
pub(crate) async fn delete(gateway: &Gateway, name: &str) -> Result<Ingress, Problem> {
    let key = ingress::key(&gateway.config.tenant, name);
    loop {
        let stored = gateway.records.get::<IngressRecord>(&key).await.map_err(record_problem)?;
        let Some(stored) = stored else {
            gateway.ingresses.remove(name);
            return Err(unknown(gateway, name));
        };
        let entry = gateway.ingresses.put(stored.record.clone());
        let last = view(gateway, &stored.record, &entry).await?;
        if gateway.records.delete(&key, &stored).await.map_err(record_problem)? {
            gateway.ingresses.remove(name);
            return Ok(last);
        }
    }
}

/// One ingress.
pub(crate) async fn get(gateway: &Gateway, name: &str) -> Result<Ingress, Problem> {
    let entry = gateway.ingresses.get(name);
    match entry.as_ref().and_then(|entry| Some((entry.record()?, entry))) {
        Some((record, entry)) => view(gateway, &record, entry).await,
        None => Err(unknown(gateway, name)),
    }
}

/// Every ingress, ascending by name.
pub(crate) async fn list(gateway: &Gateway) -> Result<Vec<Ingress>, Problem> {
    let mut items = Vec::new();
    for entry in gateway.ingresses.all() {
        if let Some(record) = entry.record() {
            items.push(view(gateway, &record, &entry).await?);
        }
    }
    Ok(items)
}

fn unknown(gateway: &Gateway, name: &str) -> Problem {
    let known: Vec<String> =
        gateway.ingresses.all().iter().filter_map(|entry| Some(entry.record()?.name.clone())).collect();
    let hint = if known.is_empty() {
        "there is none yet; create one with PUT /v1/ingresses/{name} or nereus-delay ingress create".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    Problem::new(SurfaceCode::UnknownIngress, format!("there is no ingress {name:?}; {hint}")).field("name")
}

/// An ingress as callers see it: its record, how it is, and what is stored of its progress.
async fn view(gateway: &Gateway, record: &IngressRecord, entry: &Entry) -> Result<Ingress, Problem> {
    let prefix = ingress::progress_prefix(&gateway.config.tenant, &record.name);
    let stored = gateway.records.list::<IngressProgress>(&prefix).await.map_err(record_problem)?;
    let floors = stored.into_iter().filter_map(|(key, stored)| {
        let (topic, partition) = ingress::parse_progress_key(&prefix, &key)?;
        Some((SourcePartition { topic, partition }, stored.record.from))
    });
    let mut floors: BTreeMap<SourcePartition, Option<u64>> =
        floors.map(|(place, floor)| (place, Some(floor))).collect();
    let status = entry.status();
    for place in status.partitions.keys() {
        floors.entry(place.clone()).or_default();
    }
    let partitions = floors.into_iter().map(|(place, floor)| partition(&place, floor, status.partitions.get(&place)));
    let (state, reason) = status.state(record.paused);
    Ok(Ingress {
        name: record.name.clone(),
        state,
        reason,
        last_error: status.last_error.clone(),
        system: record.system.clone(),
        topic: record.topic.clone(),
        spec: serde_json::from_value(record.spec.clone()).unwrap_or_default(),
        records: entry.counters.records(),
        lag: if status.is_open { status.lag() } else { None },
        partitions: partitions.collect(),
        created_at: format_instant_ms(record.created_at_ms),
        created_at_ms: record.created_at_ms,
        checks: Vec::new(),
    })
}

fn partition(place: &SourcePartition, stored: Option<u64>, known: Option<&PartitionStatus>) -> IngressPartition {
    IngressPartition {
        topic_id: HEXLOWER.encode(&place.topic),
        partition: place.partition,
        state: known.map(|known| match (&known.reason, known.floor) {
            (Some(_), _) => IngressState::Failed,
            (None, None) => IngressState::Starting,
            (None, Some(_)) => IngressState::Running,
        }),
        reason: known.and_then(|known| known.reason.clone()),
        floor: known.and_then(|known| known.floor).or(stored).unwrap_or(0),
        end: known.and_then(|known| known.end),
        lag: known.and_then(PartitionStatus::lag),
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    const LENGTH_MAX: usize = 200;
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    if name.is_empty() || name.len() > LENGTH_MAX || !name.chars().all(allowed) || name.starts_with('_') {
        let detail = format!(
            "{name:?} is no ingress name: 1 to {LENGTH_MAX} of a-z, A-Z, 0-9, dot, underscore and hyphen, not starting \
             with an underscore"
        );
        return Err(invalid("name", detail));
    }
    Ok(())
}
