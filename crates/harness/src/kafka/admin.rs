//! Rights and quotas, changed within milliseconds: what the client library has no call for, and Kafka's own tools need a whole
//! JVM of their own for, which a measurement beside them would notice.
//!
//! Requests are in Kafka's own protocol, in the oldest versions that its brokers still take: those have fields of fixed form.

use anyhow::{Context as _, bail};
use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::broker::{Broker, USER};

const CREATE_ACLS: Request = Request { key: 30, version: 1 };
const DELETE_ACLS: Request = Request { key: 31, version: 1 };
const ALTER_CLIENT_QUOTAS: Request = Request { key: 49, version: 0 };

/// Numbers of the protocol's enumerations.
const TOPIC: i8 = 2;
const LITERAL: i8 = 3;
const ANY: i8 = 1;
const ALLOW: i8 = 3;
const OPERATIONS: [i8; 2] = [4, 8];

/// Before the first error code in an answer: correlation, throttle time and the number of results.
const RESULTS_AT: usize = 12;
/// An answer longer than this is none.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Request {
    key: i16,
    version: i16,
}

impl Broker {
    /// Allows [`USER`] to write to a topic and to describe it.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn allow_writing(&self, topic: &str) -> anyhow::Result<()> {
        let mut body = BytesMut::new();
        body.put_i32(2);
        for operation in OPERATIONS {
            body.put_i8(TOPIC);
            put_text(&mut body, topic)?;
            body.put_i8(LITERAL);
            put_text(&mut body, &format!("User:{USER}"))?;
            put_text(&mut body, "*")?;
            body.put_i8(operation);
            body.put_i8(ALLOW);
        }
        self.ask(CREATE_ACLS, &body).await.context("allowing")
    }

    /// Takes every right on a topic from everybody who needs one.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn deny_everything(&self, topic: &str) -> anyhow::Result<()> {
        let mut body = BytesMut::new();
        body.put_i32(1);
        body.put_i8(TOPIC);
        put_text(&mut body, topic)?;
        body.put_i8(LITERAL);
        // Any principal, any host.
        body.put_i16(-1);
        body.put_i16(-1);
        body.put_i8(ANY);
        body.put_i8(ANY);
        self.ask(DELETE_ACLS, &body).await.context("denying")
    }

    /// Bounds what clients of this id may write, in bytes a second.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn throttle(&self, client_id: &str, bytes_per_second: f64) -> anyhow::Result<()> {
        let mut body = BytesMut::new();
        body.put_i32(1);
        body.put_i32(1);
        put_text(&mut body, "client-id")?;
        put_text(&mut body, client_id)?;
        body.put_i32(1);
        put_text(&mut body, "producer_byte_rate")?;
        body.put_f64(bytes_per_second);
        let (remove, validate_only) = (0, 0);
        body.put_u8(remove);
        body.put_u8(validate_only);
        self.ask(ALTER_CLIENT_QUOTAS, &body).await.context("throttling")
    }

    async fn ask(&self, request: Request, body: &[u8]) -> anyhow::Result<()> {
        let mut message = BytesMut::new();
        message.put_i16(request.key);
        message.put_i16(request.version);
        message.put_i32(0);
        put_text(&mut message, "harness")?;
        message.put_slice(body);
        let mut stream = TcpStream::connect(self.bootstrap()).await.context("the broker does not listen")?;
        stream.write_i32(i32::try_from(message.len())?).await?;
        stream.write_all(&message).await?;
        let length = usize::try_from(stream.read_i32().await.context("the broker hung up")?)?;
        if !(RESULTS_AT + 2..ANSWER_BYTES_MAX).contains(&length) {
            bail!("an answer of {length} bytes");
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        match i16::from_be_bytes([answer[RESULTS_AT], answer[RESULTS_AT + 1]]) {
            0 => Ok(()),
            code => bail!("the broker refuses with error code {code}"),
        }
    }
}

fn put_text(body: &mut BytesMut, text: &str) -> anyhow::Result<()> {
    body.put_i16(i16::try_from(text.len())?);
    body.put_slice(text.as_bytes());
    Ok(())
}
