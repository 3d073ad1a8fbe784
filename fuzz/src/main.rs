//! Runs one target of `crates/fuzz` under libFuzzer, with a bound on the memory that one input may take.
//!
//! `NEREUS_FUZZ_TARGET` names the target; the arguments are libFuzzer's. See `dev/fuzz`.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::fuzz_target;

/// What may be allocated at once beyond what was before the input. Inputs have some kilobytes.
const BYTES_MAX: usize = 64 << 20;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator, counting. A decoder that believes a length it was told shows here although the system would give it
/// the room.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed).wrapping_add(layout.size());
        if allocated > LIMIT.load(Ordering::Relaxed) {
            // Whoever reports it allocates too, and an allocator may not unwind.
            LIMIT.store(usize::MAX, Ordering::Relaxed);
            eprintln!("one input took more than {BYTES_MAX} bytes");
            std::process::abort();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: OnceLock<fuzz::Target> = OnceLock::new();

fn target() -> fuzz::Target {
    let name = std::env::var("NEREUS_FUZZ_TARGET").unwrap_or_default();
    fuzz::target(&name).unwrap_or_else(|| {
        let names = fuzz::TARGETS.map(|target| target.name).join(", ");
        panic!("NEREUS_FUZZ_TARGET is {name:?}; there are {names}")
    })
}

fuzz_target!(|input: &[u8]| {
    let target = TARGET.get_or_init(target);
    LIMIT.store(ALLOCATED.load(Ordering::Relaxed).saturating_add(BYTES_MAX), Ordering::Relaxed);
    (target.run)(input);
    LIMIT.store(usize::MAX, Ordering::Relaxed);
});
