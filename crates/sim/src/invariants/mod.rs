//! What must hold in every run, one file each. Each file says first what it guards, in the words of the architecture.

mod apply_before_ack;
mod callback_through_the_log;
mod cancel_is_final;
mod content;
mod dedupe;
mod gaps;
mod isolation;
mod never_early;
mod publishing_before_send;
mod quota;
mod replay;
mod single_owner;
mod source_order;
mod specification;
mod verdicts;

use crate::story::Story;

/// An invariant: its name, and whether a run keeps it.
pub type Invariant = (&'static str, fn(&Story<'_>) -> Result<(), String>);

/// Every one, in the order in which they are asked: what explains others comes first.
pub const ALL: [Invariant; 15] = [
    ("specification", specification::check),
    ("gaps fail closed", gaps::check),
    ("single source order", source_order::check),
    ("replay equality", replay::check),
    ("callback through the log", callback_through_the_log::check),
    ("apply before ack", apply_before_ack::check),
    ("publishing before send", publishing_before_send::check),
    ("single effective owner", single_owner::check),
    ("never early", never_early::check),
    ("a verdict never changes", verdicts::check),
    ("dedupe", dedupe::check),
    ("cancel is final", cancel_is_final::check),
    ("byte for byte", content::check),
    ("quota conservation", quota::check),
    ("isolation", isolation::check),
];
