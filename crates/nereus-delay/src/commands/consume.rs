//! Topics of the embedded log, from the command line.

use std::time::Duration;

use client::api::topic::{Record, RecordPage, Topic, TopicList};
use client::http::{ClientError, HttpClient, LineStream};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use hyper::Method;
use tokio::time::Instant;

use super::message::content_text;
use crate::cli::{ConsumeArgs, TopicCommand};
use crate::failure::{Exit, Failure};
use crate::output::{Output, say};

/// Pause before a follower asks a lost server again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How often it asks before it gives up: a minute.
const RECONNECTS_MAX: u32 = 120;

/// Runs a topic command.
pub(super) async fn topics(client: &HttpClient, command: TopicCommand, output: &Output) -> Result<(), Failure> {
    let topics = match command {
        TopicCommand::List => client.call(Method::GET, &["v1", "topics"]).send::<TopicList>().await?.body.items,
        TopicCommand::Get { name } => vec![describe(client, &name).await?],
    };
    if output.is_json() {
        return output.table(&topics, [], |_| []);
    }
    let rows: Vec<_> = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.name.clone(), partition)))
        .collect();
    output.table(&rows, ["TOPIC", "PARTITION", "START OFFSET", "END OFFSET"], |(name, partition)| {
        [
            name.clone(),
            partition.partition.to_string(),
            partition.start_offset.to_string(),
            partition.end_offset.to_string(),
        ]
    })
}

async fn describe(client: &HttpClient, topic: &str) -> Result<Topic, Failure> {
    Ok(client.call(Method::GET, &["v1", "topics", topic]).send::<Topic>().await?.body)
}

/// Reads a topic: what is there, or on and on.
pub(super) async fn consume(client: &HttpClient, args: &ConsumeArgs, output: &Output) -> Result<(), Failure> {
    let topic = describe(client, &args.topic).await?;
    let at_end = args.follow && !args.from_beginning;
    let mut starts: Vec<(u32, u64)> = topic
        .partitions
        .iter()
        .filter(|found| args.partition.is_none_or(|wanted| wanted == found.partition))
        .map(|found| {
            let start = if at_end { found.end_offset } else { found.start_offset };
            (found.partition, args.offset.unwrap_or(start))
        })
        .collect();
    if starts.is_empty() {
        let text = format!("topic {:?} has partitions 0 to {}", args.topic, topic.partitions.len().saturating_sub(1));
        return Err(Failure::new(Exit::NotFound, text));
    }
    starts.sort_unstable();
    let mut reader = Reader { client, args, output, remaining: args.max.unwrap_or(u64::MAX) };
    if args.follow { reader.follow(starts).await } else { reader.read(starts).await }
}

struct Reader<'a> {
    client: &'a HttpClient,
    args: &'a ConsumeArgs,
    output: &'a Output,
    remaining: u64,
}

impl Reader<'_> {
    /// Reads up to what the ends are now.
    async fn read(&mut self, starts: Vec<(u32, u64)>) -> Result<(), Failure> {
        for (partition, mut offset) in starts {
            while self.remaining > 0 {
                let page = self
                    .client
                    .call(Method::GET, &["v1", "topics", &self.args.topic, "records"])
                    .query("partition", Some(partition))
                    .query("offset", Some(offset))
                    .send::<RecordPage>()
                    .await?
                    .body;
                for record in &page.records {
                    self.show(record)?;
                }
                offset = page.next_offset;
                if page.records.is_empty() || offset >= page.end_offset {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads every partition on and on.
    async fn follow(&mut self, starts: Vec<(u32, u64)>) -> Result<(), Failure> {
        let (client, topic) = (self.client, self.args.topic.as_str());
        let mut followers: FuturesUnordered<LocalBoxFuture<'_, Result<Followed<'_>, Failure>>> = starts
            .into_iter()
            .map(|(partition, offset)| Follower { client, topic, partition, offset, stream: None }.next().boxed_local())
            .collect();
        while self.remaining > 0 {
            let Some(followed) = followers.next().await else { return Ok(()) };
            let Followed { record, follower } = followed?;
            self.show(&record)?;
            followers.push(follower.next().boxed_local());
        }
        Ok(())
    }

    fn show(&mut self, record: &Record) -> Result<(), Failure> {
        if self.remaining == 0 {
            return Ok(());
        }
        self.remaining -= 1;
        self.output.item(record, |record| {
            let content = |content: &Option<_>| content.as_ref().map_or_else(|| "null".to_owned(), content_text);
            let mut text = format!(
                "{}:{}\t{}\t{}\t{}",
                record.partition,
                record.offset,
                record.timestamp,
                content(&record.key),
                content(&record.value)
            );
            if self.args.headers {
                for header in &record.headers {
                    text.push_str(&format!("\t{}={}", header.name, content(&header.value)));
                }
            }
            text
        })
    }
}

/// One partition's reader, which outlives the server's restarts.
struct Follower<'a> {
    client: &'a HttpClient,
    topic: &'a str,
    partition: u32,
    offset: u64,
    stream: Option<LineStream>,
}

struct Followed<'a> {
    record: Record,
    follower: Follower<'a>,
}

impl<'a> Follower<'a> {
    async fn next(mut self) -> Result<Followed<'a>, Failure> {
        let mut failed = 0;
        loop {
            match self.attempt().await {
                Ok(record) => {
                    self.offset = record.offset + 1;
                    return Ok(Followed { record, follower: self });
                }
                Err(error @ (ClientError::Unreachable { .. } | ClientError::OutcomeUnknown { .. }))
                    if failed < RECONNECTS_MAX =>
                {
                    if failed == 0 {
                        say(&format!("partition {}: {error}; trying again", self.partition));
                    }
                    failed += 1;
                    self.stream = None;
                    tokio::time::sleep_until(Instant::now() + RECONNECT_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn attempt(&mut self) -> Result<Record, ClientError> {
        if self.stream.is_none() {
            let call = self
                .client
                .call(Method::GET, &["v1", "topics", self.topic, "records"])
                .query("partition", Some(self.partition))
                .query("offset", Some(self.offset))
                .query("follow", Some("true"));
            self.stream = Some(call.stream().await?);
        }
        let server = self.client.server().to_owned();
        let Some(stream) = &mut self.stream else { return Err(ended(server)) };
        match stream.next_line().await? {
            Some(line) => serde_json::from_str(&line).map_err(|error| ClientError::NotUnderstood {
                server,
                status: 200,
                reason: error.to_string(),
            }),
            None => Err(ended(server)),
        }
    }
}

fn ended(server: String) -> ClientError {
    ClientError::OutcomeUnknown { server, reason: "it ended the answer".to_owned() }
}
