//! Tests of loading as a whole: layers, formats, older names, printing and loading again.

mod bad_input;

use std::io;
use std::path::Path;

use clap::Parser;
use plimsoll_core::{Bytes, Seconds};

use super::load::load_with;
use super::merge::merge;
use super::setting::Setting;
use super::*;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    config: ConfigArgs,
}

fn args(flags: &[&str]) -> ConfigArgs {
    Program::try_parse_from(["plimsoll"].iter().chain(flags)).expect("flags that clap knows").config
}

fn environment(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    let owned: Vec<_> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    owned.into_iter()
}

/// Loads a configuration with a file that is given as a name and a text.
fn load_text(file: (&str, &str), variables: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, ConfigError> {
    let mut args = args(flags);
    args.config = (!file.0.is_empty()).then(|| file.0.into());
    let read = |_: &Path| match file.1 {
        "missing" => Err(io::ErrorKind::NotFound.into()),
        "locked" => Err(io::ErrorKind::PermissionDenied.into()),
        text => Ok(text.to_string()),
    };
    load_with(&args, environment(variables), &read)
}

fn loaded(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Loaded {
    load_text(("run.toml", text), variables, flags).unwrap_or_else(|error| panic!("{:?}", miette::Report::new(error)))
}

/// Checks each pair of layers, the built-in file being a default.
#[test]
fn limits_of_stronger_layers_replace_those_of_weaker_layers() {
    let limits = |loaded: Loaded| {
        let training = loaded.config.training;
        (training.epochs, training.steps, training.max_time.map(|time| time.0))
    };
    let built_in = |variables: &[(&str, &str)], flags: &[&str]| {
        limits(load_with(&args(flags), environment(variables), &|_| unreachable!()).unwrap())
    };
    let time = "training.max_time=60s";
    assert_eq!(built_in(&[], &[]), (Some(3), None, None));
    assert_eq!(built_in(&[], &["--steps", "4000"]), (None, Some(4000), None));
    assert_eq!(built_in(&[("PLIMSOLL_TRAINING__STEPS", "7")], &[]), (None, Some(7), None));
    assert_eq!(built_in(&[], &["--steps", "4000", "--epochs", "2"]), (Some(2), Some(4000), None));
    assert_eq!(built_in(&[], &["--set", time]), (None, None, Some(60.0)));
    assert_eq!(built_in(&[], &["--set", time, "--epochs", "2"]), (Some(2), None, Some(60.0)));
    let in_file = |text: &str, flags: &[&str]| limits(loaded(&format!("[training]\n{text}"), &[], flags));
    assert_eq!(in_file("epochs = 9", &["--steps", "4000"]), (None, Some(4000), None));
    assert_eq!(in_file("steps = 9", &["--epochs", "4"]), (Some(4), None, None));
    assert_eq!(in_file("steps = 9\nepochs = 3", &[]), (Some(3), Some(9), None));
    assert_eq!(in_file("steps = 9\nepochs = 3", &["--epochs", "4"]), (Some(4), None, None));
    assert_eq!(in_file("epochs = 3", &["--set", time]), (Some(3), None, Some(60.0)));
    assert_eq!(in_file("max_time = \"60s\"", &["--steps", "2"]), (None, Some(2), Some(60.0)));
}

#[test]
fn byte_order_marks_are_no_part_of_a_name() {
    for (name, text) in [("a.yaml", "\u{feff}training:\n  steps: 7\n"), ("a.toml", "\u{feff}training.steps = 7\n")] {
        assert_eq!(load_text((name, text), &[], &[]).unwrap().config.training.steps, Some(7), "{name}");
    }
}

#[test]
fn the_built_in_file_loads_as_from_disk() {
    let built_in = load(&ConfigArgs::default(), environment(&[])).unwrap();
    assert_eq!(built_in.warnings, []);
    assert!(built_in.provenance.origin("training.epochs").to_string().starts_with(built_in_name(Task::Asr)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.TOML");
    std::fs::write(&path, include_str!("../../../../configs/toy_asr.toml")).unwrap();
    let from_disk = load(&ConfigArgs { config: Some(path), ..Default::default() }, environment(&[])).unwrap();
    assert_eq!(from_disk.config, built_in.config);

    for (variables, flag) in [(&[][..], Some("tts")), (&[("PLIMSOLL_TASK", "tts")][..], None)] {
        let args = ConfigArgs { task: flag.map(Into::into), ..Default::default() };
        let built_in = load(&args, environment(variables)).unwrap();
        assert!(built_in.provenance.origin("training.epochs").to_string().starts_with(built_in_name(Task::Tts)));
    }
}

#[test]
fn stronger_layers_win_and_are_recorded() {
    let text = "seed = 1\n\n[training]\nsteps = 1\nepochs = 1\nwarmup_steps = 1\n[model]\nd_model = 8\n";
    let variables =
        [("PLIMSOLL_TRAINING__STEPS", "2"), ("PLIMSOLL_TRAINING__EPOCHS", "2"), ("HOME", "/"), ("PLIMSOLL_LONG", "1")];
    let Loaded { config, provenance, .. } = loaded(text, &variables, &["--steps", "3", "--set", "model.d_model=16"]);
    assert_eq!((config.seed, config.training.epochs, config.training.steps), (1, None, Some(3)));
    assert_eq!((config.model.d_model, config.training.warmup_steps, config.training.clip_norm), (16, 1, 5.0));
    for (key, origin) in [
        ("seed", "run.toml:1"),
        ("training.warmup_steps", "run.toml:6"),
        ("training.epochs", "default"),
        ("training.steps", "--steps"),
        ("model.d_model", "--set"),
        ("training.clip_norm", "default"),
    ] {
        assert_eq!(provenance.origin(key).to_string(), origin, "{key}");
    }
}

#[test]
fn a_stronger_layer_removes_the_excluded_key() {
    let text = "[data]\nbatch_seconds = \"2min\"\n[training]\nsteps = 1\nmax_memory = \"8GiB\"\n";
    let Loaded { config, provenance, .. } = loaded(text, &[], &["--batch-size", "8", "--max-memory", "85%"]);
    assert_eq!((config.data.batch_size, config.data.batch_seconds), (Some(8), None));
    assert_eq!((config.training.max_memory, config.training.max_memory_fraction), (None, Some(0.85)));
    assert_eq!(provenance.origin("training.max_memory_fraction").to_string(), "--max-memory");
}

#[test]
fn derived_numbers_accept_auto() {
    let text = "training.steps = 1\ndata.num_workers = 3\ndata.prefetch_buffer_size = \"auto\"\n";
    let data = loaded(text, &[], &[]).config.data;
    assert_eq!((data.num_workers, data.prefetch_buffer_size), (Some(3), None));
    let data = loaded(text, &[], &["--set", "data.num_workers=auto"]).config.data;
    assert_eq!(data.num_workers, None);
}

#[test]
fn max_memory_accepts_amounts_and_shares() {
    for (flag, amount, share) in [
        ("8GiB", Some(Bytes::gib(8)), None),
        ("0.85", None, Some(0.85)),
        ("85%", None, Some(0.85)),
        ("100 %", None, Some(1.0)),
        ("536870912", Some(Bytes::mib(512)), None),
    ] {
        let training = loaded("training.steps = 1", &[], &["--max-memory", flag]).config.training;
        assert_eq!((training.max_memory, training.max_memory_fraction), (amount, share), "{flag}");
    }
}

#[test]
fn texts_of_flags_and_variables_get_the_type_of_their_key() {
    let flags = ["--name", "12", "--set", "augment.speeds=[0.9, 1.0]", "--set", "data.manifest=\"a b.tsv\""];
    let variables =
        [("PLIMSOLL_TRAINING__MAX_TIME", "5min"), ("PLIMSOLL_DATA__LOWERCASE", "true"), ("PLIMSOLL_SEED", "")];
    let config = loaded("", &variables, &flags).config;
    assert_eq!((config.name.as_deref(), config.seed), (Some("12"), 17));
    assert_eq!(config.augment.speeds, [0.9, 1.0]);
    assert_eq!(config.data.manifest.as_deref(), Some(Path::new("a b.tsv")));
    assert_eq!((config.training.max_time, config.data.lowercase), (Some(Seconds(300.0)), true));
}

#[test]
fn toml_and_yaml_give_the_same_configuration() {
    let toml = "name = \"one\"\n[data]\nbatch_size = 8\ncache_memory = \"2GiB\"\nmin_seconds = 1\n\
                [augment]\nspeeds = [0.9, 1]\n[training]\nsteps = 5\nlearning_rate = 1e-3\nprecision = \"bf16\"\n";
    let yaml = "name: one\ndata:\n  batch_size: 8  # eight\n  cache_memory: 2GiB\n  min_seconds: 1\n  manifest:\n\
                augment:\n  speeds:\n    - 0.9\n    - 1\nmodel:\n\
                training:\n  steps: 5\n  learning_rate: 1e-3\n  precision: bf16\n";
    let from_yaml = load_text(("run.yaml", yaml), &[], &[]).unwrap();
    assert_eq!(loaded(toml, &[], &[]).config, from_yaml.config);
    assert_eq!(from_yaml.provenance.origin("training.steps").to_string(), "run.yaml:13");
}

#[test]
fn older_names_work_and_warn_once() {
    let text = "[training]\nbatch_size = 32\nnum_epochs = 3\nmixed_precision = false\nmax_memory_gb = 7.5\n\
                max_grad_norm = 1\n[model]\nnum_heads = 8\n[data]\nnum_mels = 40\n";
    let Loaded { config, warnings, .. } = loaded(text, &[("PLIMSOLL_TRAINING__BATCH_SIZE", "64")], &[]);
    assert_eq!((config.data.batch_size, config.training.epochs), (Some(64), Some(3)));
    assert_eq!(config.training.precision, PrecisionChoice::Fp32);
    assert_eq!(config.training.max_memory, Some(Bytes::mib(7680)));
    assert_eq!((config.training.clip_norm, config.model.attention_heads), (1.0, 8));
    assert_eq!(config.features.n_mels, Some(40));
    let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 7, "{messages:#?}");
    assert_eq!(messages[0], "run.toml:2: `training.batch_size` is an older name of `data.batch_size`");
}

#[test]
fn printed_toml_loads_to_the_same_configuration() {
    let text = "name = \"x\"\n[data]\nbatch_seconds = 11.6\ncache_memory = 1000\nmanifest = 'a \"b\"\\c'\n\
                [training]\nsteps = 9\nmax_memory = \"1536MiB\"\n[augment]\nspeeds = [0.9, 1.1]\n";
    let first = loaded(text, &[], &["--seed", "4"]);
    let again = loaded(&to_toml(&first), &[], &[]);
    assert_eq!(first.config, again.config);
}

/// The table of keys and the structs that serde reads must agree, or users would get [`ConfigError::Deserialize`].
#[test]
fn serde_accepts_what_the_table_accepts() {
    for key in keys() {
        let values: Vec<::config::ValueKind> = match key.kind {
            Kind::Text | Kind::Path => vec!["a".into()],
            Kind::Bool => vec![true.into()],
            Kind::Integer(least, most) => vec![(least as i64).into(), (most as i64).into()],
            Kind::Number(_) => vec![0.5.into()],
            Kind::Numbers(_) => vec![vec![1.0, 0.5].into()],
            Kind::Texts => vec![vec!["encoder".to_string()].into()],
            Kind::Time(_) => vec!["2h".into(), 0.5.into(), 3.into()],
            Kind::Memory(_) => vec!["8GiB".into(), (1i64 << 50).into()],
            Kind::OneOf(words) => words.iter().map(|&word| word.into()).collect(),
        };
        for value in values {
            assert_eq!(key.kind.mismatch(&value), None, "{}: {value}", key.name);
            let setting = Setting { key, value: value.clone(), origin: ValueOrigin::Flag("--set".into()) };
            assert!(merge(&[setting]).is_ok(), "{}: {value}", key.name);
        }
    }
}
