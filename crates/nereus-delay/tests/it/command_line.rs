//! The command line: data on standard output, talk on standard error, and exit codes that scripts can use.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::world::{DESTINATION, TOPIC, World, run};

struct CommandLine<'a> {
    binary: &'a Path,
    address: &'a str,
}

/// What a command ended with.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

impl CommandLine<'_> {
    async fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, "").await
    }

    async fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut child = Command::new(self.binary)
            .args(arguments)
            .env("NEREUS_DELAY_SERVER", self.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("a standard input");
        // A command that reads nothing closes it; what it says of that is in its output.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await.expect("it ends").into()
    }
}

#[test]
fn the_main_job_from_the_command_line() {
    run(async {
        let world = World::new().await;
        let nereus = CommandLine { binary: &world.options.binary, address: world.server.address() };
        assert!(nereus.run(&["status"]).await.expect(0).stdout.contains("ready    yes"));
        let created = nereus
            .run(&["--json", "destination", "create", "mail", "--topic", "mail.due", "--partitions", "2"])
            .await
            .expect(0);
        assert_eq!((created.json()["version"].clone(), created.json()["partitions"].clone()), (json!(1), json!(2)));

        let scheduled = nereus
            .run(&[
                "schedule",
                "mail",
                "--in",
                "200ms",
                "--id",
                "m1",
                "--key",
                "k",
                "--value",
                "hello",
                "--header",
                "a=b",
                "--wait",
                "published",
                "--json",
            ])
            .await
            .expect(0);
        assert_eq!(scheduled.json()["status"], "published");
        let canceled = nereus
            .run_with(&["schedule", "mail", "--in", "1h", "--id", "m2", "--value", "-"], "from stdin")
            .await
            .expect(0);
        assert!(canceled.stdout.contains("status      scheduled"), "{}", canceled.stdout);
        let shown = nereus.run(&["get", "m2", "--payload", "--json"]).await.expect(0);
        assert_eq!(shown.json()["payload"]["value"], "from stdin");
        nereus.run(&["reschedule", "m2", "--in", "2h", "--if-version", "1"]).await.expect(0);
        nereus.run(&["cancel", "m2", "--if-version", "1"]).await.expect(3);
        nereus.run(&["cancel", "m2"]).await.expect(0);
        nereus.run(&["cancel", "m2"]).await.expect(0);

        let consumed = nereus.run(&["consume", "mail.due", "--json"]).await.expect(0);
        assert_eq!(consumed.stdout.lines().count(), 1);
        assert_eq!(consumed.json()["value"], "hello");
        let followed =
            nereus.run(&["consume", "mail.due", "--follow", "--from-beginning", "--max", "1"]).await.expect(0);
        assert!(followed.stdout.contains("\tk\thello"), "{}", followed.stdout);

        let counts = nereus.run(&["count", "--destination", "mail", "--json"]).await.expect(0);
        assert_eq!((counts.json()["published"].clone(), counts.json()["canceled"].clone()), (json!(1), json!(1)));
        let listed = nereus.run(&["list", "--status", "canceled"]).await.expect(0);
        assert_eq!(listed.stdout.lines().count(), 2);
        assert!(
            listed.stdout.lines().last().is_some_and(|line| line.starts_with("canceled") && line.ends_with("m2")),
            "{}",
            listed.stdout
        );
        for listing in [
            &["destination", "list"][..],
            &["topic", "list"],
            &["shard", "list"],
            &["lane", "list"],
            &["route", "list"],
        ] {
            assert!(nereus.run(listing).await.expect(0).stdout.lines().count() >= 2, "{listing:?}");
        }
    });
}

#[test]
fn exit_codes_tell_what_kind_of_failure_it_is() {
    run(async {
        let world = World::new().await;
        let nereus = CommandLine { binary: &world.options.binary, address: world.server.address() };
        nereus.run(&["schedule", DESTINATION, "--in", "1h", "--id", "x", "--value", "v"]).await.expect(0);
        let conflict =
            nereus.run(&["schedule", DESTINATION, "--in", "1h", "--id", "x", "--value", "v", "--json"]).await.expect(3);
        assert_eq!(conflict.json()["code"], "DELAY_MESSAGE_ID_CONFLICT");
        assert!(conflict.stderr.contains("nereus-delay explain DELAY_MESSAGE_ID_CONFLICT"), "{}", conflict.stderr);
        let missing = nereus.run(&["get", "nothing"]).await.expect(4);
        assert!(missing.stdout.is_empty(), "what is said to people goes to standard error");
        nereus.run(&["schedule", DESTINATION, "--in", "11y", "--value", "v"]).await.expect(1);
        for usage in [
            &["schedule", DESTINATION, "--value", "v"][..],
            &["schedule", DESTINATION, "--in", "1h", "--at", "2027-01-01T00:00:00Z", "--value", "v"],
            &["schedule", DESTINATION, "--in", "1h"],
            &["reschedule", "x"],
            &["schedule", DESTINATION, "--in", "1h", "--value", "v", "--header", "no-equals-sign"],
            &["cancel", "x", "y"],
            &["destination", "pause", DESTINATION],
            &["--server", "no address", "count"],
        ] {
            nereus.run(usage).await.expect(2);
        }
        let unreachable = CommandLine { binary: &world.options.binary, address: "127.0.0.1:1" };
        let failed = unreachable.run(&["count"]).await.expect(1);
        assert!(
            failed.stderr.contains("127.0.0.1:1") && failed.stderr.contains("nereus-delay serve"),
            "{}",
            failed.stderr
        );
        // The id that was named with another stands: nothing was done without --yes.
        assert_eq!(world.http.get("/v1/messages/x").await.expect(200).text("status"), "scheduled");
        nereus.run(&["cancel", "x", "y", "--yes"]).await.expect(4);
        assert_eq!(world.http.get("/v1/messages/x").await.expect(200).text("status"), "canceled");
    });
}

#[test]
fn a_file_is_scheduled_line_by_line_and_running_it_again_doubles_nothing() {
    run(async {
        let world = World::new().await;
        let nereus = CommandLine { binary: &world.options.binary, address: world.server.address() };
        let mut lines = String::new();
        for index in 0..1_500 {
            lines.push_str(
                &json!({"delay": "1h", "id": format!("f{index}"), "value": {"type": "json", "data": {"n": index}}})
                    .to_string(),
            );
            lines.push('\n');
        }
        lines.push('\n');
        lines.push_str(&json!({"delay": "1", "value": "bad"}).to_string());
        let file = world.options.folder.join("messages.jsonl");
        std::fs::write(&file, &lines).expect("written");
        let file = file.display().to_string();
        let arguments = ["schedule", DESTINATION, "--batch", &file, "--idempotency-key", "run-1"];
        for _ in 0..2 {
            let ended = nereus.run(&arguments).await.expect(1);
            assert_eq!(ended.stdout, "1500 scheduled, 0 queued, 1 refused\n");
            assert!(ended.stderr.contains("line 1502: INVALID_FIELD"), "{}", ended.stderr);
            assert_eq!(world.http.count("scheduled").await, 1_500);
        }
        let shown = world.http.get("/v1/messages/f7?include=payload").await.expect(200);
        assert_eq!(shown.body["payload"]["value"], "{\"n\":7}");
        let json = nereus.run_with(&["schedule", "--batch", "-", "--json"], &lines).await.expect(1);
        assert_eq!(json.stdout.lines().count(), 1_501);
        assert!(
            json.stdout.lines().all(|line| line.contains("\"code\":\"INVALID_FIELD\"")),
            "no line names a destination"
        );
        let broken = nereus.run_with(&["schedule", DESTINATION, "--batch", "-"], "{\"delay\":\n").await.expect(1);
        assert!(broken.stderr.contains("line 1 is not a JSON object"), "{}", broken.stderr);
    });
}

#[test]
fn codes_are_explained_and_shells_get_their_completion() {
    run(async {
        let nereus = CommandLine { binary: Path::new(env!("CARGO_BIN_EXE_nereus-delay")), address: "127.0.0.1:1" };
        let page = nereus.run(&["explain", "too_late"]).await.expect(0);
        assert!(page.stdout.starts_with("# TOO_LATE\n"), "{}", page.stdout);
        let unknown = nereus.run(&["explain", "LATE"]).await.expect(4);
        assert!(unknown.stderr.contains("TOO_LATE"), "it names what is similar: {}", unknown.stderr);
        assert!(nereus.run(&["explain"]).await.expect(0).stdout.lines().count() > 120);
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            assert!(nereus.run(&["completion", shell]).await.expect(0).stdout.contains("nereus-delay"), "{shell}");
        }
        let help = nereus.run(&["--help"]).await.expect(0);
        assert!(help.stdout.contains("Exit codes"), "{}", help.stdout);
        assert!(nereus.run(&["--version"]).await.expect(0).stdout.starts_with("nereus-delay "));
        let _ = TOPIC;
    });
}
