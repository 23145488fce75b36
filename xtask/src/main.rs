//! Chores of the repository: `cargo xtask COMMAND`.

mod fuzz;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("fuzz") => fuzz::main(&args[1..]),
        _ => Err("commands: fuzz".to_string()),
    };
    if let Err(message) = done {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
