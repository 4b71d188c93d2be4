//! Plans in `PostgreSQL`: the same promises, with several processes on one database.

use std::time::Duration;

use crate::{
    database::Database,
    harness::{Guywire, Running},
};
use rand::RngExt;
use rustix::process::Signal;

#[test]
fn a_lab_comes_up_and_goes_with_plans_in_postgres() {
    let database = Database::new("job");
    let guywire = Guywire::with_database(&database.url());
    guywire.lab("up", &["--machines", "2"]);
    assert_eq!(guywire.states().len(), 2);
    guywire.lab("cut", &["m2"]);
    guywire.lab("boot", &["m2"]);
    assert_eq!(guywire.ssh("m2", "hostname"), "m2");
    guywire.lab("rm", &["m2"]);
    assert_eq!(guywire.states().len(), 1);
    guywire.lab("down", &[]);
    let plans = guywire.plans();
    assert_eq!(plans.len(), 5);
    assert!(plans.iter().all(|plan| plan["state"] == "succeeded"), "{plans:#?}");
    assert!(guywire.ok(&["plan", "show", "1"]).stdout.contains("✓ m2 ready"));
    assert!(!guywire.data().join("journal.db").exists(), "plans are in the database alone");
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}

#[test]
fn killed_at_any_moment_it_goes_on_from_postgres() {
    let database = Database::new("kill");
    let guywire = Guywire::with_database(&database.url());
    guywire.ok(&["plan", "list"]);
    let up = guywire.lab_args("up", &["--machines", "2"]);
    let mut running = guywire.start(&up);
    std::thread::sleep(Duration::from_millis(rand::rng().random_range(100..900)));
    running.signal(Signal::KILL);
    running.wait();
    // The dead one's lease runs out by the database's clock; both wait for that, and one goes on.
    let outputs = [guywire.start(&up), guywire.start(&up)].map(Running::wait);
    assert!(outputs.iter().all(|output| output.code == Some(0)), "{outputs:#?}");
    assert_eq!(guywire.states().len(), 2);
    assert_eq!(guywire.ssh("m1", "hostname"), "m1");
    let plans = guywire.plans();
    assert!(plans.iter().all(|plan| plan["state"] == "succeeded"), "{plans:#?}");
    assert!(plans.len() <= 2, "{plans:#?}");
}

#[test]
fn a_database_that_is_not_there_is_named() {
    let database = Database::new("missing");
    let url = database.url().replace("_missing", "_nowhere");
    let guywire = Guywire::with_database(&url);
    guywire.fails(&["plan", "list"], 1, &["_nowhere"]);
    let guywire = Guywire::new();
    let with_password = "postgres://me:s3same@localhost/db";
    for args in [["plan", "list", "--database", with_password], ["lab", "list", "--database", with_password]]
    {
        let output = guywire.fails(&args, 1, &["--database", "GUYWIRE_DATABASE", ".pgpass"]);
        assert!(!output.stderr.contains("s3same"), "{output:#?}");
    }
}
