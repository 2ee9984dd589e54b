//! Every kind of bad input and the message a person gets, as snapshots.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::load_text;
use crate::config::ConfigError;

/// What somebody did wrong: a title, a file with its text, variables, flags.
type Case<'c> = (&'c str, (&'c str, &'c str), &'c [(&'c str, &'c str)], &'c [&'c str]);

/// A small file with nothing wrong.
const FINE: (&str, &str) = ("run.toml", "[training]\nsteps = 10\n");

/// Says when training stops, for files that do not.
const ENDS: &[&str] = &["--steps", "1"];

/// Snapshots by their own name alone: this module is also compiled outside of the program while it is being written.
pub(super) fn snapshot_settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("../snapshots");
    settings
}

fn render(error: &ConfigError) -> String {
    let theme = GraphicalTheme::unicode_nocolor();
    let mut text = String::new();
    GraphicalReportHandler::new_themed(theme)
        .with_width(100)
        .with_links(false)
        .render_report(&mut text, error)
        .unwrap();
    text
}

fn check(name: &str, cases: &[Case<'_>]) {
    let told = |&(title, file, variables, flags): &Case<'_>| {
        let error = load_text(file, variables, flags).err().unwrap_or_else(|| panic!("{title}: nothing was wrong"));
        assert!(!matches!(error, ConfigError::Refused(_) | ConfigError::Merge(_)), "{title}: {error:?}");
        format!("== {title}\n{}", render(&error))
    };
    let all: Vec<String> = cases.iter().map(told).collect();
    snapshot_settings().bind(|| insta::assert_snapshot!(name, all.join("\n")));
}

/// Cases that differ in the text of a TOML file alone; `flags` keep away what else would be wrong with them.
fn check_texts(name: &str, flags: &[&str], cases: &[(&str, &str)]) {
    let cases: Vec<Case<'_>> = cases.iter().map(|&(title, text)| (title, ("run.toml", text), &[][..], flags)).collect();
    check(name, &cases);
}

#[test]
fn files() {
    check(
        "bad_file",
        &[
            ("a file that is missing", ("run.toml", "missing"), &[], &[]),
            ("a file that cannot be read", ("run.toml", "locked"), &[], &[]),
            ("an extension that is not known", ("run.json", "{}"), &[], &[]),
            ("no extension", ("run", ""), &[], &[]),
            ("a TOML file that is no TOML", ("run.toml", "[training]\nsteps = = 10\n"), &[], &[]),
            ("a TOML file with a key twice", ("run.toml", "[training]\nsteps = 1\nsteps = 2\n"), &[], &[]),
            ("a TOML file with a text that does not end", ("run.toml", "name = \"a\n"), &[], &[]),
            ("a YAML file that is no YAML", ("run.yaml", "training:\n  steps: 1\n bad\n"), &[], &[]),
            ("a YAML file with a key twice", ("run.yml", "training:\n  steps: 1\n  steps: 2\n"), &[], &[]),
            ("a YAML file that is a list", ("run.yaml", "- 1\n- 2\n"), &[], &[]),
            ("a YAML file of two documents", ("run.yaml", "seed: 1\n---\nseed: 2\n"), &[], &[]),
        ],
    );
}

#[test]
fn names() {
    check_texts(
        "bad_name",
        ENDS,
        &[
            ("a section that is not known", "[zebra]\nstripes = 3\n"),
            ("a section that is misspelt", "seed = 3\n[traning]\nsteps = 3\n"),
            ("a key that is not known", "[training]\nfavourite_colour = \"red\"\n"),
            ("a key that is misspelt", "[data]\nbatch_siz = 16\n"),
            ("a key in the wrong section", "[model]\nbatch_size = 16\n"),
            ("a key above all sections", "batch_size = 16\n"),
            ("a dotted key that is misspelt", "training.lerning_rate = 1e-3\n"),
            ("an older name that is misspelt", "[training]\nnum_epoch = 3\n"),
            ("a value for a section", "data = 3\n"),
            ("a table for a key", "[data.batch_size]\nvalue = 3\n"),
            ("a key under today's and an older name", "[training]\nepochs = 3\nnum_epochs = 4\n"),
            ("several names at once", "[modle]\n[data]\nbatch_siz = 16\n[training]\nstep = -3\nepochs = 0\n"),
        ],
    );
}

#[test]
fn types() {
    check_texts(
        "bad_type",
        ENDS,
        &[
            ("a text for a number", "[training]\nsteps = \"many\"\n"),
            ("a number in quotation marks", "[training]\nsteps = \"10\"\n"),
            ("a fraction for a whole number", "[data]\nbatch_size = 16.7\n"),
            ("a truth for a number", "[model]\ndropout = true\n"),
            ("a list for a number", "[data]\nbatch_size = [4, 8]\n"),
            ("a number for a list", "[augment]\nspeeds = 1.1\n"),
            ("a text in a list", "[augment]\nspeeds = [1.0, \"fast\"]\n"),
            ("a number for a text", "name = 12\n"),
            ("a number for a truth", "[augment]\nenabled = 1\n"),
            ("no unit of time", "[training]\nmax_time = \"5 moons\"\n"),
            ("no amount of memory", "[training]\nmax_memory = \"plenty\"\n"),
            ("a truth for a word", "task = true\n"),
        ],
    );
}

#[test]
fn ranges() {
    check_texts(
        "bad_range",
        ENDS,
        &[
            ("a negative batch", "[data]\nbatch_size = -4\n"),
            ("a batch beyond all numbers", "[data]\nbatch_size = 5000000000\n"),
            ("a number beyond TOML", "seed = 99999999999999999999\n"),
            ("a share of more than everything", "[data]\nvalidation_share = 1.5\n"),
            ("no heads", "[model]\nattention_heads = 0\n"),
            ("a rate that is no number", "[training]\nlearning_rate = nan\n"),
            ("a dropout of everything", "[model]\ndropout = 1.0\n"),
            ("a speed of three", "[augment]\nspeeds = [1.0, 3.0]\n"),
            ("no speeds", "[augment]\nspeeds = []\n"),
            ("memory without a unit", "[training]\nmax_memory = 8\n"),
            ("a fraction of more than the device", "[training]\nmax_memory_fraction = 85\n"),
            ("no time at all", "[training]\nmax_time = 0\n"),
            (
                "several values at once",
                "[data]\nbatch_size = 0\n[model]\nd_model = 100\nattention_heads = 3\nconv_kernel = 8\n",
            ),
        ],
    );
}

#[test]
fn combinations() {
    check_texts(
        "bad_combination",
        &[],
        &[
            ("both sizes of a batch", "[data]\nbatch_size = 16\nbatch_seconds = \"90s\"\n[training]\nsteps = 1\n"),
            ("both ways to split", "[training]\nsteps = 1\nmicro_batch = 4\ngradient_accumulation_steps = 2\n"),
            ("both limits of memory", "[training]\nsteps = 1\nmax_memory = \"8GiB\"\nmax_memory_fraction = 0.8\n"),
            ("no end", "[model]\nd_model = 64\n"),
            ("heads that do not divide the width", "training.steps = 1\n[model]\nd_model = 100\nattention_heads = 3\n"),
            ("a kernel without a middle", "training.steps = 1\n[model]\nconv_kernel = 16\n"),
            ("a subsampling of six", "training.steps = 1\n[model]\nsubsampling = 6\n"),
            ("a name that is a path", "name = \"../up\"\n[training]\nsteps = 1\n"),
            ("a micro-batch above the batch", "[training]\nsteps = 1\nmicro_batch = 32\n"),
            ("more micro-batches than utterances", "[training]\nsteps = 1\ngradient_accumulation_steps = 64\n"),
            ("no length that is allowed", "training.steps = 1\n[data]\nmin_seconds = 5\nmax_seconds = 4\n"),
            ("a window above the transform", "training.steps = 1\n[features]\nn_fft = 256\nwin_length = 400\n"),
            ("gaps between windows", "training.steps = 1\n[features]\nwin_length = 200\nhop_length = 400\n"),
            ("a rate that ends above its highest", "[training]\nsteps = 1\nlearning_rate = 1e-6\n"),
        ],
    );
}

#[test]
fn words() {
    check_texts(
        "bad_word",
        ENDS,
        &[
            ("a precision that is misspelt", "[training]\nprecision = \"fp61\"\n"),
            ("a precision in capitals", "[training]\nprecision = \"BF16\"\n"),
            ("a task that is not known", "task = \"singing\"\n"),
            ("a backend that is misspelt", "[device]\nbackend = \"cdua\"\n"),
            ("a preset that is misspelt", "[features]\npreset = \"wisper\"\n"),
        ],
    );
}

#[test]
fn yaml() {
    let yaml = |text| ("run.yaml", text);
    check(
        "bad_yaml",
        &[
            ("a section that is misspelt", yaml("seed: 3\nmodle:\n  d_model: 64\n"), &[], &[]),
            ("a key that is misspelt", yaml("seed: 3\ndata:\n  # sixteen\n  batch_siz: 16\n"), &[], &[]),
            ("a text for a number", yaml("training:\n  steps: many # or more\n"), &[], &[]),
            ("nothing for a number", yaml("training:\n  learning_rate:\n  steps: 1\n"), &[], &[]),
            ("a mistake in one line", yaml("training: {steps: -1}\n"), &[], &[]),
        ],
    );
}

#[test]
fn variables() {
    check(
        "bad_variable",
        &[
            ("a key that is misspelt", FINE, &[("PLIMSOLL_DATA__BATCH_SIZ", "16")], &[]),
            ("a key in the wrong section", FINE, &[("PLIMSOLL_MODEL__BATCH_SIZE", "16")], &[]),
            ("one underscore only", FINE, &[("PLIMSOLL_TRAINING_STEPS", "16")], &[]),
            ("a key above all sections that is misspelt", FINE, &[("PLIMSOLL_SEDE", "16")], &[]),
            ("a section that is not known", FINE, &[("PLIMSOLL_ZEBRA__STRIPES", "16")], &[]),
            ("a text for a number", FINE, &[("PLIMSOLL_TRAINING__STEPS", "many")], &[]),
            ("a negative number", FINE, &[("PLIMSOLL_TRAINING__STEPS", "-3")], &[]),
            ("a word that is misspelt", FINE, &[("PLIMSOLL_TRAINING__SCHEDULE", "cosin")], &[]),
        ],
    );
}

#[test]
fn flags() {
    check(
        "bad_flag",
        &[
            ("a text for a number", FINE, &[], &["--epochs", "three"]),
            ("a negative number", FINE, &[], &["--batch-size", "-3"]),
            ("a word that is misspelt", FINE, &[], &["--task", "ars"]),
            ("an amount of memory that is none", FINE, &[], &["--max-memory", "8 cats"]),
            ("more than the whole device", FINE, &[], &["--max-memory", "120%"]),
            ("`--set` without an equals sign", FINE, &[], &["--set", "training.steps"]),
            ("`--set` of a negative number", FINE, &[], &["--set", "training.steps=-3"]),
            ("`--set` of a key that is misspelt", FINE, &[], &["--set", "data.speeds=[0.9,1.0]"]),
            ("`--set` with an underscore for the dot", FINE, &[], &["--set", "training_steps=3"]),
            ("`--set` of a section", FINE, &[], &["--set", "training=3"]),
            ("a width that the heads of the defaults do not divide", FINE, &[], &["--d-model", "30"]),
            (
                "mistakes in three layers",
                ("run.toml", "[model]\nattention_heads = 0\n"),
                &[("PLIMSOLL_SEED", "-1")],
                &["--steps", "0"],
            ),
        ],
    );
}
