//! Tests of loading as a whole: layers, formats, older names, printing and loading again.

mod bad_input;

use std::io;
use std::path::Path;

use clap::Parser;
use plimsoll_core::{Bytes, Seconds};

use super::choices::{BackendChoice, PrecisionChoice, RematChoice, RematWord, Task};
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

fn memory() -> Bytes {
    Bytes::gib(8)
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

/// A share of the run limits the steps of the same layer, and no steps that a person asks for beside it.
#[test]
fn warm_up_steps_replace_a_weaker_share() {
    let warm_up = |text: &str, flags: &[&str]| {
        let training = loaded(&format!("[training]\n{text}"), &[], flags).config.training;
        (training.warmup_steps, training.warmup_share)
    };
    let steps = ["--set", "training.warmup_steps=200"];
    let both = "warmup_steps = 300\nwarmup_share = 0.1";
    assert_eq!(warm_up(both, &[]), (300, Some(0.1)));
    assert_eq!(warm_up(both, &steps), (200, None));
    assert_eq!(warm_up(both, &["--set", "training.warmup_share=0.2"]), (300, Some(0.2)));
    assert_eq!(warm_up("", &[&steps[..], &["--set", "training.warmup_share=0.2"]].concat()), (200, Some(0.2)));
}

#[test]
fn byte_order_marks_are_no_part_of_a_name() {
    for (name, text) in [("a.yaml", "\u{feff}training:\n  steps: 7\n"), ("a.toml", "\u{feff}training.steps = 7\n")] {
        assert_eq!(load_text((name, text), &[], &[]).unwrap().config.training.steps, Some(7), "{name}");
    }
}

#[test]
fn the_built_in_file_loads_as_from_disk() {
    let built_in = load(&ConfigArgs::default(), environment(&[]), &memory).unwrap();
    assert_eq!(built_in.warnings, []);
    assert!(built_in.provenance.origin("training.epochs").to_string().starts_with(built_in_name(Task::Asr)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.TOML");
    std::fs::write(&path, include_str!("../../../configs/toy_asr.toml")).unwrap();
    let from_disk = load(&ConfigArgs { config: Some(path), ..Default::default() }, environment(&[]), &memory).unwrap();
    assert_eq!(from_disk.config, built_in.config);

    for (variables, flag) in [(&[][..], Some("tts")), (&[("PLIMSOLL_TASK", "tts")][..], None)] {
        let args = ConfigArgs { task: flag.map(Into::into), ..Default::default() };
        let built_in = load(&args, environment(variables), &memory).unwrap();
        assert!(built_in.provenance.origin("training.epochs").to_string().starts_with(built_in_name(Task::Tts)));
    }
}

#[test]
fn stronger_layers_win_and_are_recorded() {
    let text = "seed = 1\n\n[training]\nsteps = 1\nepochs = 1\nwarmup_steps = 1\nmin_steps = 9\n[model]\nd_model = 8\n";
    let variables =
        [("PLIMSOLL_TRAINING__STEPS", "2"), ("PLIMSOLL_TRAINING__EPOCHS", "2"), ("HOME", "/"), ("PLIMSOLL_LONG", "1")];
    let Loaded { config, provenance, .. } = loaded(text, &variables, &["--steps", "3", "--set", "model.d_model=16"]);
    assert_eq!((config.seed, config.training.epochs, config.training.steps), (1, None, Some(3)));
    assert_eq!(config.training.min_steps, None);
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

/// A variable of another program ends no command.
#[test]
fn a_variable_that_is_no_setting_is_a_note() {
    let notes = |name: &str| -> Vec<String> {
        let loaded = loaded("training.steps = 7\n", &[(name, "1")], &[]);
        assert_eq!(loaded.config.training.steps, Some(7));
        loaded.warnings.iter().map(ToString::to_string).collect()
    };
    for name in ["PLIMSOLL_CUDA", "PLIMSOLL_HOME", "PLIMSOLL_VERSION", "PLIMSOLL_DATA_DISK", "PLIMSOLL_"] {
        let notes = notes(name);
        assert!(notes.len() == 1 && notes[0].starts_with(&format!("{name} is no setting")), "{name}: {notes:?}");
    }
    assert_eq!(
        notes("PLIMSOLL_STEPS_"),
        ["PLIMSOLL_STEPS_ is no setting and has no effect; did you mean PLIMSOLL_TRAINING__STEPS?"]
    );
}

/// Keys of a part that the model does not have.
#[test]
fn a_key_without_effect_on_this_model_is_a_note() {
    let notes = |text: &str| -> Vec<String> {
        let loaded = loaded(&format!("training.steps = 7\n{text}"), &[], &[]);
        loaded.warnings.iter().map(ToString::to_string).collect()
    };
    for (text, named) in [
        ("model.encoder = \"convolution\"\nmodel.attention_heads = 8", "model.attention_heads"),
        ("model.encoder = \"convolution\"\nmodel.positions = \"rotary\"", "model.positions"),
        ("model.encoder = \"convolution\"\nmodel.conv_norm = \"batch\"", "model.conv_norm"),
        ("model.conv_norm_groups = 4", "model.conv_norm_groups"),
        ("model.ctc_weight = 0.5", "model.ctc_weight"),
        ("model.label_smoothing = 0.2", "model.label_smoothing"),
    ] {
        let notes = notes(text);
        let expected = format!("`{named}` has no effect");
        assert!(notes.len() == 1 && notes[0].contains(&expected), "{text}: {notes:?}");
    }
    for text in [
        "model.attention_heads = 8",
        "model.decoder_layers = 2\nmodel.ctc_weight = 0.5",
        "model.encoder = \"convolution\"\nmodel.decoder_layers = 2\nmodel.attention_heads = 8",
        "model.conv_norm = \"group\"\nmodel.conv_norm_groups = 4",
    ] {
        assert_eq!(notes(text), [""; 0], "{text}");
    }
}

/// Merge keys of YAML: tables that are written once and repeated, with entries that win over them.
#[test]
fn yaml_merges_tables() {
    let config = |text: &str| load_text(("a.yaml", text), &[], &[]).map(|loaded| loaded.config);
    let plain = config("training:\n  steps: 7\n  log_interval: 3\nmodel:\n  d_model: 32\n").unwrap();
    for text in [
        "base: &base\n  steps: 7\n  log_interval: 3\ntraining:\n  <<: *base\nmodel:\n  d_model: 32\n",
        "base: &b\n  steps: 9\n  log_interval: 3\ntraining:\n  steps: 7\n  <<: *b\nmodel: {d_model: 32}\n",
        "a: &a {steps: 7}\nb: &b {steps: 8, log_interval: 3}\ntraining:\n  <<: [*a, *b]\nmodel:\n  d_model: 32\n",
        "a: &a\n  steps: 7\nb: &b\n  <<: *a\n  log_interval: 3\ntraining:\n  <<: *b\nmodel:\n  d_model: 32\n",
        "all: &all\n  training: {steps: 7, log_interval: 3}\n  model: {d_model: 32}\n<<: *all\n",
        "a: &a {steps: 7}\nb: &b\n  log_interval: 3\ntraining:\n  <<:\n    - *a\n    - *b\nmodel: {d_model: 32}\n",
        "a: &a {steps: 9, log_interval: 3}\ntraining: {<<: *a, steps: 7}\nmodel: {d_model: 32}\n",
    ] {
        assert_eq!(config(text).unwrap(), plain, "{text}");
    }
    // A table that no merge key repeats is a mistake, and so is a merge key with something else.
    for text in [
        "base: &base\n  steps: 7\ntraining:\n  log_interval: 3\n",
        "base:\n  steps: 7\ntraining:\n  steps: 3\n",
        "training:\n  <<: 7\n",
        "training:\n  <<: [1, {steps: 3}]\n",
        "base: &base\n  stepz: 7\ntraining:\n  <<: *base\n",
    ] {
        assert!(config(text).is_err(), "{text}");
    }
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

/// A configuration file of another system, as it is.
const FOREIGN: &str = "\
model: {text_encoder_dim: 256, text_encoder_layers: 4, audio_encoder_dim: 512, audio_encoder_layers: 6, decoder_dim: 768, \
decoder_layers: 8, max_attention_sequence_length: 256, enable_gradient_checkpointing: true}
data: {batch_size: 2, num_workers: 8, prefetch_buffer_size: 4, shuffle_buffer_multiplier: 20, enable_xla: true, \
mixed_precision: true, pin_memory: true}
training: {gradient_accumulation_steps: 16, max_memory_fraction: 0.85, enable_memory_cleanup: true, \
memory_cleanup_interval: 10, enable_graph_mode: true, enable_xla_compilation: true, enable_eager_debug: false, \
batch_size: 2}
";

#[test]
fn configuration_of_another_system_loads_as_written() {
    for task in [&["--task", "tts"][..], &[]] {
        let flags = [task, &["--steps", "9"]].concat();
        let Loaded { config, warnings, .. } = load_text(("theirs.yaml", FOREIGN), &[], &flags).unwrap();
        assert_eq!((config.model.text_encoder_dim, config.model.decoder_layers), (Some(256), Some(8)));
        assert_eq!((config.data.batch_size, config.training.gradient_accumulation_steps), (Some(2), Some(16)));
        assert_eq!((config.effective_utterances(), config.fixed_micro_batch()), (Some(32), Some(2)));
        assert_eq!(config.training.max_memory_fraction, Some(0.85));
        assert_eq!(config.training.remat, RematChoice::Word(RematWord::All));
        assert_eq!(config.training.precision, PrecisionChoice::Auto);
        assert_eq!((config.training.enable_memory_cleanup, config.training.memory_cleanup_interval), (Some(true), 10));
        let notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        for named in [
            "`data.shuffle_buffer_multiplier` has no effect",
            "`data.enable_xla` has no effect",
            "`data.pin_memory` has no effect",
            "`training.enable_graph_mode` has no effect",
            "`training.enable_xla_compilation` has no effect",
            "`training.enable_eager_debug` is an older name",
            "`model.max_attention_sequence_length` has no effect",
            "`model.enable_gradient_checkpointing` is an older name",
            "`data.mixed_precision` is an older name",
            "a step has 16 x 2 = 32 utterances",
        ] {
            assert!(notes.iter().any(|note| note.contains(named)), "{named}: {notes:#?}");
        }
    }
    let two = FOREIGN.replace("interval: 10", "interval: 0").replace("batch_size: 2}", "batch_size: 3}");
    let error = load_text(("theirs.yaml", &two), &[], &["--steps", "9"]).unwrap_err();
    assert!(format!("{error:?}").contains("Duplicate"), "{error:?}");
}

/// Each block alone, without a word on when to end, as the file of a person has it.
#[test]
fn configuration_without_a_limit_of_training_gets_that_of_its_task() {
    let blocks = FOREIGN.trim().split('\n').chain([FOREIGN, "", "training: {learning_rate: 0.001}"]);
    for (task, epochs) in [("asr", 70), ("tts", 200), ("vocoder", 1000)] {
        let shipped = format!("../../configs/{task}/standard.toml");
        let shipped = std::fs::read_to_string(shipped).unwrap();
        assert!(shipped.contains(&format!("\nepochs = {epochs}\n")), "{shipped}");
        for block in blocks.clone() {
            let load =
                |flags: &[&str]| load_text(("theirs.yaml", block), &[], &[&["--task", task], flags].concat()).unwrap();
            let is_noted = |loaded: &Loaded| {
                let notes: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
                notes.iter().any(|note| note.contains("theirs.yaml: no limit of training is written"))
            };
            let found = load(&[]);
            assert_eq!(found.config.training.epochs, Some(epochs), "{block}");
            assert!(is_noted(&found), "{block}");
            let found = load(&["--steps", "9"]);
            assert_eq!((found.config.training.epochs, found.config.training.steps), (None, Some(9)), "{block}");
            assert!(!is_noted(&found), "{block}");
        }
    }
}

#[test]
fn flags_of_another_system_load_as_written() {
    let flags = "--batch-size 2 --gradient-accumulation-steps 4 --mixed-precision --d-model 128 --encoder-layers 6 \
                 --decoder-layers 3 --device cuda --mode train";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let config = loaded("training.steps = 1", &[], &flags).config;
    assert_eq!((config.effective_utterances(), config.fixed_micro_batch()), (Some(8), Some(2)));
    assert_eq!((config.model.d_model, config.model.encoder_layers, config.model.decoder_layers), (128, 6, Some(3)));
    assert_eq!((config.device.backend, config.device.index), (BackendChoice::Cuda, 0));
    for (flag, backend, index) in
        [("1", BackendChoice::Auto, 1), ("cpu", BackendChoice::Cpu, 0), ("cuda:2", BackendChoice::Cuda, 2)]
    {
        let device = loaded("training.steps = 1", &[], &["--device", flag]).config.device;
        assert_eq!((device.backend, device.index), (backend, index), "{flag}");
    }
    assert!(load_text(("run.toml", "training.steps = 1"), &[], &["--device", "gpu"]).is_err());
}

#[test]
fn remat_is_a_word_or_a_number_and_survives_printing() {
    for (written, expected) in [
        ("\"auto\"", RematChoice::AUTO),
        ("\"half\"", RematChoice::Word(RematWord::Half)),
        ("5", RematChoice::Blocks(5)),
    ] {
        let text = format!("[training]\nsteps = 1\nremat = {written}\nremat_budget = \"2GiB\"\n");
        let first = loaded(&text, &[], &[]);
        assert_eq!(first.config.training.remat, expected);
        assert_eq!(loaded(&to_toml(&first), &[], &[]).config, first.config);
    }
    let from_flag = loaded("training.steps = 1", &[], &["--set", "training.remat=3"]).config;
    assert_eq!(from_flag.training.remat, RematChoice::Blocks(3));
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
            Kind::OneOfOrInteger(words, least, most) => {
                words.iter().map(|&word| word.into()).chain([i64::from(least).into(), i64::from(most).into()]).collect()
            }
        };
        for value in values {
            assert_eq!(key.kind.mismatch(&value), None, "{}: {value}", key.name);
            let setting = Setting { key, value: value.clone(), origin: ValueOrigin::Flag("--set".into()) };
            assert!(merge(&[setting]).is_ok(), "{}: {value}", key.name);
        }
    }
}
