//! The commands of docs/nfvo.md, run as they stand there.

use std::process::Command;

use crate::{
    harness::{Running, binary},
    manager::Manager,
};

/// The first block of shell commands below a heading.
fn block(text: &str, heading: &str) -> String {
    let below = text.split_once(heading).expect("the heading").1;
    let begin = below.split_once("```sh\n").expect("a block of commands").1;
    begin.split_once("```").expect("its end").0.to_owned()
}

/// Runs commands with this manager's address and token in the place of the usual ones.
fn run(manager: &Manager, commands: &str) -> String {
    let token = manager.guywire.data().join("admin-token").display().to_string();
    let script = commands
        .replace("http://127.0.0.1:9890", &manager.url)
        .replace("/var/lib/guywire/admin-token", &token);
    let path = std::env::var("PATH").expect("a PATH");
    let programs = binary().parent().expect("a directory").display().to_string();
    // The commands name the example by its path in the checkout, and leave files where they run.
    let dir = manager.file("guide", None);
    std::fs::create_dir_all(&dir).expect("a directory");
    let examples = dir.join("examples");
    if !examples.exists() {
        let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
        std::os::unix::fs::symlink(checkout, examples).expect("a link");
    }
    let mut command: Command = manager.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script]).current_dir(dir).env("PATH", format!("{programs}:{path}"));
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = Running::spawn(&mut shell).wait();
    assert_eq!(output.code, Some(0), "{script}\n{output:#?}\n{}", manager.said());
    command.env_clear();
    output.stdout
}

#[test]
fn the_guide_for_integrators_works_as_it_stands() {
    let manager = Manager::start();
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/nfvo.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let said = run(&manager, &block(&guide, "## From nothing to a VNF, with curl"));
    assert!(said.contains("\"operationState\": \"COMPLETED\""), "{said}");
    assert!(said.contains("event: end") && said.contains("\"vnfState\": \"STARTED\""), "{said}");
    manager.ok(&["vnf", "terminate", "greeter", "--force", "--wait"]);
    manager.ok(&["vnf", "delete", "greeter"]);
    manager.ok(&["package", "delete", "Hello", "--disable"]);
    let said = run(&manager, &block(&guide, "And with our own command line"));
    assert!(said.contains("COMPLETED") && said.contains("deleted"), "{said}");
}
