//! What a run came to, for people.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Scene;
use super::check::Account;
use super::ingress::IngressAccount;
use super::ledger::Violation;
use crate::console::{grouped, table};

/// Violations that are printed; the rest is counted.
const PRINTED_MAX: usize = 40;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the workload followed from.
    pub seed: u64,
    /// Where messages went, and what was killed.
    pub scene: Scene,
    /// How often it was killed under load.
    pub rounds: u64,
    /// How often the server was killed during a start besides.
    pub start_kills: u64,
    /// How long all of it took.
    pub took: Duration,
    /// What became of the messages.
    pub account: Account,
    /// What became of the records of the ingress, where there was one.
    pub ingress: Option<IngressAccount>,
    /// Messages that were asked for.
    pub asked: u64,
    /// Answers that did not come.
    pub answers_lost: u64,
    /// Requests that were repeated with their key after a restart, and answered.
    pub repeats_answered: u64,
    /// Answers that were refusals, by code.
    pub refusals: BTreeMap<String, u64>,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// The run's folder, where it was kept.
    pub folder: Option<PathBuf>,
}

impl Report {
    /// The account as a table.
    pub fn table(&self) -> String {
        let account = &self.account;
        let line = |name: &str, count: u64| vec![name.to_owned(), grouped(count)];
        let kills = self.rounds + self.start_kills;
        let sum_name = if account.accepted() == account.accounted() { "  sum" } else { "  sum (it should be equal)" };
        let mut rows = vec![
            line(&format!("kills of the {}", self.scene.victim()), kills),
            line("  during a start", self.start_kills),
            line("messages asked for", self.asked),
            line("answers lost to kills, of all requests", self.answers_lost),
            line("requests repeated with their key and answered", self.repeats_answered),
            line("accepted", account.accepted()),
            line("  answered", account.answered),
            line("  found after the answer was lost", account.found + account.found_in_list),
            line("not accepted", account.refused + account.vanished),
            line("  refused or not sent", account.refused),
            line("  the answer was lost and nothing was taken", account.vanished),
            line("published", account.published),
            line("canceled", account.canceled),
            line("expired", account.expired),
            line("dead-lettered", account.dead_lettered),
            line("pending", account.pending),
            line(sum_name, account.accounted()),
            line("moved at least once", account.moved),
            line("records in the topics", account.records),
            line("  duplicates the service warns of", account.explained_duplicates),
            line("  other duplicates, told apart by their attempts", account.told_apart),
            line("  whose arrival a follower saw", account.followed),
        ];
        if let Some(ingress) = &self.ingress {
            rows.extend([
                line("records written to the ingress", ingress.records),
                line("  that scheduled a message", ingress.scheduled),
                line("  that moved or canceled one", ingress.changed),
                line("  that were refused", ingress.refused),
                line("  receipts that came twice", ingress.repeated_receipts),
            ]);
        }
        rows.push(line("violations", self.violations.len() as u64));
        table(&rows)
    }

    /// The broken promises, one a line.
    pub fn violation_lines(&self) -> String {
        let mut text = String::new();
        for violation in self.violations.iter().take(PRINTED_MAX) {
            text.push_str(&format!("{violation}\n"));
        }
        if let Some(more) = self.violations.len().checked_sub(PRINTED_MAX).filter(|more| *more > 0) {
            text.push_str(&format!("and {more} more\n"));
        }
        text
    }

    /// The command that runs the same workload.
    pub fn command(&self) -> String {
        command(self.scene, self.rounds, self.seed)
    }
}

/// The command that runs a workload.
pub(crate) fn command(scene: Scene, rounds: u64, seed: u64) -> String {
    let what = match scene {
        Scene::Embedded => String::new(),
        Scene::KafkaServer | Scene::KafkaBroker => format!(" --destination kafka --kill {}", scene.victim()),
    };
    format!("dev/crash{what} --rounds {rounds} --seed {seed}")
}
