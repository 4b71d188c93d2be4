//! The smallest program that becomes a sandbox or a lab machine; the tests use it as their starter.

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let (verb, what) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let error: Box<dyn std::error::Error> = match verb.to_str() {
        Some("sandbox") => {
            let Err(error) = guywire_roles::sandbox::sandbox(&what);
            error.into()
        }
        Some("machine-init") => {
            let Err(error) = guywire_machines::machine_init(what.as_ref());
            error.into()
        }
        _ => "run by tests as `sandbox sandbox SPEC` or `sandbox machine-init FILE`".into(),
    };
    eprintln!("{error}");
    std::process::exit(1);
}
