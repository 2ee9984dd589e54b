//! Parses amounts of memory and time from the command line: `cargo run -p plimsoll-core --example units -- 8GiB 11.6s`.

use plimsoll_core::{Bytes, Seconds};

fn main() {
    let amounts: Vec<String> = std::env::args().skip(1).collect();
    let amounts = if amounts.is_empty() { vec!["8GiB".into(), "11.6s".into(), "16GB".into()] } else { amounts };
    for text in amounts {
        match (text.parse::<Bytes>(), text.parse::<Seconds>()) {
            (Ok(bytes), _) => println!("{text} is {bytes}, or {} bytes", bytes.0),
            (_, Ok(time)) => println!("{text} is {time}, or {} seconds", time.0),
            (Err(no_bytes), Err(no_time)) => println!("{no_bytes}; {no_time}"),
        }
    }
}
