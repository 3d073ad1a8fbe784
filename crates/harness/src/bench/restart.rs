//! What a start costs, and what stays in memory.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use client::api::message::MessagePage;
use hyper::Method;
use tokio::time::{Instant, sleep_until};

use super::CACHE_BYTES;
use super::bodies::Bodies;
use super::connection::Connection;
use super::consume::{end_offsets, topic};
use super::reading::Reading;
use super::sample::count;
use super::{TOPIC, stage};
use crate::console::{grouped, say};
use crate::process::{ServerOptions, ServerProcess};
use crate::wall_clock::now_ms;

/// From scheduling what is due at the restart until it is due: long enough to kill the server before.
const DUE_AHEAD_MS: i64 = 1_500;
/// How long the server stays down behind that.
const DOWN_MS: i64 = 100;
/// How often the topic's ends are asked for.
const POLL_PAUSE: Duration = Duration::from_millis(2);
const FIRST_DELIVERY_LIMIT: Duration = Duration::from_secs(300);
/// The cache counts as full from this share on.
const FULL_SHARE: f64 = 0.95;
/// Pages of records or messages that are read between two looks at the cache.
const PAGES_PER_LOOK: usize = 20;
/// Calm before memory is read.
const CALM: Duration = Duration::from_secs(3);
/// How often memory is read; the least counts, because nothing that is resident for good is missing from it.
const MEMORY_READINGS: u32 = 5;

/// Kills the server with a batch about to be due, and starts it again when it is overdue. Returns the new server and the
/// time from its process's start until the first record is in the topic.
pub(crate) async fn restart(
    server: ServerProcess,
    options: &ServerOptions,
) -> anyhow::Result<(ServerProcess, Duration)> {
    let due_ms = now_ms() + DUE_AHEAD_MS;
    let mut connection = Connection::open(server.address()).await?;
    let mut bodies = Bodies::batches();
    let path = bodies.path;
    connection.post(path, bodies.next(|| due_ms)).await?;
    let ends_before: u64 = end_offsets(&server).await?.iter().sum();
    server.kill().await?;
    let wait_ms = (due_ms + DOWN_MS - now_ms()).max(0).unsigned_abs();
    sleep_until(Instant::now() + Duration::from_millis(wait_ms)).await;
    if wait_ms <= DOWN_MS.unsigned_abs() {
        bail!("the server could not be killed before the batch was due");
    }

    let began = Instant::now();
    let server = ServerProcess::start(options).await?;
    loop {
        // The topic answers as soon as the server listens, long before its shards are active.
        let ends: u64 = end_offsets(&server).await?.iter().sum();
        if ends > ends_before {
            break;
        }
        if began.elapsed() > FIRST_DELIVERY_LIMIT {
            bail!("nothing is delivered after the restart; the log ends:\n{}", server.log_tail());
        }
        sleep_until(Instant::now() + POLL_PAUSE).await;
    }
    let took = began.elapsed();
    server.ready().await?;
    stage::idle(&server).await?;
    Ok((server, took))
}

/// Fills the server's caches by reading what it holds, waits until it is calm, and returns its resident memory in MiB.
pub(crate) async fn resident_mib(server: &ServerProcess) -> anyhow::Result<f64> {
    fill_caches(server).await?;
    let mut least = u64::MAX;
    for _ in 0..MEMORY_READINGS {
        sleep_until(Instant::now() + CALM / MEMORY_READINGS).await;
        least = least.min(server.usage()?.resident_bytes);
    }
    Ok(count(least) / f64::from(1 << 20))
}

async fn fill_caches(server: &ServerProcess) -> anyhow::Result<()> {
    let mut connection = Connection::open(server.address()).await?;
    let mut told_at = Instant::now();
    let (mut cursor, mut pages) = (None::<String>, 0_u64);
    // Partitions with where the next page begins and where the last one ends.
    let mut places: Vec<(u32, u64, u64)> = topic(server)
        .await?
        .partitions
        .into_iter()
        .filter(|partition| partition.start_offset < partition.end_offset)
        .map(|partition| (partition.partition, partition.start_offset, partition.end_offset))
        .collect();
    let mut messages_left = true;
    while messages_left || !places.is_empty() {
        let cache_bytes = Reading::take(server).await?.sample("storage_cache_bytes")?;
        if cache_bytes >= count(CACHE_BYTES) * FULL_SHARE {
            return Ok(());
        }
        if told_at.elapsed() > Duration::from_secs(2) {
            say(&format!("  filling the caches: {} pages read", grouped(pages)));
            told_at = Instant::now();
        }
        for _ in 0..PAGES_PER_LOOK {
            pages += 1;
            if let Some((partition, offset, end)) = places.last().copied() {
                let path = format!("/v1/topics/{TOPIC}/records?partition={partition}&offset={offset}&limit=1000");
                let next = next_offset(&connection.get(&path).await?)?;
                places.pop();
                if next > offset && next < end {
                    places.push((partition, next, end));
                }
            } else if messages_left {
                let call = server.client().call(Method::GET, &["v1", "messages"]).query("limit", Some(1_000));
                let call = call.query("cursor", cursor.as_ref()).query("include", Some("payload"));
                cursor = call.send::<MessagePage>().await.context("listing messages")?.body.next_cursor;
                messages_left = cursor.is_some();
            }
        }
    }
    say("  everything has been read and the caches are not full");
    Ok(())
}

/// Where a page of records says that the next begins: behind the records, so only the end of the text is looked at.
fn next_offset(page: &Bytes) -> anyhow::Result<u64> {
    const MARK: &str = "\"next_offset\":";
    let text = String::from_utf8_lossy(&page[page.len().saturating_sub(200)..]).into_owned();
    let number = text.rsplit_once(MARK).map(|(_, rest)| rest.split([',', '}']).next().unwrap_or_default());
    number.and_then(|number| number.trim().parse().ok()).context("a page of records without next_offset")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_where_the_next_begins() {
        let page =
            client::api::topic::RecordPage { records: Vec::new(), next_offset: 17, start_offset: 0, end_offset: 40 };
        assert_eq!(next_offset(&serde_json::to_vec(&page).unwrap().into()).unwrap(), 17);
        assert!(next_offset(&Bytes::from_static(b"{}")).is_err());
    }
}
