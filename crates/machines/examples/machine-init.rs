//! The smallest program that becomes a lab machine; the lab's tests use it as their starter.

fn main() {
    let path = std::env::args_os().nth(2).expect("run by a lab as `machine-init machine-init FILE`");
    let Err(error) = guywire_machines::machine_init(path.as_ref());
    eprintln!("{error}");
    std::process::exit(1);
}
