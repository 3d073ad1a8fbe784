//! When what is admitted: the due windows, lanes, claims and circuits of one shard.
//!
//! Everything here is memory. It is rebuilt at activation by one seek per lane, fed by the effects of commits and by paging the
//! timeline, and a crash forgets it: the log does not care (architecture §8). Only an owner has a scheduler.

pub mod budget;
pub mod circuit;
pub mod claim;
pub mod lane;
pub mod outgoing;
pub mod round_robin;
pub mod scheduler;
pub mod window;
