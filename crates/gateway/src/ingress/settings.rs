//! What an ingress is, as its record says it.

use client::api::ingress::IngressSpec;
use control::ingress::IngressRecord;
use ports::source::SourceSpec;

/// An ingress's record, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) name: String,
    /// The system, as requests name it.
    pub(super) system: String,
    pub(super) topic: String,
    pub(super) destination: Option<String>,
    pub(super) group: String,
    pub(super) refusals: String,
    pub(super) receipts: Option<String>,
    connection: serde_json::Value,
}

impl Settings {
    /// Reads a record.
    ///
    /// # Errors
    /// When it is not one that this version wrote.
    pub(super) fn read(record: &IngressRecord) -> Result<Settings, String> {
        let damaged = |what: &str| format!("the record of ingress {} is damaged: {what}", record.name);
        let spec: IngressSpec =
            serde_json::from_value(record.spec.clone()).map_err(|error| damaged(&error.to_string()))?;
        let kafka = spec.kafka.ok_or_else(|| damaged("it names no system"))?;
        Ok(Settings {
            name: record.name.clone(),
            system: record.system.clone(),
            topic: record.topic.clone(),
            destination: spec.destination,
            group: record.group.clone(),
            refusals: spec.refusals.ok_or_else(|| damaged("it names no topic for refusals"))?,
            receipts: spec.receipts,
            // A plain struct of strings serialises.
            connection: serde_json::to_value(kafka).unwrap_or_default(),
        })
    }

    /// What the system is asked for.
    pub(super) fn source(&self) -> SourceSpec {
        SourceSpec {
            connection: self.connection.clone(),
            group: self.group.clone(),
            refusals: self.refusals.clone(),
            receipts: self.receipts.clone(),
        }
    }
}
