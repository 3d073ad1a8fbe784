//! `nereus-sim`: plays seeds of the simulator, and says which break what.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use sim::campaign::{campaign, catch_panics, play};
use sim::run::{Failure, Outcome};
use tokio::time::Instant;

const AFTER_HELP: &str = "\
A seed decides everything: how large the cell is, what clients do, what goes wrong, when, and in which order tasks run. Exit code 0 \
means that every invariant held (or, with --planted, that every planted mistake was caught); 1 that one did not; 2 wrong usage.

  dev/sim --seeds 2000               seeds 0 to 1999
  dev/sim --seeds 500 --from 70000   500 seeds from 70000 on
  dev/sim --seed 4711 --verbose      one seed, with everything that happens in it
  dev/sim --planted                  makes one known mistake after the other, and says after how many seeds each is caught";

/// Failures after which a campaign stops.
const FAILURES_MAX: usize = 5;
const SEEDS_DEFAULT: u64 = 200;

/// Plays the simulator: the real worker, shard and client on virtual time, with everything around them at fault.
#[derive(Debug, Parser)]
#[command(name = "dev/sim", after_help = AFTER_HELP, max_term_width = 110)]
struct Arguments {
    /// How many seeds to play [default: 200]
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<u64>,

    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,

    /// Play this one, twice, and compare
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Tell everything that happens
    #[arg(long, requires = "seed")]
    verbose: bool,

    /// Make each known mistake, and see that it is caught
    #[cfg(feature = "planted")]
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    planted: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    catch_panics();
    let is_fine = run(&arguments);
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(arguments: &Arguments) -> bool {
    #[cfg(feature = "planted")]
    if arguments.planted {
        return planted::all();
    }
    match arguments.seed {
        Some(seed) => replay(seed, arguments.verbose),
        None => many(arguments.from, arguments.seeds.unwrap_or(SEEDS_DEFAULT)),
    }
}

/// One seed, and the same again: it must be the same run.
fn replay(seed: u64, verbose: bool) -> bool {
    let first = play(seed, verbose);
    let again = play(seed, false);
    if first != again {
        say(format_args!("seed {seed} is not one run: {first:?} and {again:?}"));
        return false;
    }
    match first {
        Ok(outcome) => {
            say(format_args!("seed {seed} holds: {outcome:?}"));
            true
        }
        Err(failure) => {
            tell(seed, &failure);
            false
        }
    }
}

fn many(from: u64, count: u64) -> bool {
    let started = Instant::now();
    let (mut played, mut operations, mut records, mut accepted, mut failures) = (0_u64, 0, 0, 0, 0_usize);
    let mut told_at = Instant::now();
    campaign(
        from,
        count,
        || {},
        |seed, result| {
            played += 1;
            match result {
                Ok(Outcome { operations: asked, records: logged, account, .. }) => {
                    operations += asked;
                    records += logged;
                    accepted += account.accepted;
                }
                Err(failure) => {
                    tell(seed, &failure);
                    failures += 1;
                }
            }
            if told_at.elapsed().as_secs() >= 10 {
                told_at = Instant::now();
                say(format_args!("{played} of {count} seeds, {:.1} a second", per_second(played, started)));
            }
            failures < FAILURES_MAX
        },
    );
    let rate = per_second(played, started);
    let to = from.saturating_add(played).saturating_sub(1);
    say(format_args!(
        "{played} seeds ({from} to {to}), {operations} operations, {records} records, {accepted} messages accepted, {failures} failures; {rate:.1} seeds a \
         second"
    ));
    failures == 0
}

#[cfg(feature = "planted")]
mod planted {
    use shard::planted::{Mistake, choose};
    use sim::campaign::campaign;

    use super::say;

    /// Every mistake is caught within this many seeds.
    const SEEDS_MAX: u64 = 100;

    /// One mistake after the other; whether all were caught.
    pub(crate) fn all() -> bool {
        let mut is_fine = true;
        say(format_args!("| mistake | seeds until caught | by |\n|---|---|---|"));
        for mistake in Mistake::ALL {
            let mut caught = None;
            campaign(
                0,
                SEEDS_MAX,
                || choose(Some(mistake)),
                |seed, result| {
                    if let Err(failure) = result
                        && caught.is_none_or(|(earlier, _)| seed < earlier)
                    {
                        caught = Some((seed, failure.invariant));
                    }
                    caught.is_none()
                },
            );
            match caught {
                Some((seed, invariant)) => say(format_args!("| {mistake:?} | {} | {invariant} |", seed + 1)),
                None => say(format_args!("| {mistake:?} | not within {SEEDS_MAX} | |")),
            }
            is_fine &= caught.is_some();
        }
        is_fine
    }
}

fn tell(seed: u64, Failure { invariant, detail, events }: &Failure) {
    say(format_args!("seed {seed} breaks {invariant}: {detail}\n{events}\nagain: dev/sim --seed {seed} --verbose"));
}

fn per_second(played: u64, started: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let played = played as f64;
    played / started.elapsed().as_secs_f64().max(0.001)
}

fn say(line: std::fmt::Arguments<'_>) {
    // A reader that went away ends nothing.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
