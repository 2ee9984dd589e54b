//! Snapshots of the error message for every kind of wrong input.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::load_text;
use crate::ConfigError;

/// A wrong input: a title, a file name with its text, environment variables, flags.
type Case<'c> = (&'c str, (&'c str, &'c str), &'c [(&'c str, &'c str)], &'c [&'c str]);

/// A small valid file.
const VALID: (&str, &str) = ("run.toml", "[training]\nsteps = 10\n");

/// Flags that limit training, for files without a limit.
const LIMIT: &[&str] = &["--steps", "1"];

/// Returns settings for snapshot files that are named without the module path.
fn snapshot_settings() -> insta::Settings {
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
    let message = |&(title, file, variables, flags): &Case<'_>| {
        let error = load_text(file, variables, flags).err().unwrap_or_else(|| panic!("{title}: there was no error"));
        assert!(!matches!(error, ConfigError::Deserialize(_) | ConfigError::Merge(_)), "{title}: {error:?}");
        format!("== {title}\n{}", render(&error))
    };
    let all: Vec<String> = cases.iter().map(message).collect();
    snapshot_settings().bind(|| insta::assert_snapshot!(name, all.join("\n")));
}

/// Checks cases that are TOML files; `flags` prevent unrelated errors.
fn check_texts(name: &str, flags: &[&str], cases: &[(&str, &str)]) {
    let cases: Vec<Case<'_>> = cases.iter().map(|&(title, text)| (title, ("run.toml", text), &[][..], flags)).collect();
    check(name, &cases);
}

#[test]
fn unreadable_files_are_reported() {
    check(
        "bad_file",
        &[
            ("a file that is missing", ("run.toml", "missing"), &[], &[]),
            ("a file that cannot be read", ("run.toml", "locked"), &[], &[]),
            ("an unknown extension", ("run.json", "{}"), &[], &[]),
            ("no extension", ("run", ""), &[], &[]),
            ("a TOML file that is not valid TOML", ("run.toml", "[training]\nsteps = = 10\n"), &[], &[]),
            ("a TOML file with a key twice", ("run.toml", "[training]\nsteps = 1\nsteps = 2\n"), &[], &[]),
            ("a TOML file with an unclosed text", ("run.toml", "name = \"a\n"), &[], &[]),
            ("a YAML file that is not valid YAML", ("run.yaml", "training:\n  steps: 1\n bad\n"), &[], &[]),
            ("a YAML file with a key twice", ("run.yml", "training:\n  steps: 1\n  steps: 2\n"), &[], &[]),
            ("a YAML file that is a list", ("run.yaml", "- 1\n- 2\n"), &[], &[]),
            ("a YAML file of two documents", ("run.yaml", "seed: 1\n---\nseed: 2\n"), &[], &[]),
        ],
    );
}

/// Messages about hostile files stay short, however long the file, its lines, names, values and number of mistakes.
#[test]
fn messages_about_hostile_files_are_short() {
    let long = "x".repeat(200_000);
    let bomb: String = (1..9).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".into(), |text, level| {
        let repeated = vec![format!("*a{}", level - 1); 9].join(", ");
        format!("{text}a{level}: &a{level} [{repeated}]\n")
    });
    let cases = [
        ("run.toml", "a = ".to_string() + &"[".repeat(200_000)),
        ("run.yaml", "a: ".to_string() + &"[".repeat(200_000)),
        ("run.yaml", "a: ".to_string() + &"{a: ".repeat(50_000)),
        ("run.yaml", bomb),
        ("run.yaml", long.clone()),
        ("run.toml", long.clone()),
        ("run.toml", format!("[training]\nsteps = \"{long}\"\n")),
        ("run.yaml", format!("training:\n  steps: {long}\n")),
        ("run.toml", format!("[{long}]\nsteps = 1\n")),
        ("run.toml", format!("[training]\n{long} = 1\n")),
        ("run.toml", format!("name = \"{long}!\"\n[training]\nsteps = 1\n")),
        ("run.toml", format!("[augment]\nspeeds = [{}]\n", "\"x\", ".repeat(2_000))),
        ("run.toml", (0..4_000).map(|n| format!("key{n} = 1\n")).collect()),
        ("run.toml", (0..9_000).map(|n| format!("key{n} = 1\n")).collect()),
        ("run.yaml", (0..4_000).map(|n| format!("key{n}: 1\n")).collect()),
    ];
    for (name, text) in cases {
        let start: String = text.chars().take(40).collect();
        let error = load_text((name, &text), &[], &[]).err().unwrap_or_else(|| panic!("{start}: there was no error"));
        let message = render(&error);
        assert!(message.len() < 30_000, "{} bytes of message for {start}", message.len());
        assert!(message.lines().count() < 600, "{start}");
    }
}

#[test]
fn unknown_names_are_reported() {
    check_texts(
        "bad_name",
        LIMIT,
        &[
            ("an unknown section", "[zebra]\nstripes = 3\n"),
            ("a section that is misspelled", "seed = 3\n[traning]\nsteps = 3\n"),
            ("an unknown key", "[training]\nfavorite_color = \"red\"\n"),
            ("a key that is misspelled", "[data]\nbatch_siz = 16\n"),
            ("a key in the wrong section", "[model]\nbatch_size = 16\n"),
            ("a key above all sections", "batch_size = 16\n"),
            ("a dotted key that is misspelled", "training.lerning_rate = 1e-3\n"),
            ("an older name that is misspelled", "[training]\nnum_epoch = 3\n"),
            ("a value for a section", "data = 3\n"),
            ("a table for a key", "[data.batch_size]\nvalue = 3\n"),
            ("a key under its present and an older name", "[training]\nepochs = 3\nnum_epochs = 4\n"),
            ("several names at once", "[modle]\n[data]\nbatch_siz = 16\n[training]\nstep = -3\nepochs = 0\n"),
        ],
    );
}

#[test]
fn wrong_types_are_reported() {
    check_texts(
        "bad_type",
        LIMIT,
        &[
            ("a text for a number", "[training]\nsteps = \"many\"\n"),
            ("a number in quotation marks", "[training]\nsteps = \"10\"\n"),
            ("a fraction for a whole number", "[data]\nbatch_size = 16.7\n"),
            ("a boolean for a number", "[model]\ndropout = true\n"),
            ("a list for a number", "[data]\nbatch_size = [4, 8]\n"),
            ("a number for a list", "[augment]\nspeeds = 1.1\n"),
            ("a text in a list", "[augment]\nspeeds = [1.0, \"fast\"]\n"),
            ("a number for a text", "name = 12\n"),
            ("a number for a boolean", "[augment]\nenabled = 1\n"),
            ("an unknown unit of time", "[training]\nmax_time = \"5 moons\"\n"),
            ("a word for an amount of memory", "[training]\nmax_memory = \"plenty\"\n"),
            ("a boolean for a word", "task = true\n"),
        ],
    );
}

#[test]
fn values_out_of_range_are_reported() {
    check_texts(
        "bad_range",
        LIMIT,
        &[
            ("a negative batch", "[data]\nbatch_size = -4\n"),
            ("a batch above the limit", "[data]\nbatch_size = 5000000000\n"),
            ("a number too large for TOML", "seed = 99999999999999999999\n"),
            ("a share above its limit", "[data]\nvalidation_share = 1.5\n"),
            ("zero heads", "[model]\nattention_heads = 0\n"),
            ("a rate that no model survives", "[training]\nlearning_rate = 1e40\n"),
            ("a rate of NaN", "[training]\nlearning_rate = nan\n"),
            ("a dropout of one", "[model]\ndropout = 1.0\n"),
            ("a speed above its limit", "[augment]\nspeeds = [1.0, 3.0]\n"),
            ("an empty list of speeds", "[augment]\nspeeds = []\n"),
            ("memory without a unit", "[training]\nmax_memory = 8\n"),
            ("a fraction above one", "[training]\nmax_memory_fraction = 85\n"),
            ("a time of zero", "[training]\nmax_time = 0\n"),
            (
                "several values at once",
                "[data]\nbatch_size = 0\n[model]\nd_model = 100\nattention_heads = 3\nconv_kernel = 8\n",
            ),
        ],
    );
}

#[test]
fn wrong_combinations_are_reported() {
    check_texts(
        "bad_combination",
        &[],
        &[
            ("both sizes of a batch", "[data]\nbatch_size = 16\nbatch_seconds = \"90s\"\n[training]\nsteps = 1\n"),
            (
                "both ways to set the micro-batch",
                "[training]\nsteps = 1\nmicro_batch = 4\ngradient_accumulation_steps = 2\n",
            ),
            (
                "pieces of a batch in seconds",
                "[data]\nbatch_seconds = \"90s\"\n[training]\nsteps = 1\ngradient_accumulation_steps = 2\n",
            ),
            ("both limits of memory", "[training]\nsteps = 1\nmax_memory = \"8GiB\"\nmax_memory_fraction = 0.8\n"),
            ("heads that do not divide the width", "training.steps = 1\n[model]\nd_model = 100\nattention_heads = 3\n"),
            ("an even kernel", "training.steps = 1\n[model]\nconv_kernel = 16\n"),
            ("a subsampling of six", "training.steps = 1\n[model]\nsubsampling = 6\n"),
            ("too few features to halve", "training.steps = 1\n[features]\nn_mels = 14\n[model]\nsubsampling = 8\n"),
            ("a name that is a path", "name = \"../up\"\n[training]\nsteps = 1\n"),
            ("a micro-batch above the batch", "[training]\nsteps = 1\nmicro_batch = 32\n"),
            ("a shortest length above the longest", "training.steps = 1\n[data]\nmin_seconds = 5\nmax_seconds = 4\n"),
            ("a window longer than the transform", "training.steps = 1\n[features]\nn_fft = 256\nwin_length = 400\n"),
            ("a hop longer than the window", "training.steps = 1\n[features]\nwin_length = 200\nhop_length = 400\n"),
            ("a final rate above the highest", "[training]\nsteps = 1\nlearning_rate = 1e-6\n"),
        ],
    );
}

#[test]
fn unknown_words_are_reported() {
    check_texts(
        "bad_word",
        LIMIT,
        &[
            ("a precision that is misspelled", "[training]\nprecision = \"fp61\"\n"),
            ("a precision in capitals", "[training]\nprecision = \"BF16\"\n"),
            ("an unknown task", "task = \"singing\"\n"),
            ("a backend that is misspelled", "[device]\nbackend = \"cdua\"\n"),
            ("a preset that is misspelled", "[features]\npreset = \"wisper\"\n"),
        ],
    );
}

#[test]
fn yaml_errors_are_reported() {
    let yaml = |text| ("run.yaml", text);
    check(
        "bad_yaml",
        &[
            ("a section that is misspelled", yaml("seed: 3\nmodle:\n  d_model: 64\n"), &[], &[]),
            ("a key that is misspelled", yaml("seed: 3\ndata:\n  # sixteen\n  batch_siz: 16\n"), &[], &[]),
            ("a text for a number", yaml("training:\n  steps: many # or more\n"), &[], &[]),
            ("nothing for a number", yaml("training:\n  learning_rate:\n  steps: 1\n"), &[], &[]),
            ("an error in a mapping on one line", yaml("training: {steps: -1}\n"), &[], &[]),
        ],
    );
}

#[test]
fn wrong_variables_are_reported() {
    check(
        "bad_variable",
        &[
            ("a key that is misspelled", VALID, &[("PLIMSOLL_DATA__BATCH_SIZ", "16")], &[]),
            ("a key in the wrong section", VALID, &[("PLIMSOLL_MODEL__BATCH_SIZE", "16")], &[]),
            ("one underscore in place of two", VALID, &[("PLIMSOLL_TRAINING_STEPS", "16")], &[]),
            ("a key above all sections that is misspelled", VALID, &[("PLIMSOLL_SEDE", "16")], &[]),
            ("an unknown section", VALID, &[("PLIMSOLL_ZEBRA__STRIPES", "16")], &[]),
            ("a text for a number", VALID, &[("PLIMSOLL_TRAINING__STEPS", "many")], &[]),
            ("a negative number", VALID, &[("PLIMSOLL_TRAINING__STEPS", "-3")], &[]),
            ("a word that is misspelled", VALID, &[("PLIMSOLL_TRAINING__SCHEDULE", "cosin")], &[]),
        ],
    );
}

#[test]
fn wrong_flags_are_reported() {
    check(
        "bad_flag",
        &[
            ("a text for a number", VALID, &[], &["--epochs", "three"]),
            ("a negative number", VALID, &[], &["--batch-size", "-3"]),
            ("a word that is misspelled", VALID, &[], &["--task", "ars"]),
            ("an amount of memory with an unknown unit", VALID, &[], &["--max-memory", "8 cats"]),
            ("more than the whole device", VALID, &[], &["--max-memory", "120%"]),
            ("`--set` without an equals sign", VALID, &[], &["--set", "training.steps"]),
            ("`--set` of a negative number", VALID, &[], &["--set", "training.steps=-3"]),
            ("`--set` of a key that is misspelled", VALID, &[], &["--set", "data.speeds=[0.9,1.0]"]),
            ("`--set` with an underscore in place of the dot", VALID, &[], &["--set", "training_steps=3"]),
            ("`--set` of a section", VALID, &[], &["--set", "training=3"]),
            ("a width that the default number of heads does not divide", VALID, &[], &["--d-model", "30"]),
            (
                "errors in three layers",
                ("run.toml", "[model]\nattention_heads = 0\n"),
                &[("PLIMSOLL_SEED", "-1")],
                &["--steps", "0"],
            ),
        ],
    );
}
