//! The first start of a data folder, and every later one: keys, the default route, its genesis.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use control::cas::{Change, RecordError, Records};
use control::route::{self, GenesisRecord, RouteLog, RouteRecord, RouteState, format_uuid};
use data_encoding::HEXLOWER;
use ed25519_dalek::SigningKey;
use protocol::id::{RouteId, ShardId};
use protocol::mutation_v2::{
    Author, ControlPayload, Genesis, Limits, MutationBody, MutationV2, Roles, ShardControl, SigningKeyEntry,
};
use protocol::record::{self, LogRecord};
use protocol::routing::tenant_scope;

use crate::host::fill_random;

/// The version of the folder's first and, so far, only key.
pub(crate) const KEY_VERSION: u32 = 1;
/// The route that a new folder gets.
pub(crate) const DEFAULT_ROUTE: &str = "default";

/// The folder's signing key, made at the first start.
///
/// # Errors
/// When the key file cannot be made or read, or others may read it.
pub(crate) fn signing_key(data: &Path) -> anyhow::Result<SigningKey> {
    let path = data.join("signing.key");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let mode = fs::metadata(&path)?.permissions().mode();
            if mode & 0o077 != 0 {
                bail!("{} may be read by others (mode {:03o}): chmod 600 it", path.display(), mode & 0o777);
            }
            let seed: Option<[u8; 32]> =
                HEXLOWER.decode(text.trim().as_bytes()).ok().and_then(|seed| seed.try_into().ok());
            let seed = seed.with_context(|| format!("{} is not 64 hexadecimal digits", path.display()))?;
            Ok(SigningKey::from_bytes(&seed))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => make_key(data, &path),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Written aside and renamed, so that a crash leaves a whole key or none.
fn make_key(data: &Path, path: &Path) -> anyhow::Result<SigningKey> {
    let mut seed = [0; 32];
    fill_random(&mut seed);
    let partial = data.join("signing.key.partial");
    // What a crash left of an earlier attempt was never used.
    let _ = fs::remove_file(&partial);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .with_context(|| format!("cannot create {}", partial.display()))?;
    writeln!(file, "{}", HEXLOWER.encode(&seed))?;
    file.sync_all()?;
    fs::rename(&partial, path).with_context(|| format!("cannot create {}", path.display()))?;
    fs::File::open(data)?.sync_all()?;
    Ok(SigningKey::from_bytes(&seed))
}

/// What a new default route is made of.
pub(crate) struct RouteSeed<'a> {
    /// Whose messages it carries.
    pub(crate) tenant: &'a str,
    /// How many shards.
    pub(crate) shards: u32,
    /// The limits of its log.
    pub(crate) limits: Limits,
    /// The key that signs its genesis and, at first, everything else.
    pub(crate) key: &'a SigningKey,
}

/// The default route's record, made if there is none.
///
/// # Errors
/// When the metadata store does not answer.
pub(crate) async fn default_route(records: &Records, seed: &RouteSeed<'_>) -> anyhow::Result<RouteRecord> {
    let fresh = fresh_route(seed)?;
    let record: Result<RouteRecord, RecordError> = records
        .change(&route::key(DEFAULT_ROUTE), |current: Option<&RouteRecord>| {
            Ok(match current {
                Some(current) => Change::Keep(current.clone()),
                None => Change::Write(fresh.clone(), fresh.clone()),
            })
        })
        .await;
    Ok(record?)
}

/// Marks a route whose every partition has its genesis.
///
/// # Errors
/// When the metadata store does not answer.
pub(crate) async fn route_is_active(records: &Records, name: &str) -> Result<(), RecordError> {
    records
        .change(&route::key(name), |current: Option<&RouteRecord>| {
            Ok(match current {
                Some(current) if current.state == RouteState::Creating => {
                    Change::Write(RouteRecord { state: RouteState::Active, ..current.clone() }, ())
                }
                _ => Change::Keep(()),
            })
        })
        .await
}

fn fresh_route(seed: &RouteSeed<'_>) -> anyhow::Result<RouteRecord> {
    let (mut route_id, mut topic_id) = ([0; 16], [0; 16]);
    fill_random(&mut route_id);
    fill_random(&mut topic_id);
    let route = RouteId(route_id);
    let genesis: Result<Vec<GenesisRecord>, _> =
        (0..seed.shards).map(|partition| genesis(seed, ShardId { route, partition })).collect();
    Ok(RouteRecord {
        name: DEFAULT_ROUTE.to_owned(),
        route: format_uuid(&route_id),
        tenant: seed.tenant.to_owned(),
        state: RouteState::Creating,
        log: RouteLog::Embedded {
            topic: format!("_route.{}", format_uuid(&route_id)),
            topic_id: format_uuid(&topic_id),
        },
        genesis: genesis?,
    })
}

fn genesis(seed: &RouteSeed<'_>, shard: ShardId) -> anyhow::Result<GenesisRecord> {
    let entry = SigningKeyEntry {
        version: KEY_VERSION,
        public_key: seed.key.verifying_key().to_bytes(),
        roles: Roles { owner: true, control: true },
    };
    let genesis = Genesis {
        shard,
        partition_count: seed.shards,
        tenant_scope: tenant_scope(seed.tenant),
        limits: seed.limits,
        keys: vec![entry],
    };
    let mut operation_id = [0; 32];
    fill_random(&mut operation_id);
    let body = MutationBody::ShardControl(ShardControl {
        operation_id,
        expected_version: None,
        payload: ControlPayload::Genesis(Box::new(genesis)),
    });
    let author = Author::Control { principal: "bootstrap".to_owned(), role: "admin".to_owned() };
    let mutation = MutationV2::sign(shard, author, 0, body, KEY_VERSION, seed.key)
        .context("the configured limits do not make a valid genesis")?;
    Ok(GenesisRecord::new(&mutation.hash, &mutation.encode_frame()))
}

/// What a genesis frame fixed.
///
/// # Errors
/// When the record in the metadata store was damaged.
pub(crate) fn read_genesis(frame: &Bytes) -> anyhow::Result<Genesis> {
    match record::decode(frame) {
        Ok(LogRecord::MutationV2(MutationV2 {
            body: MutationBody::ShardControl(ShardControl { payload: ControlPayload::Genesis(genesis), .. }),
            ..
        })) => Ok(*genesis),
        Ok(_) => bail!("the genesis frame in the route's record is another record"),
        Err(error) => bail!("the genesis frame in the route's record does not decode: {error}"),
    }
}
