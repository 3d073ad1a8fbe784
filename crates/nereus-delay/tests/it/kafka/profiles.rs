//! Destinations on Kafka: what is checked, what a growing topic does, what is deprecated, and where secrets are not.

use serde_json::json;

use super::{Server, cluster, delivered, destination, fresh_name, message_with};
use crate::world::{LIMIT, pause, run};

#[test]
fn a_topic_that_grows_gives_its_destination_a_new_version_by_itself() {
    run(async {
        let (cluster, topic) = (cluster(), fresh_name("grows"));
        cluster.create_topic(&topic, 1, &[]).await.expect("made");
        let server = Server::new("[destinations]\nrefresh_interval = \"200ms\"\n").await;
        let made = server.http.put("/v1/destinations/grows", &destination(&cluster, &topic)).await.expect(201);
        assert_eq!((made.number("version"), made.number("partitions")), (1, 1));
        let message = json!({ "destination": "grows", "delay": "5s", "id": "before", "key": "k", "value": "1" });
        server.http.schedule(&message).await;
        cluster.add_partitions(&topic, 5).await.expect("grown");
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let found = server.http.get("/v1/destinations/grows").await.expect(200);
            if found.number("version") == 2 {
                assert_eq!(found.number("partitions"), 5);
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{}", found.body);
            pause(std::time::Duration::from_millis(50)).await;
        }
        let messages: Vec<_> = (0..40)
            .map(|number| json!({ "destination": "grows", "delay": "1ms", "key": format!("k{number}"), "value": "2" }))
            .collect();
        server.http.schedule_all(&messages).await;
        let records = delivered(&cluster, &topic, 41).await;
        // What was bound before keeps its partition; new keys are spread over all of them.
        let before: Vec<_> = records.iter().filter(|record| record.value.as_deref() == Some(b"1")).collect();
        assert_eq!(before.iter().map(|record| record.partition).collect::<Vec<_>>(), [0]);
        assert!(records.iter().any(|record| record.partition > 0));
    });
}

#[test]
fn a_deprecated_destination_delivers_what_it_has_and_takes_no_more() {
    run(async {
        let (cluster, topic) = (cluster(), fresh_name("deprecated"));
        cluster.create_topic(&topic, 1, &[]).await.expect("made");
        let server = Server::new("").await;
        let http = &server.http;
        http.put("/v1/destinations/old", &destination(&cluster, &topic)).await.expect(201);
        let message = |id: &str| json!({ "destination": "old", "delay": "2s", "id": id, "value": "v" });
        http.schedule(&message("first")).await;
        let deprecated = http.post("/v1/destinations/old:deprecate", &json!({})).await.expect(200);
        assert_eq!(deprecated.text("state"), "deprecated");
        let refused = http.post("/v1/messages", &message("second")).await;
        assert_eq!((refused.status, refused.code()), (422, "PROFILE_DEPRECATED_FOR_NEW_USE"), "{}", refused.body);
        assert_eq!(message_with(http, "first", "published").await["delivery"]["topic"], topic.as_str());
        let again = http.post("/v1/destinations/old:activate", &json!({})).await.expect(200);
        assert_eq!((again.text("state"), again.number("version")), ("active", 2));
        http.schedule(&message("third")).await;
        message_with(http, "third", "published").await;
    });
}

#[test]
fn a_secret_is_nowhere_but_where_it_was_put() {
    run(async {
        let (cluster, topic) = (cluster(), fresh_name("secret"));
        cluster.create_topic(&topic, 1, &[]).await.expect("made");
        let acl = ["--add", "--allow-principal", "User:alice", "--producer", "--topic", &topic];
        cluster.tool("org.apache.kafka.tools.AclCommand", &acl).await.expect("allowed");
        let server = Server::new("").await;
        let http = &server.http;
        let file = server.folder.path().join("password");
        std::fs::write(&file, format!("{}\n", harness::kafka::PASSWORD)).expect("written");
        let with = |password: String| {
            json!({ "kafka": {
                "bootstrap.servers": harness::kafka::variable("NEREUS_TEST_KAFKA_SASL").expect("a real Kafka"),
                "topic": topic, "security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice", "sasl.password": password,
            }})
        };
        let refused = http.put("/v1/destinations/secret", &with(harness::kafka::PASSWORD.to_owned())).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.text("detail").contains("file:PATH"), "{}", refused.body);
        let mut said = vec![refused.body.to_string()];

        let made = http.put("/v1/destinations/secret", &with(format!("file:{}", file.display()))).await.expect(201);
        said.push(made.body.to_string());
        http.schedule(&json!({ "destination": "secret", "delay": "1ms", "id": "s", "value": "v" })).await;
        message_with(http, "s", "published").await;
        said.push(http.get("/metrics").await.body.to_string());
        said.push(http.get("/v1/admin/lanes").await.body.to_string());
        // A wrong password is told as such, and not told.
        std::fs::write(&file, "another-secret").expect("written");
        let wrong = http.put("/v1/destinations/other", &with(format!("file:{}", file.display()))).await;
        assert_eq!(wrong.code(), "DESTINATION_CHECK_FAILED", "{}", wrong.body);
        assert!(wrong.text("detail").contains("credentials"), "{}", wrong.body);
        said.push(wrong.body.to_string());
        let Server { process, options, folder, .. } = server;
        process.stop().await.expect("it stops");
        said.push(std::fs::read_to_string(options.log()).expect("a log"));
        for text in &said {
            assert!(!text.contains(harness::kafka::PASSWORD) && !text.contains("another-secret"), "{text}");
        }
        let secret = harness::kafka::PASSWORD.as_bytes();
        for path in files(&folder.path().join("data")) {
            let bytes = std::fs::read(&path).expect("readable");
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{}", path.display());
        }
    });
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}
