//! The command line's words: every command, flag and default, and what `--help` teaches.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
A first round, with a server in one terminal and the rest in another:

  nereus-delay serve
  nereus-delay destination create orders --topic orders.due
  nereus-delay schedule orders --in 30s --id order-42 --value '{\"order\":42}'
  nereus-delay consume orders.due --follow

Exit codes: 0 done, 1 failed, 2 usage, 3 conflict or too late, 4 not found, 5 outcome unknown.
Standard output carries data only; what is said to people goes to standard error.";

/// Delayed messages: hand over a message and a time; it reaches its topic no earlier than that, and may be canceled, moved or
/// asked about until then.
#[derive(Debug, Parser)]
#[command(name = "nereus-delay", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// What every command but `serve` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The server that is asked
    #[arg(
        long,
        global = true,
        env = "NEREUS_DELAY_SERVER",
        default_value = "127.0.0.1:7700",
        value_name = "HOST:PORT"
    )]
    pub(crate) server: String,
    /// Write JSON instead of text: one object, or one object a line where there are many
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server: the log, the shards and the topics of one data folder, and HTTP in front of them
    Serve(ServeArgs),
    /// Hand over a message, or a file of them, to be delivered later
    Schedule(Box<ScheduleArgs>),
    /// Cancel messages that have not been sent
    Cancel(CancelArgs),
    /// Move a message to another time
    Reschedule(RescheduleArgs),
    /// Show a message
    Get(GetArgs),
    /// List messages
    List(ListArgs),
    /// Count messages by status
    Count(CountArgs),
    /// Create, show, pause, rebind and deprecate destinations
    #[command(subcommand)]
    Destination(DestinationCommand),
    /// Create, show, pause and delete ingresses: topics whose records schedule messages by their headers
    #[command(subcommand)]
    Ingress(IngressCommand),
    /// List topics of the embedded log
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Read a topic of the embedded log
    Consume(ConsumeArgs),
    /// List lanes: the independent queues, one a destination partition and shard
    #[command(subcommand)]
    Lane(LaneCommand),
    /// List shards with their state, load and totals
    #[command(subcommand)]
    Shard(ShardCommand),
    /// List routes
    #[command(subcommand)]
    Route(RouteCommand),
    /// Say whether the server can do its work
    Status,
    /// Explain a code that an answer carries, such as TOO_LATE
    Explain(ExplainArgs),
    /// Write a completion script for a shell
    Completion(CompletionArgs),
}

/// Where and how a server runs. A flag wins over its environment variable, that over the file, that over the default.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML); docs/configuration.md lists every key
    #[arg(long, env = "NEREUS_DELAY_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder, made at the first start [default: nereus-delay-data]
    #[arg(long, env = "NEREUS_DELAY_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address for HTTP, on loopback; port 0 picks a free one [default: 127.0.0.1:7700]
    #[arg(long, env = "NEREUS_DELAY_LISTEN", value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// What is logged on standard error: error, warn, info, debug, trace, or by part, as in worker=debug
    #[arg(long, env = "NEREUS_DELAY_LOG", default_value = "info", value_name = "LEVEL")]
    pub(crate) log: String,
    /// Write the configuration that would be used as TOML, and stop
    #[arg(long)]
    pub(crate) show_config: bool,
    /// Shards of the route that the first start makes; later starts keep what is there [default: 2]
    #[arg(long, env = "NEREUS_DELAY_SHARDS", value_name = "N")]
    pub(crate) shards: Option<u32>,
    /// For this project's tests (CONTRIBUTING.md): a file with the milliseconds that the clock is off
    #[arg(long, env = "NEREUS_DELAY_TEST_CLOCK", value_name = "FILE", hide = true)]
    pub(crate) test_clock: Option<PathBuf>,
    /// For this project's tests: allows the one above
    #[arg(long, env = "NEREUS_DELAY_TEST_HOOKS", hide = true)]
    pub(crate) test_hooks: bool,
}

/// When a message is due.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhenArgs {
    /// From now, with units: 90s, 1h30m, 7d
    #[arg(long = "in", value_name = "DELAY")]
    pub(crate) delay: Option<String>,
    /// RFC 3339 with an offset: 2026-11-30T14:00:00Z
    #[arg(long = "at", value_name = "TIME")]
    pub(crate) deliver_at: Option<String>,
}

/// A message, or a file of messages.
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// The destination. With --batch, for the lines that name none
    #[arg(required_unless_present = "batch")]
    pub(crate) destination: Option<String>,
    /// From now, with units: 90s, 1h30m, 7d
    #[arg(long = "in", value_name = "DELAY", conflicts_with_all = ["deliver_at", "batch"],
          required_unless_present_any = ["deliver_at", "batch"])]
    pub(crate) delay: Option<String>,
    /// RFC 3339 with an offset: 2026-11-30T14:00:00Z
    #[arg(long = "at", value_name = "TIME", conflicts_with = "batch")]
    pub(crate) deliver_at: Option<String>,
    /// Your own id for it: unique among live messages, good wherever a message id is
    #[arg(long, conflicts_with = "batch")]
    pub(crate) id: Option<String>,
    /// The record's key: text, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT|@FILE|-", conflicts_with = "batch")]
    pub(crate) key: Option<String>,
    /// The record's value: text, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT|@FILE|-", conflicts_with = "batch", required_unless_present_any = ["batch", "tombstone"])]
    pub(crate) value: Option<String>,
    /// The value is null: what compacted topics take for a deletion
    #[arg(long, conflicts_with_all = ["value", "batch"])]
    pub(crate) tombstone: bool,
    /// A header of the record; repeat for more, in order
    #[arg(long = "header", value_name = "NAME=TEXT", conflicts_with = "batch")]
    pub(crate) headers: Vec<String>,
    /// From the delivery time until it is not delivered any more [default: the destination's]
    #[arg(long, value_name = "DELAY", conflicts_with = "batch")]
    pub(crate) expires_after: Option<String>,
    /// Schedule every line of a file (- for standard input), each a JSON object as POST /v1/messages takes it
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) batch: Option<String>,
    /// Repeating a request with the same key gets the first answer again. With --batch, line N has KEY/N
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// How far to follow it
    #[arg(long, value_enum, default_value_t = WaitFor::Applied)]
    pub(crate) wait: WaitFor,
    /// How long to follow it [default: the server's, 10s]
    #[arg(long, value_name = "DELAY")]
    pub(crate) timeout: Option<String>,
}

/// How far a request is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// Until it is durable in the log
    Queued,
    /// Until its verdict is known
    Applied,
    /// Until the message has ended
    Published,
}

impl WaitFor {
    /// As the query has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WaitFor::Queued => "queued",
            WaitFor::Applied => "applied",
            WaitFor::Published => "published",
        }
    }
}

/// What to cancel.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Message ids, your own or the service's
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only if the message still has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    /// Cancel several without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What to move, and where to.
#[derive(Debug, Args)]
pub(crate) struct RescheduleArgs {
    /// A message id, your own or the service's
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) when: WhenArgs,
    /// From the new delivery time until it is not delivered any more [default: as long as before]
    #[arg(long, value_name = "DELAY")]
    pub(crate) expires_after: Option<String>,
    /// Only if the message still has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// A message id, your own or the service's
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Show key, value and headers too
    #[arg(long)]
    pub(crate) payload: bool,
}

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only of this status: scheduled, retrying, publishing, uncertain, published, canceled, expired, dead_letter
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only due at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) due_after: Option<String>,
    /// Only due before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) due_before: Option<String>,
    /// Only ids of your own that begin so
    #[arg(long, value_name = "TEXT")]
    pub(crate) id_prefix: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "all")]
    pub(crate) limit: u64,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Show key, value and headers too (with --json)
    #[arg(long)]
    pub(crate) payload: bool,
}

/// What to count.
#[derive(Debug, Args)]
pub(crate) struct CountArgs {
    /// Only of this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
}

/// What to do with destinations.
#[derive(Debug, Subcommand)]
pub(crate) enum DestinationCommand {
    /// Create a destination, or change it; the same settings again change nothing
    Create(Box<DestinationArgs>),
    /// Show a destination
    Get {
        /// Its name
        name: String,
    },
    /// List destinations
    List,
    /// Hold a destination's deliveries back; messages are still taken, and none is lost by waiting
    Pause {
        /// Its name
        name: String,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
    /// Let a paused destination's deliveries go on
    Resume {
        /// Its name
        name: String,
    },
    /// Take no new messages for a destination; those it has are delivered
    Deprecate {
        /// Its name
        name: String,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
    /// Take new messages for a deprecated destination again
    Activate {
        /// Its name
        name: String,
    },
    /// Deliver to the topic that has the name now, after the one before was deleted; what is pending follows
    Rebind {
        /// Its name
        name: String,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
}

/// A destination's settings.
#[derive(Debug, Args)]
pub(crate) struct DestinationArgs {
    /// Its name
    pub(crate) name: String,
    /// The topic. An embedded one is made when there is none; one of Kafka must exist
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Brokers of the Kafka cluster that has the topic [default: the embedded topics]
    #[arg(long, value_name = "HOST:PORT,…")]
    pub(crate) kafka: Option<String>,
    #[command(flatten)]
    pub(crate) security: KafkaSecurityArgs,
    /// An embedded topic's partitions [default: 1, or what the topic has]
    #[arg(long, value_name = "N", conflicts_with = "kafka")]
    pub(crate) partitions: Option<u32>,
    /// How a message gets its partition: as Kafka's own partitioner places its key, or by our own hash of it
    /// [default: murmur2]
    #[arg(long, value_name = "HOW", conflicts_with = "partition")]
    pub(crate) partitioner: Option<PartitionerArg>,
    /// Send every message to this partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// What timestamp delivered records have [default: event-time, a message's own where it has one]
    #[arg(long, value_name = "WHICH")]
    pub(crate) timestamp: Option<TimestampArg>,
    /// The longest delay, such as 10y
    #[arg(long, value_name = "DELAY")]
    pub(crate) max_delay: Option<String>,
    /// From delivery time to expiry where a message states none, such as 30d
    #[arg(long, value_name = "DELAY")]
    pub(crate) expires_after: Option<String>,
    /// Longest wait after a first failed attempt, such as 1s; the wait is drawn evenly from zero to it
    #[arg(long, value_name = "DELAY")]
    pub(crate) initial_backoff: Option<String>,
    /// Longest wait between attempts, such as 5m
    #[arg(long, value_name = "DELAY")]
    pub(crate) max_backoff: Option<String>,
    /// Attempts in all
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u32>,
    /// From the first attempt to the last, such as 24h
    #[arg(long, value_name = "DELAY")]
    pub(crate) max_retry_duration: Option<String>,
    /// Check the settings, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How a Kafka cluster is reached.
#[derive(Debug, Args)]
pub(crate) struct KafkaSecurityArgs {
    /// plaintext, ssl, sasl_plaintext or sasl_ssl
    #[arg(long = "security", value_name = "PROTOCOL", requires = "kafka", help_heading = "Kafka")]
    pub(crate) protocol: Option<String>,
    /// PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    #[arg(long, value_name = "NAME", requires = "kafka", help_heading = "Kafka")]
    pub(crate) sasl_mechanism: Option<String>,
    /// The user
    #[arg(long, value_name = "NAME", requires = "kafka", help_heading = "Kafka")]
    pub(crate) sasl_username: Option<String>,
    /// Where the server finds the password: env:NAME or file:PATH
    #[arg(long, value_name = "REFERENCE", requires = "kafka", help_heading = "Kafka")]
    pub(crate) sasl_password: Option<String>,
    /// The authority that signed the brokers' certificates, a file on the server
    #[arg(long, value_name = "PATH", requires = "kafka", help_heading = "Kafka")]
    pub(crate) ssl_ca: Option<String>,
    /// A further client setting under the client library's own name, such as compression.type=zstd
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "kafka", help_heading = "Kafka", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

impl KafkaSecurityArgs {
    /// The connection to a topic.
    pub(crate) fn connection(&self, bootstrap_servers: &str, topic: &str) -> client::api::kafka::KafkaConnection {
        let named = [
            ("security.protocol", &self.protocol),
            ("sasl.mechanism", &self.sasl_mechanism),
            ("sasl.username", &self.sasl_username),
            ("sasl.password", &self.sasl_password),
            ("ssl.ca.location", &self.ssl_ca),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        client::api::kafka::KafkaConnection {
            bootstrap_servers: bootstrap_servers.to_owned(),
            topic: topic.to_owned(),
            settings: named.chain(self.settings.iter().cloned()).collect(),
        }
    }
}

/// How a message gets its partition.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartitionerArg {
    /// As Kafka's own partitioner places the key
    Murmur2,
    /// By a hash of our own over the key
    RegistryHash,
}

/// What timestamp delivered records have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TimestampArg {
    /// The message's own event time where it has one, else its delivery time
    EventTime,
    /// The message's delivery time
    DeliveryTime,
}

/// What a producer has to know, below the help of ingresses.
const INGRESS_HELP: &str = "\
A plain producer schedules by headers, their names in small letters:

  nereus-deliver-at    when: RFC 3339 with an offset, or epoch milliseconds
  nereus-delay         or how long after the record's timestamp: 30m, 1h30m, 7d
  nereus-destination   where to; the ingress's own destination when missing
  nereus-id            its own id: unique among live messages
  nereus-expires-at    from when on it is not delivered any more
  nereus-cancel        instead of all these: cancel the message of this id
  nereus-reschedule    with a new time: move the message of this id

Key, value, other headers and timestamp are delivered as they are. Every record schedules once,
whatever happens; one that cannot be taken, also for a misspelt nereus- header, goes to the
refusals topic with the code that says why.

  nereus-delay ingress create orders --kafka broker:9092 --topic orders.delayed --destination orders
  nereus-delay ingress get orders";

/// What to do with ingresses.
#[derive(Debug, Subcommand)]
pub(crate) enum IngressCommand {
    /// Create an ingress, or change it; the same settings again change nothing
    Create(Box<IngressArgs>),
    /// Show an ingress: what keeps it, how far each partition is settled, how far it is behind
    Get {
        /// Its name
        name: String,
    },
    /// List ingresses
    List,
    /// Take no more records until it is resumed; the topic keeps them
    Pause {
        /// Its name
        name: String,
    },
    /// Take records again, from where it stood
    Resume {
        /// Its name
        name: String,
    },
    /// Delete an ingress. What it has settled stays known: made again under its name, it goes on where it stood
    Delete {
        /// Its name
        name: String,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
}

/// An ingress's settings.
#[derive(Debug, Args)]
#[command(after_help = INGRESS_HELP)]
pub(crate) struct IngressArgs {
    /// Its name
    pub(crate) name: String,
    /// Brokers of the Kafka cluster that has the topic
    #[arg(long, value_name = "HOST:PORT,…")]
    pub(crate) kafka: String,
    /// The topic that is read; it must exist
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Where records go that name no destination [default: every record has to]
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// The consumer group [default: nereus-delay.NAME]
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Where refused records go, whole, with why; made when there is none [default: TOPIC.refused]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) refusals: Option<String>,
    /// Where a receipt for every record goes; made when there is none [default: none are written]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) receipts: Option<String>,
    #[command(flatten)]
    pub(crate) security: KafkaSecurityArgs,
    /// Check the settings, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// List topics
    List,
    /// Show a topic's partitions
    Get {
        /// Its name
        name: String,
    },
}

/// What to read.
#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    /// The topic
    pub(crate) topic: String,
    /// Begin with the first record that is kept [default without --follow]
    #[arg(long, conflicts_with = "offset")]
    pub(crate) from_beginning: bool,
    /// Begin at this offset; needs --partition
    #[arg(long, value_name = "N", requires = "partition")]
    pub(crate) offset: Option<u64>,
    /// Read this partition only [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// Go on as records come; begins behind the last record unless told otherwise
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<u64>,
    /// Show headers too
    #[arg(long)]
    pub(crate) headers: bool,
}

/// What to do with lanes.
#[derive(Debug, Subcommand)]
pub(crate) enum LaneCommand {
    /// List lanes with their state, and with what is in the way of those that are blocked
    List {
        /// Only of this destination
        #[arg(long, value_name = "NAME")]
        destination: Option<String>,
    },
}

/// What to do with shards.
#[derive(Debug, Subcommand)]
pub(crate) enum ShardCommand {
    /// List shards with their state, load and totals
    List,
}

/// What to do with routes.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// List routes
    List,
}

/// What to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The code; without one, all are listed
    pub(crate) code: Option<String>,
}

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
