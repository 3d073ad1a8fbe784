//! A resource that many hold and one closes.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

enum State<T> {
    Open(T),
    Closed { reason: String },
}

/// Shared access to something that can be closed under everybody's hands: clones of the gate do not keep it open.
///
/// Whoever uses the resource is *inside* the gate. [`close`](Gate::close) waits until nobody is, then drops the resource, so that
/// a database behind it has let go of its folder when `close` returns, whoever still holds a clone. Going inside costs
/// an uncontended lock. A thread must not go inside twice at once: a close that waits between the two would wait for ever.
pub struct Gate<T> {
    state: Arc<RwLock<State<T>>>,
}

impl<T> Gate<T> {
    /// An open gate with the resource behind it.
    pub fn new(resource: T) -> Gate<T> {
        Gate { state: Arc::new(RwLock::new(State::Open(resource))) }
    }

    /// Goes inside, for as long as the returned value lives.
    pub fn enter(&self) -> Inside<'_, T> {
        // The state is replaced whole, so one that a panicking thread held is still good.
        Inside { state: self.state.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Waits until nobody is inside and drops the resource. The first reason stays.
    pub fn close(&self, reason: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Open(_)) {
            *state = State::Closed { reason: reason.to_owned() };
        }
    }
}

impl<T> Clone for Gate<T> {
    fn clone(&self) -> Gate<T> {
        Gate { state: Arc::clone(&self.state) }
    }
}

/// Somebody inside a [`Gate`].
pub struct Inside<'a, T> {
    state: RwLockReadGuard<'a, State<T>>,
}

impl<T> Inside<'_, T> {
    /// The resource.
    ///
    /// # Errors
    /// Why it was closed.
    pub fn resource(&self) -> Result<&T, &str> {
        match &*self.state {
            State::Open(resource) => Ok(resource),
            State::Closed { reason } => Err(reason),
        }
    }
}
