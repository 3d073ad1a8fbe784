//! One keep-alive connection with as little of our own work on it as there can be: the generator shares the machine with
//! the server it measures.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::Executor as _;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// How much of a refusal is shown.
const SHOWN_BYTES_MAX: usize = 400;

/// A connection on which one request is under way at a time.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Whatever ends the connection ends the request on it, too, which reports it.
        TokioExecutor::new().execute(async move { drop(connection.await) });
        Ok(Connection { sender, host: HeaderValue::from_str(address)? })
    }

    /// Posts JSON and returns the answer's body, which is a good one.
    pub(crate) async fn post(&mut self, path: &'static str, body: Bytes) -> anyhow::Result<Bytes> {
        let response = self.request(Method::POST, path, body).await?;
        read(path, response).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        let response = self.request(Method::GET, path, Bytes::new()).await?;
        read(path, response).await
    }

    /// An answer that goes on for as long as it is read.
    pub(crate) async fn follow(&mut self, path: &str) -> anyhow::Result<Incoming> {
        let response = self.request(Method::GET, path, Bytes::new()).await?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            bail!("{path}: {status}: {}", shown(&body.collect().await?.to_bytes()));
        }
        Ok(body)
    }

    async fn request(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.host.clone());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        self.sender.ready().await.with_context(|| format!("{path}: the connection is gone"))?;
        let request = request.body(Full::new(body))?;
        self.sender.send_request(request).await.with_context(|| format!("{path}: no answer"))
    }
}

async fn read(path: &str, response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let status = response.status();
    let body = response.into_body().collect().await.with_context(|| format!("{path}: the answer broke off"))?;
    let body = body.to_bytes();
    if !status.is_success() {
        bail!("{path}: {status}: {}", shown(&body));
    }
    Ok(body)
}

/// The start of a body, for people.
pub(crate) fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]).into_owned()
}
