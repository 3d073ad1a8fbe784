//! A file of messages: read line by line, sent in batches, with progress, and safe to run again.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::time::Duration;

use client::api::message::{BatchReceipt, BatchResult, Status};
use client::http::{ClientError, HttpClient};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use hyper::Method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::message::random_key;
use crate::cli::ScheduleArgs;
use crate::failure::{Exit, Failure};
use crate::output::{Output, say};

/// Messages of one request: large enough that the request's own cost vanishes.
const BATCH_MESSAGES_MAX: usize = 500;
/// Bytes of one request, below the server's 8 MiB.
const BATCH_BYTES_MAX: usize = 6 << 20;
/// Requests under way at once.
const REQUESTS_MAX: usize = 4;
/// Refusals printed before the rest is only counted.
const REFUSALS_SHOWN: u64 = 20;

/// A line of the file, ready to be sent.
struct Line {
    number: u64,
    json: String,
}

/// What a line came to, with `--json`.
#[derive(Serialize)]
struct LineResult<'a> {
    line: u64,
    #[serde(flatten)]
    result: &'a BatchResult,
}

/// How the lines fared.
#[derive(Debug, Default, Serialize)]
struct Totals {
    scheduled: u64,
    queued: u64,
    refused: u64,
}

/// Schedules every line of a file.
pub(super) async fn schedule(client: &HttpClient, args: &ScheduleArgs, output: &Output) -> Result<(), Failure> {
    let path = args.batch.as_deref().unwrap_or("-");
    let (input, byte_count): (Box<dyn BufRead>, Option<u64>) = if path == "-" {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file =
            File::open(path).map_err(|error| Failure::new(Exit::Failed, format!("cannot open {path}: {error}")))?;
        let byte_count = file.metadata()?.len();
        (Box::new(BufReader::with_capacity(1 << 20, file)), Some(byte_count))
    };
    let idempotency_key = args.idempotency_key.clone().unwrap_or_else(random_key);
    let progress = progress_bar(byte_count);
    let mut source = Source { input, number: 0, args, idempotency_key: &idempotency_key, progress: progress.clone() };
    let mut totals = Totals::default();
    let sent = send_all(client, args, &mut source, output, &mut totals).await;
    progress.finish_and_clear();
    if let Err(mut failure) = sent {
        if failure.exit != Exit::Done {
            let text = format!(
                "\n{} messages were scheduled before this; the rest may have been. Run it again with --idempotency-key \
                 {idempotency_key}: what is there already stays as it is",
                totals.scheduled
            );
            failure.text.push_str(&text);
        }
        return Err(failure);
    }
    let text = format!("{} scheduled, {} queued, {} refused", totals.scheduled, totals.queued, totals.refused);
    if output.is_json() {
        say(&text);
    } else {
        output.line(&text)?;
    }
    match totals {
        Totals { refused: 1.., .. } => Err(Failure::new(Exit::Failed, "not every line was taken")),
        Totals { queued: 1.., .. } if args.wait != crate::cli::WaitFor::Queued => {
            let text = format!("some verdicts were not known in time; repeat with --idempotency-key {idempotency_key}");
            Err(Failure::new(Exit::OutcomeUnknown, text))
        }
        _ => Ok(()),
    }
}

type Sent = (Vec<u64>, Result<BatchReceipt, ClientError>);

async fn send_all(
    client: &HttpClient,
    args: &ScheduleArgs,
    source: &mut Source<'_>,
    output: &Output,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let mut under_way: FuturesUnordered<LocalBoxFuture<'_, Sent>> = FuturesUnordered::new();
    let mut waiting = VecDeque::new();
    loop {
        while under_way.len() < REQUESTS_MAX {
            let lines = source.batch(&mut waiting)?;
            if lines.is_empty() {
                break;
            }
            under_way.push(send(client, args, lines).boxed_local());
        }
        let Some((numbers, receipt)) = under_way.next().await else { return Ok(()) };
        account(&numbers, &receipt?, output, totals)?;
    }
}

async fn send(client: &HttpClient, args: &ScheduleArgs, lines: Vec<Line>) -> Sent {
    let numbers = lines.iter().map(|line| line.number).collect();
    let mut body = String::from("{\"messages\":[");
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&line.json);
    }
    body.push_str("]}");
    let call = client
        .call(Method::POST, &["v1", "messages"])
        .verb(":batch")
        .query("wait", Some(args.wait.name()))
        .query("timeout", args.timeout.as_ref())
        .json_text(body);
    (numbers, call.send::<BatchReceipt>().await.map(|answer| answer.body))
}

fn account(numbers: &[u64], receipt: &BatchReceipt, output: &Output, totals: &mut Totals) -> Result<(), Failure> {
    for (line, result) in numbers.iter().zip(&receipt.results) {
        match result {
            BatchResult::Receipt(receipt) if receipt.status == Status::Queued => totals.queued += 1,
            BatchResult::Receipt(_) => totals.scheduled += 1,
            BatchResult::Problem(problem) => {
                totals.refused += 1;
                if totals.refused <= REFUSALS_SHOWN {
                    say(&format!("line {line}: {problem}"));
                } else if totals.refused == REFUSALS_SHOWN + 1 {
                    say("more lines are refused; --json shows each");
                }
            }
        }
        if output.is_json() {
            output.item(&LineResult { line: *line, result }, |_| String::new())?;
        }
    }
    Ok(())
}

/// The lines of the file.
struct Source<'a> {
    input: Box<dyn BufRead>,
    number: u64,
    args: &'a ScheduleArgs,
    idempotency_key: &'a str,
    progress: ProgressBar,
}

impl Source<'_> {
    /// The lines of the next request; none at the end.
    fn batch(&mut self, waiting: &mut VecDeque<Line>) -> Result<Vec<Line>, Failure> {
        let mut lines: Vec<Line> = Vec::new();
        let mut bytes = 0;
        while lines.len() < BATCH_MESSAGES_MAX {
            let Some(line) = waiting.pop_front().map_or_else(|| self.line(), |line| Ok(Some(line)))? else { break };
            bytes += line.json.len();
            if bytes > BATCH_BYTES_MAX && !lines.is_empty() {
                waiting.push_front(line);
                break;
            }
            lines.push(line);
        }
        Ok(lines)
    }

    /// The next line that is not blank, with the destination and key that it does not name itself.
    fn line(&mut self) -> Result<Option<Line>, Failure> {
        let mut text = String::new();
        loop {
            text.clear();
            let read = self.input.read_line(&mut text).map_err(|error| {
                Failure::new(Exit::Failed, format!("cannot read the line after line {}: {error}", self.number))
            })?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.progress.inc(read as u64);
            if !text.trim().is_empty() {
                break;
            }
        }
        let number = self.number;
        let not_object = |error| Failure::new(Exit::Failed, format!("line {number} is not a JSON object: {error}"));
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).map_err(not_object)?;
        let mut default = |name: &str, value: &str| {
            if !fields.contains_key(name) {
                fields.insert(name.to_owned(), to_raw_value(value).map_err(not_object)?);
            }
            Ok::<(), Failure>(())
        };
        if let Some(destination) = &self.args.destination {
            default("destination", destination)?;
        }
        default("idempotency_key", &format!("{}/{number}", self.idempotency_key))?;
        Ok(Some(Line { number, json: serde_json::to_string(&fields).map_err(not_object)? }))
    }
}

/// Drawn at a terminal only, and not before it is worth it.
fn progress_bar(byte_count: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match byte_count {
        Some(byte_count) => ProgressBar::new(byte_count),
        None => ProgressBar::no_length(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
    let template = "{bar:40} {bytes}/{total_bytes} {elapsed} of about {duration}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
