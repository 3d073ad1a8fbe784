//! How many connections are open at once.
//!
//! Each is an open file, and the databases need some too: a log that cannot make its next file stops the server. So callers share
//! what is left for them; those beyond it wait in the kernel's queue until others close.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that wait in the kernel until they are accepted, as far as it allows. One that finds no place there tries again
/// after a second.
const WAITING_CONNECTIONS_MAX: u32 = 4_096;

/// A listener that accepts only as many connections as there is room for.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    connections_max: usize,
    room: Arc<Semaphore>,
    /// Whether the last connection found no room: said once, until there is room again.
    is_full: bool,
}

impl BoundedListener {
    /// Listens on an address, for so many connections at once.
    pub(crate) fn bind(address: SocketAddr, connections_max: usize) -> io::Result<BoundedListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(WAITING_CONNECTIONS_MAX)?;
        let connections_max = connections_max.min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(connections_max));
        Ok(BoundedListener { listener, connections_max, room, is_full: false })
    }

    /// Room for one more connection.
    async fn room(&mut self) -> OwnedSemaphorePermit {
        match self.room.clone().try_acquire_owned() {
            Ok(room) => {
                self.is_full = false;
                room
            }
            Err(_) => {
                if !self.is_full {
                    tracing::warn!(connections = self.connections_max, "all connections are taken; new ones wait");
                }
                self.is_full = true;
                self.room.clone().acquire_owned().await.expect("nobody closes this semaphore")
            }
        }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = self.room().await;
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Answers are small and wanted now; a socket that refuses the option still works.
        let _ = stream.set_nodelay(true);
        (Connection { stream, _room: room }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, and its room until it is closed.
pub(crate) struct Connection {
    stream: TcpStream,
    _room: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
