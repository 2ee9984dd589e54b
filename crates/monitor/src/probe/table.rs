//! A report as a page for people.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::{Bytes, ProbeError};

use super::{CardMemory, CardReport, Holder, InstanceReport, Machine, NoCards, Unaccounted, Unseen};

const BAR_CELLS: u64 = 48;
/// A command line can fill pages; what tells it apart stands at its beginning.
const COMMAND_CHARS_MAX: usize = 64;
/// What stands in a column where the fact is unknown.
const UNKNOWN: &str = "?";

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_host(f)?;
        if let Some(version) = &self.driver {
            write!(f, "driver {version}")?;
            match self.cuda {
                Some(cuda) => writeln!(f, ", CUDA {cuda} at most")?,
                None => writeln!(f)?,
            }
        }
        if let Some(list) = &self.environment.visible_devices {
            writeln!(f, "CUDA_VISIBLE_DEVICES is `{}`", plain(list))?;
        }
        for report in &self.cards {
            writeln!(f, "\n{report}")?;
        }
        for error in &self.lost {
            writeln!(f, "\n{error}")?;
        }
        self.write_notes(f)
    }
}

impl Machine {
    fn write_host(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        write!(f, "host: {} logical CPUs, {} of memory", host.logical_cpus, host.memory)?;
        if let Some(limit) = host.memory_limit {
            write!(f, ", limited to {limit}")?;
        }
        writeln!(f, ", {} available", host.available)
    }

    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.no_cards {
            writeln!(f, "no card: {why}")?;
            if self.place.container && matches!(why, NoCards::Library { .. }) {
                writeln!(f, "a container sees the machine's cards when it is started with `--gpus all`")?;
            }
        }
        if !self.visible.order_is_certain {
            let cut = self.cards.iter().any(|report| report.card.mig && report.cuda_index.is_some());
            let advice = match cut {
                true => "name an instance in CUDA_VISIBLE_DEVICES by its UUID",
                false => "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name cards by UUID",
            };
            writeln!(f, "\nCUDA may number the cards otherwise: {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = &self.card;
        write!(f, "card {}: {}", card.index, card.name)?;
        if let Some(capability) = card.compute_capability {
            write!(f, ", capability {capability}")?;
        }
        if let Some(bandwidth) = card.bandwidth_per_sec {
            write!(f, ", {bandwidth} a second")?;
        }
        write!(f, "\n  {}, at {}", card.uuid, card.pci_bus_id)?;
        if let Some(index) = self.cuda_index {
            write!(f, ", CUDA device {index}")?;
        }
        write_memory(f, &self.memory)?;
        match (&self.memory, self.cuda_index) {
            _ if card.mig => f.write_str("\n  MIG is on: a process may use one instance and no more")?,
            (_, None) => f.write_str("\n  not ours: CUDA_VISIBLE_DEVICES leaves it out")?,
            (Ok(memory), Some(_)) => write!(f, "\n  we may use what is free now: {}", memory.free)?,
            (Err(_), Some(_)) => {}
        }
        for instance in &self.instances {
            write!(f, "\n{instance}")?;
        }
        match &self.holders {
            Ok(holders) => write_holders(f, holders)?,
            Err(why) => write!(f, "\n  its processes are unknown: {why}")?,
        }
        self.unaccounted.map_or(Ok(()), |rest| write_rest(f, rest))
    }
}

impl fmt::Display for InstanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.uuid)?;
        if let Some(index) = self.cuda_index {
            write!(f, ", CUDA device {index}")?;
        }
        match &self.memory {
            Ok(memory) => write!(f, ": {} in all, {} free", memory.total, memory.free),
            Err(error) => write!(f, ": {}", error.reason),
        }
    }
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &Result<CardMemory, ProbeError>) -> fmt::Result {
    match memory {
        Ok(memory) => {
            let CardMemory { total, reserved, used, free } = memory;
            write!(f, "\n  [{}]", bar(memory))?;
            write!(f, "\n  {total} in all = {used} used (#) + {reserved} kept by the driver (=) + {free} free (.)")
        }
        Err(error) => write!(f, "\n  its memory is unknown: {}", error.reason),
    }
}

/// What is there shows, however small: a part above zero has a cell at least.
fn bar(memory: &CardMemory) -> String {
    let cells = |part: Bytes| {
        let exact = u128::from(part.0) * u128::from(BAR_CELLS);
        exact.div_ceil(u128::from(memory.total.0.max(1))).min(BAR_CELLS.into()) as usize
    };
    let taken = "#".repeat(cells(memory.used)) + &"=".repeat(cells(memory.reserved));
    let taken = &taken[..taken.len().min(BAR_CELLS as usize)];
    format!("{taken:.<width$}", width = BAR_CELLS as usize)
}

fn write_holders(f: &mut fmt::Formatter<'_>, holders: &[Holder]) -> fmt::Result {
    if holders.is_empty() {
        return f.write_str("\n  no process is on it that can be seen here");
    }
    let rows: Vec<[String; 5]> = holders.iter().map(row).collect();
    let titles = ["pid", "kind", "memory", "user", "command"].map(String::from);
    let widths: [usize; 4] = std::array::from_fn(|column| {
        std::iter::once(&titles).chain(&rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for [pid, kind, memory, user, command] in std::iter::once(&titles).chain(&rows) {
        let [w_pid, w_kind, w_memory, w_user] = widths;
        write!(f, "\n  {pid:>w_pid$}  {kind:<w_kind$}  {memory:>w_memory$}  {user:<w_user$}  {command}")?;
    }
    let who = holders.iter().flat_map(|holder| [holder.user.as_ref().err(), holder.command.as_ref().err()]);
    write_reasons(f, "who it is", who.flatten())?;
    write_reasons(f, "memory", holders.iter().filter_map(|holder| holder.memory.as_ref().err()))
}

fn row(holder: &Holder) -> [String; 5] {
    let text = |fact: &Result<String, Unseen>| fact.as_deref().map_or(UNKNOWN.into(), plain);
    [
        holder.pid.to_string(),
        holder.kind.to_string(),
        holder.memory.map_or(UNKNOWN.into(), |bytes| bytes.to_string()),
        text(&holder.user),
        text(&holder.command),
    ]
}

/// One short line. A process writes its command line itself, and what it writes must not reach the terminal as orders.
fn plain(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMMAND_CHARS_MAX).collect();
    if text.chars().nth(COMMAND_CHARS_MAX).is_some() {
        line.pop();
        line.push('…');
    }
    line
}

fn write_reasons<'a>(f: &mut fmt::Formatter<'_>, what: &str, reasons: impl Iterator<Item = &'a Unseen>) -> fmt::Result {
    for why in reasons.collect::<BTreeSet<_>>() {
        write!(f, "\n  {UNKNOWN} ({what}): {why}")?;
    }
    Ok(())
}

fn write_rest(f: &mut fmt::Formatter<'_>, rest: Unaccounted) -> fmt::Result {
    match rest {
        Unaccounted { bytes: Bytes(0), .. } => Ok(()),
        Unaccounted { bytes, exact: true } => write!(f, "\n  {bytes} more is held by nobody in this list"),
        Unaccounted { bytes, exact: false } => {
            write!(f, "\n  {bytes} is held by processes of unknown size, or by nobody in this list")
        }
    }
}
