//! Snapshots of the output of `plimsoll config`.

use clap::Parser;

use super::ConfigCommand;

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: ConfigCommand,
}

/// Configuration file of the tests; the built-in file would change the snapshots whenever it is tuned.
const RUN: &str = "task = \"tts\"\n\n[training]\nsteps = 100\nlearning_rate = 1e-3\n";

/// Returns the output of a command line in which `run.toml` is a file with the text [`RUN`].
fn output(line: &str, variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml").display().to_string();
    std::fs::write(&file, RUN).unwrap();
    let words = line.split(' ').map(|word| if word == "run.toml" { &file } else { word });
    let program = Program::try_parse_from(["config"].into_iter().chain(words)).unwrap();
    let out = program.command.run(environment(variables)).unwrap();
    format!("$ config {line}\n{}", out.replace(&file, "run.toml"))
}

fn environment(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    let owned: Vec<_> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    owned.into_iter()
}

fn check(name: &str, outputs: &[String]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, outputs.join("\n")));
}

#[test]
fn print_shows_every_value_and_its_origin() {
    let variables = [("PLIMSOLL_TRAINING__BATCH_SIZE", "32")];
    check("config_print", &[output("print --config run.toml --steps 20 --max-memory 85%", &variables)]);
    check("config_print_json", &[output("print --config run.toml --json --name short", &variables)]);
}

#[test]
fn validate_and_path_summarize() {
    let variables = [("PLIMSOLL_LONG", "1"), ("PLIMSOLL_DATA__BATCH_SIZE", "32"), ("HOME", "/root")];
    let lines = [
        output("validate --config run.toml", &[]),
        output("validate --config run.toml --set training.num_epochs=2 --set data.batch_seconds=90", &variables),
        output("path", &[]),
        output("path --config run.toml", &[]),
        output("path --config absent.toml --steps 3 --set model.d_model=8", &variables),
    ];
    check("config_validate_and_path", &lines);
}

#[test]
fn help_lists_every_flag() {
    use clap::CommandFactory;
    let mut command = Program::command();
    let print = command.find_subcommand_mut("print").unwrap();
    check("config_help", &[print.clone().term_width(100).render_long_help().to_string()]);
}
