//! The manager is killed again and again while it instantiates, scales and heals a real VNF on real machines: it goes on
//! by itself, makes no machine twice, and loses no notification.
//!
//! Needs root, a built binary and `GUYWIRE_TEST_POSTGRES`; `cargo xtask test` gives them all.

#[path = "../clients/callback.rs"]
mod callback;
#[path = "../e2e/database.rs"]
mod database;
#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod harness;

mod commits;
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod managers;
mod story;

use rand::RngExt;
use std::time::Duration;

use commits::Commits;
use managers::Managers;
use story::Story;

/// How the operations of one story are interrupted.
#[derive(Clone, Copy)]
enum Kills {
    /// At every commit that is not a repetition of an earlier one.
    EveryCommit,
    /// So many, at random moments.
    Random(usize),
}

#[test]
fn killed_at_every_commit_on_sqlite() {
    tell(Managers::on_sqlite(), Kills::EveryCommit);
}

#[test]
fn killed_at_every_commit_on_postgres_with_two_managers() {
    tell(Managers::on_postgres("every"), Kills::EveryCommit);
}

#[test]
#[ignore = "takes many minutes; run by `cargo xtask test --long`"]
fn killed_two_hundred_times_at_random_on_sqlite() {
    tell(Managers::on_sqlite(), Kills::Random(200));
}

#[test]
#[ignore = "takes many minutes; run by `cargo xtask test --long`"]
fn killed_two_hundred_times_at_random_on_postgres_with_two_managers() {
    tell(Managers::on_postgres("random"), Kills::Random(200));
}

/// Instantiates, scales and heals under kills, looks at machines and notifications, and terminates.
fn tell(mut managers: Managers, kills: Kills) {
    let mut story = Story::begin(&managers);
    let mut commits = Commits::of(&managers);
    let mut left = match kills {
        Kills::EveryCommit => usize::MAX,
        Kills::Random(count) => count,
    };
    let mut killed = 0;
    let chapters: &[(&str, &[&str], usize)] = &[
        ("instantiate", &["--flavour", "simple"], 2),
        ("scale", &["--aspect", "hello_instance", "--out", "1"], 3),
        ("heal", &["--vnfc", "hello-1"], 3),
    ];
    let mut round = 0;
    loop {
        for (verb, words, machines) in chapters {
            // After the first round there is something to scale in again instead of something to instantiate.
            let scale_in: &[&str] = &["--aspect", "hello_instance", "--in", "1"];
            let (verb, words, machines) = if round > 0 && *verb == "instantiate" {
                ("scale", scale_in, 2)
            } else {
                (*verb, *words, *machines)
            };
            let operation = story.start(&managers, verb, words);
            let died = match kills {
                Kills::EveryCommit => kill_at_every_commit(&mut managers, &mut commits, &operation),
                Kills::Random(_) => kill_at_random(&mut managers, &operation, left),
            };
            killed += died;
            left = left.saturating_sub(died);
            println!("{verb}: {died} kills, COMPLETED");
            story.check(&managers, &operation, machines);
        }
        round += 1;
        if !matches!(kills, Kills::Random(_)) || left == 0 {
            break;
        }
    }
    story.end(&managers);
    println!("{killed} kills in all; every operation completed by itself");
    assert!(killed > 10, "only {killed} kills: the manager was hardly disturbed");
}

/// Kills whichever manager is at work as soon as something new was committed, and starts it again.
fn kill_at_every_commit(managers: &mut Managers, commits: &mut Commits, operation: &str) -> usize {
    let mut killed = 0;
    loop {
        let news = commits.wait_for_news(Duration::from_secs(60));
        if let Some(news) = &news {
            killed += 1;
            managers.kill_and_start(killed);
            assert!(killed < 1_000, "it does not come to an end; the last news was {news}");
        }
        // Nobody is killed any more once the operation has ended and all was told.
        if commits.ended(operation) && (commits.all_told() || news.is_none()) {
            return killed;
        }
        assert!(news.is_some(), "nothing happens any more: {}", Story::state(managers, operation));
    }
}

/// Kills at random moments until the operation has ended or there are kills enough.
fn kill_at_random(managers: &mut Managers, operation: &str, most: usize) -> usize {
    let mut killed = 0;
    while Story::state(managers, operation) != "COMPLETED" {
        if killed >= most {
            Story::wait(managers, operation);
            break;
        }
        std::thread::sleep(Duration::from_millis(rand::rng().random_range(5..400)));
        killed += 1;
        managers.kill_and_start(killed);
    }
    killed
}
