//! Many seeds, on as many threads as there are processors; each run stays on one.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::run::{self, Failure, Outcome};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Plays a seed. What a part of the world panics about is a failure as any other.
///
/// # Errors
/// [`Failure`].
pub fn play(seed: u64, verbose: bool) -> Result<Outcome, Failure> {
    PANIC.take();
    match panic::catch_unwind(AssertUnwindSafe(|| run::run(seed, verbose))) {
        Ok(result) => result,
        Err(payload) => {
            let message = payload.downcast_ref::<String>().cloned();
            let word = message.or_else(|| payload.downcast_ref::<&str>().map(|word| (*word).to_owned()));
            let told = PANIC.take().or(word).unwrap_or_else(|| "a panic without a word".to_owned());
            let (detail, events) = told.split_once("the last events:\n").unwrap_or((&told, ""));
            Err(Failure { invariant: "panic", detail: detail.trim_end().to_owned(), events: events.to_owned() })
        }
    }
}

/// Panics of runs are kept for [`play`] instead of being told at once.
pub fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        let told = info.to_string();
        // The first one is the cause; what its unwinding runs into is not.
        PANIC.with_borrow_mut(|panic| panic.get_or_insert(told).shrink_to_fit());
    }));
}

/// Plays seeds from one on, and hands each result over as it comes, until enough were played or `judge` says that it is enough.
/// `prepare` runs first on every thread.
pub fn campaign(
    from: u64,
    count: u64,
    prepare: impl Fn() + Sync,
    mut judge: impl FnMut(u64, Result<Outcome, Failure>) -> bool,
) {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (next, is_enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, results) = mpsc::sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, is_enough, prepare) = (sender.clone(), &next, &is_enough, &prepare);
            scope.spawn(move || {
                prepare();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || is_enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let seed = from.wrapping_add(number);
                    if sender.send((seed, play(seed, false))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, result) in results {
            if !judge(seed, result) {
                is_enough.store(true, Ordering::Relaxed);
            }
        }
    });
}
