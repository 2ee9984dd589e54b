//! The books as JSON.

use std::path::Path;

use crate::books::Tally;
use crate::counts::Counts;
use crate::device::Gpu;
use crate::json::{array, object, text};
use crate::machine::Machine;
use crate::size::round_up;

impl Machine {
    /// Writes the books into a file.
    pub(crate) fn write_report(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.report())
    }

    /// Writes the books into the file that the scenario names, if it names one.
    pub(crate) fn write_final_report(&self) {
        let Some(path) = self.scenario.books.as_ref().map(crate::scenario::FilePattern::path) else { return };
        if let Err(error) = self.write_report(&path) {
            eprintln!("stand-in-cuda: cannot write {}: {error}", path.display());
        }
    }

    fn report(&self) -> String {
        let gpus = self.gpus.iter().enumerate().map(|(number, gpu)| self.gpu(number, gpu));
        let kernels = self.kernels.iter().map(|(name, count)| {
            let largest = count.largest;
            let numbers = [
                ("launches", count.launches),
                ("replayed", count.replayed),
                ("variants", count.n_variants() as u64),
                ("spilling", count.n_spilling() as u64),
                ("registers", largest.registers.into()),
                ("stack", largest.stack.into()),
                ("spills", largest.spills.into()),
                ("shared", largest.shared.into()),
            ];
            (name, object(numbers.map(|(name, number)| (name, number.to_string()))))
        });
        let members = [
            ("pid", std::process::id().to_string()),
            ("driver", self.scenario.driver.to_string()),
            ("grain", self.scenario.grain.to_string()),
            ("gpus", array(gpus, ",\n  ")),
            ("kernels", object(kernels)),
            ("graphs", self.graphs()),
            ("streams", self.streams.n_added().to_string()),
            ("events", self.events.n_added().to_string()),
            ("calls", object(self.calls.iter().map(|(name, count)| (name, count.to_string())))),
        ];
        let members = members.map(|(name, value)| format!(" {}: {value}", text(name)));
        format!("{{\n{}\n}}\n", members.join(",\n"))
    }

    fn graphs(&self) -> String {
        let counts = &self.graph_counts;
        let numbers = [
            ("captures", counts.n_captures),
            ("captured", counts.n_captured),
            ("captured_launches", counts.n_captured_launches),
            ("instantiated", counts.n_instantiated),
            ("live", self.executables.iter().count() as u64),
        ];
        object(numbers.map(|(name, number)| (name, number.to_string())))
    }

    fn gpu(&self, number: usize, gpu: &Gpu) -> String {
        let (stride, points) = gpu.books.timeline.points();
        let points = points.iter().map(|point| array([point.asked, point.held], ", "));
        let texts = [
            ("name", text(&gpu.facts.name)),
            ("poison", gpu.poison.map_or("null".into(), |code| code.to_string())),
            ("timeline", object([("changes_of_a_point", stride.to_string()), ("asked_held", array(points, ", "))])),
        ];
        let numbers = [
            ("number", number as u64),
            ("capacity", gpu.books.capacity()),
            ("held", gpu.books.held()),
            ("own", gpu.books.own()),
            ("live", gpu.books.n_live() as u64),
            ("stacks_if_held", round_up(u64::from(gpu.counts.max_stack) * gpu.threads(), self.scenario.grain)),
        ];
        let numbers = numbers.into_iter().chain(sizes(&gpu.books.tally)).chain(work(&gpu.counts));
        object(numbers.map(|(name, number)| (name, number.to_string())).chain(texts))
    }
}

fn sizes(tally: &Tally) -> [(&'static str, u64); 18] {
    [
        ("context", tally.context),
        ("others", tally.others),
        ("code", tally.code),
        ("stacks", tally.stacks),
        ("asked", tally.asked),
        ("granted", tally.granted),
        ("pool", tally.pool_reserved),
        ("pinned", tally.pinned),
        ("peak_held", tally.peak_held),
        ("peak_own", tally.peak_own),
        ("peak_asked", tally.peak_asked),
        ("peak_pool", tally.peak_pool),
        ("peak_pinned", tally.peak_pinned),
        ("allocations", tally.n_allocations),
        ("frees", tally.n_frees),
        ("refused", tally.n_refused),
        ("injected", tally.n_injected),
        ("largest_refused", tally.largest_refused),
    ]
}

fn work(counts: &Counts) -> [(&'static str, u64); 18] {
    [
        ("bytes_up", counts.bytes_up),
        ("bytes_down", counts.bytes_down),
        ("bytes_within", counts.bytes_within),
        ("bytes_set", counts.bytes_set),
        ("uploads", counts.n_uploads),
        ("reads", counts.n_reads),
        ("copies", counts.n_copies),
        ("sets", counts.n_sets),
        ("launches", counts.n_launches),
        ("replays", counts.n_replays),
        ("replayed_launches", counts.n_replayed_launches),
        ("dispatches", counts.n_launches + counts.n_replays),
        ("syncs", counts.n_syncs),
        ("wild", counts.n_wild),
        ("modules", counts.n_modules),
        ("refused_modules", counts.n_refused_modules),
        ("max_stack", u64::from(counts.max_stack)),
        ("spilling_kernels", counts.n_spilling_kernels),
    ]
}
