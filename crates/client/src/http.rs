//! A client of the HTTP surface: what the command line uses, and programs that want typed answers.
//!
//! It does not repeat requests by itself: a lost answer is [`ClientError::OutcomeUnknown`], and whoever gave the request an
//! Idempotency-Key may send it again.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::problem::Problem;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused, and says why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Nothing was sent.
    #[error("cannot reach the server at {server}: {reason}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        reason: String,
    },
    /// The request was sent and the answer did not come: it may have been carried out.
    #[error("the answer of {server} did not come: {reason}; the request may have been carried out")]
    OutcomeUnknown {
        /// The server's address.
        server: String,
        /// Why.
        reason: String,
    },
    /// The answer is not one this client understands.
    #[error("the answer of {server} is not understood ({status}): {reason}")]
    NotUnderstood {
        /// The server's address.
        server: String,
        /// Its status.
        status: u16,
        /// What is wrong with it.
        reason: String,
    },
    /// The address is none.
    #[error("{server:?} is no address of a server: write HOST:PORT or http://HOST:PORT")]
    Address {
        /// The text.
        server: String,
    },
}

/// A request in the making.
#[derive(Debug)]
pub struct Call<'a> {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, String)>,
    body: Option<Bytes>,
    client: &'a HttpClient,
}

/// An answer with its headers.
#[derive(Debug)]
pub struct Answer<T> {
    /// The HTTP status.
    pub status: u16,
    /// Whether the answer was first given earlier, to the same Idempotency-Key.
    pub is_replay: bool,
    /// The body.
    pub body: T,
}

/// A client of one server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    server: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl HttpClient {
    /// A client of the server at `HOST:PORT` or `http://HOST:PORT`.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn new(server: &str) -> Result<HttpClient, ClientError> {
        let address = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
        let server = format!("http://{address}");
        let parsed: Result<hyper::Uri, _> = format!("{server}/").parse();
        if address.is_empty() || address.contains('/') || parsed.is_err() {
            return Err(ClientError::Address { server: address.to_owned() });
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        Ok(HttpClient { server, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A request to a path whose segments are percent-encoded here.
    pub fn call(&self, method: Method, segments: &[&str]) -> Call<'_> {
        let mut path = String::new();
        for segment in segments {
            path.push('/');
            path.push_str(&encode_segment(segment));
        }
        Call { method, path, query: Vec::new(), headers: Vec::new(), body: None, client: self }
    }
}

impl Call<'_> {
    /// Appends text to the path that stands behind a segment, such as `:pause`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.path.push_str(verb);
        self
    }

    /// A query parameter, left out when there is no value.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// A header, left out when there is no value.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        self.headers.extend(value.map(|value| (HeaderName::from_static(name), value.into())));
        self
    }

    /// A JSON body.
    #[must_use]
    pub fn json(mut self, body: &impl Serialize) -> Self {
        // Requests are plain structs of strings and numbers: serialising them cannot fail.
        self.body = Some(serde_json::to_vec(body).expect("a request serialises").into());
        self
    }

    /// A JSON body that is text already.
    #[must_use]
    pub fn json_text(mut self, body: String) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends the request and reads the answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send<T: DeserializeOwned>(self) -> Result<Answer<T>, ClientError> {
        let client = self.client;
        let response = self.open().await?;
        let (status, is_replay) = (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"));
        let bytes = client.read(response).await?;
        let body = serde_json::from_slice(&bytes).map_err(|error| client.not_understood(status, &error.to_string()))?;
        Ok(Answer { status, is_replay, body })
    }

    /// Sends the request and reads an answer that is understood whatever its status says, as that of `/readyz` is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send_any<T: DeserializeOwned>(self) -> Result<Answer<T>, ClientError> {
        let client = self.client;
        let response = self.request().await?;
        let status = response.status();
        let bytes = client.read(response).await?;
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { status: status.as_u16(), is_replay: false, body }),
            Err(_) => Err(client.problem(status, &bytes)),
        }
    }

    /// Sends the request and returns a good answer as text.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn text(self) -> Result<String, ClientError> {
        let client = self.client;
        let bytes = client.read(self.open().await?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends the request and returns a good answer while its body is still coming.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stream(self) -> Result<LineStream, ClientError> {
        let client = self.client.clone();
        let response = self.open().await?;
        Ok(LineStream { client, body: response.into_body(), waiting: Vec::new(), is_over: false })
    }

    async fn open(self) -> Result<Response<Incoming>, ClientError> {
        let client = self.client;
        let response = self.request().await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = client.read(response).await?;
        Err(client.problem(status, &bytes))
    }

    async fn request(self) -> Result<Response<Incoming>, ClientError> {
        let client = self.client;
        let mut uri = format!("{}{}", client.server, self.path);
        for (index, (name, value)) in self.query.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(&format!("{name}={}", encode_segment(value)));
        }
        let mut request = Request::builder().method(self.method).uri(uri).header(ACCEPT, "application/json");
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(self.body.unwrap_or_default()))
            .map_err(|error| client.not_understood(0, &error.to_string()))?;
        client.client.request(request).await.map_err(|error| client.failed(&error))
    }
}

impl HttpClient {
    async fn read(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let collected = response.into_body().collect().await;
        collected.map(http_body_util::Collected::to_bytes).map_err(|error| self.unknown(&error))
    }

    fn problem(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => self.not_understood(status.as_u16(), &String::from_utf8_lossy(&body[..body.len().min(200)])),
        }
    }

    fn failed(&self, error: &hyper_util::client::legacy::Error) -> ClientError {
        if error.is_connect() {
            let reason = std::error::Error::source(error).map_or_else(|| error.to_string(), chain);
            return ClientError::Unreachable { server: self.server.clone(), reason };
        }
        self.unknown(error)
    }

    fn unknown(&self, error: &dyn std::error::Error) -> ClientError {
        ClientError::OutcomeUnknown { server: self.server.clone(), reason: chain(error) }
    }

    fn not_understood(&self, status: u16, reason: &str) -> ClientError {
        ClientError::NotUnderstood { server: self.server.clone(), status, reason: reason.to_owned() }
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// An answer that comes line by line.
#[derive(Debug)]
pub struct LineStream {
    client: HttpClient,
    body: Incoming,
    waiting: Vec<u8>,
    is_over: bool,
}

impl LineStream {
    /// The next line without its end, `None` when the answer is complete.
    ///
    /// # Errors
    /// [`ClientError::OutcomeUnknown`] when the answer breaks off.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(end + 1);
                let line = std::mem::replace(&mut self.waiting, rest);
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if self.is_over {
                let line = std::mem::take(&mut self.waiting);
                return Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.waiting.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(self.client.unknown(&error)),
                None => self.is_over = true,
            }
        }
    }
}

/// Percent-encodes everything but the characters that RFC 3986 never reserves.
fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_fits_a_path() {
        assert_eq!(encode_segment("order-42_a.b~c"), "order-42_a.b~c");
        assert_eq!(encode_segment("a/b c?d=ä"), "a%2Fb%20c%3Fd%3D%C3%A4");
    }

    #[test]
    fn addresses_are_taken_with_and_without_scheme() {
        assert_eq!(HttpClient::new("127.0.0.1:7001").expect("valid").server(), "http://127.0.0.1:7001");
        assert_eq!(HttpClient::new("http://localhost:7001/").expect("valid").server(), "http://localhost:7001");
        for refused in ["", "http://", "a b:1", "host:1/path"] {
            assert!(matches!(HttpClient::new(refused), Err(ClientError::Address { .. })), "{refused}");
        }
    }
}
