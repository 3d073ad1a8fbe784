//! The listening server, and the gateway's own upkeep beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener as _;
use control::cas::RecordError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connections::BoundedListener;
use crate::state::{Gateway, GatewayParts};
use crate::{destinations, http, idempotency, ingress};

/// Pause between sweeps of old idempotency records.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metadata store does not answer.
    #[error(transparent)]
    Metadata(#[from] RecordError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The listener broke.
    #[error("the listener failed: {0}")]
    Serve(std::io::Error),
}

/// A server that listens and has not begun to answer.
pub struct Server {
    gateway: Arc<Gateway>,
    listener: BoundedListener,
    address: SocketAddr,
}

impl Server {
    /// Listens on an address, for so many connections at once.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub fn bind(parts: GatewayParts, address: SocketAddr, connections_max: usize) -> Result<Server, StartError> {
        let listen = |source| StartError::Listen { address, source };
        let listener = BoundedListener::bind(address, connections_max).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Server { gateway: Arc::new(Gateway::new(parts)), listener, address })
    }

    /// Where it listens; the port is the one that was given by the system when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` turns true, then finishes those under way.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn serve(self, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
        let Server { gateway, listener, .. } = self;
        let follow = destinations::load(&gateway).await?;
        let ingresses = ingress::load(&gateway).await?;
        let upkeep = async {
            tokio::join!(
                follow,
                ingresses,
                sweep(&gateway),
                destinations::reconcile(&gateway),
                destinations::keep_fresh(&gateway)
            );
        };
        let router = http::router(gateway.clone());
        let serve = axum::serve(listener, router).with_graceful_shutdown(async move {
            // A sender that is gone asks for the same thing.
            let _ = stop.wait_for(|stop| *stop).await;
        });
        tokio::select! {
            served = async { serve.await } => served.map_err(StartError::Serve),
            () = upkeep => Ok(()),
        }
    }
}

async fn sweep(gateway: &Gateway) {
    loop {
        tokio::time::sleep_until(Instant::now() + SWEEP_INTERVAL).await;
        match idempotency::sweep(gateway).await {
            Ok(dropped) => tracing::debug!(dropped, "idempotency records swept"),
            Err(error) => tracing::warn!(%error, "idempotency records could not be swept"),
        }
    }
}
