//! Notes the git commit that the program is built from, so that a run's plan can name it. Where the sources come without their history,
//! the variable PLIMSOLL_COMMIT says it.

use std::process::Command;

fn main() {
    let given = std::env::var("PLIMSOLL_COMMIT").ok();
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit =
        commit.ok().filter(|out| out.status.success()).map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={}", commit.or(given).as_deref().map_or("unknown", str::trim));
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // The file that a commit changes: the branch's own, or the list of packed ones.
    for file in ["HEAD", "logs/HEAD"] {
        let path = format!("../../.git/{file}");
        if std::path::Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
