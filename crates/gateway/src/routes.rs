//! Routes and their shards, as the gateway knows them.

use client::api::problem::{Problem, SurfaceCode};
use client::prepare::RouteSnapshot;
use control::route::RouteRecord;
use protocol::code::StableCode;
use protocol::id::{MessageId, ShardId};
use protocol::routing;
use tokio::time::{Instant, timeout_at};
use worker::handle::ShardHandle;
use worker::lifecycle::ShardLifecycle;

use crate::problem::shard_problem;

/// A route with everything it takes to send commands to it.
#[derive(Clone)]
pub struct RouteEntry {
    /// Its metadata record.
    pub record: RouteRecord,
    /// What commands are prepared with.
    pub snapshot: RouteSnapshot,
    /// Its shards, by partition.
    pub shards: Vec<ShardHandle>,
}

/// The routes of this server.
#[derive(Clone)]
pub struct RouteTable {
    routes: Vec<RouteEntry>,
}

/// A shard and the route it is of.
#[derive(Clone, Copy)]
pub(crate) struct ShardPlace<'a> {
    pub(crate) route: &'a RouteEntry,
    pub(crate) handle: &'a ShardHandle,
}

impl ShardPlace<'_> {
    /// Refuses what a shard that has failed for good would never decide.
    ///
    /// # Errors
    /// SHARD_UNAVAILABLE. A shard that is starting or moving takes commands and decides them later.
    pub(crate) fn may_append(&self) -> Result<(), Problem> {
        let status = self.handle.status();
        if status.lifecycle != ShardLifecycle::Failed {
            return Ok(());
        }
        let partition = self.handle.shard().partition;
        let detail = format!("shard {partition} has failed ({}); nothing was taken", status.reason);
        Err(Problem::new(StableCode::ShardUnavailable, detail))
    }

    /// Waits until everything that was appended before this call is applied.
    ///
    /// # Errors
    /// What keeps the shard from it, or that it took too long.
    pub(crate) async fn caught_up(&self, deadline: Instant) -> Result<(), Problem> {
        match timeout_at(deadline, self.handle.barrier()).await {
            Ok(reached) => reached.map_err(shard_problem),
            Err(_) => {
                let status = self.handle.status();
                let partition = self.handle.shard().partition;
                let detail =
                    format!("shard {partition} is {} and has not caught up in time; try again", status.lifecycle);
                Err(Problem::new(StableCode::ShardTransitioning, detail))
            }
        }
    }
}

impl RouteTable {
    /// A table of at least one route; the first is where new messages go.
    pub fn new(routes: Vec<RouteEntry>) -> Option<RouteTable> {
        let usable = routes.first().is_some_and(|route| !route.shards.is_empty());
        usable.then_some(RouteTable { routes })
    }

    /// Where new messages go.
    pub(crate) fn home(&self) -> &RouteEntry {
        // A table has at least one route.
        &self.routes[0]
    }

    pub(crate) fn routes(&self) -> &[RouteEntry] {
        &self.routes
    }

    /// Every shard of every route.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardPlace<'_>> {
        self.routes.iter().flat_map(|route| route.shards.iter().map(move |handle| ShardPlace { route, handle }))
    }

    /// The shard of an id's route and partition.
    pub(crate) fn shard(&self, shard: ShardId) -> Option<ShardPlace<'_>> {
        self.shards().find(|place| place.handle.shard() == shard)
    }

    /// The shard a message id names.
    ///
    /// # Errors
    /// NOT_FOUND for an id of another route: nothing here can know the message.
    pub(crate) fn of_message(&self, message: MessageId) -> Result<ShardPlace<'_>, Problem> {
        self.shard(message.shard).ok_or_else(|| {
            let detail = format!("message {message} is of route {}, which is not here", message.shard.route);
            Problem::new(StableCode::NotFound, detail).field("id")
        })
    }

    /// The shard where a caller's own id lives.
    pub(crate) fn of_key(&self, key: &[u8]) -> Result<ShardPlace<'_>, Problem> {
        let route = self.home();
        let RouteSnapshot { route: route_id, tenant_scope, partition_count, .. } = &route.snapshot;
        let partition = routing::ingress_partition(*route_id, tenant_scope, key, *partition_count);
        let handle = usize::try_from(partition).ok().and_then(|partition| route.shards.get(partition));
        let handle = handle.ok_or_else(|| {
            Problem::new(SurfaceCode::Internal, format!("route {} has no shard {partition}", route.record.name))
        })?;
        Ok(ShardPlace { route, handle })
    }
}
