//! Requests that arrive at the same moment: one wins, the others are told so, whichever manager they reach.

use std::{path::Path, sync::Barrier, time::Duration};

use serde_json::{Value, json};

use crate::{
    harness::until,
    http::{Answer, Http},
    managers::Managers,
    nfvo::{Mood, Nfvo},
};

const ROUNDS: usize = 200;
const INSTANCES: &str = "/vnflcm/v2/vnf_instances";
const PACKAGES: &str = "/vnfpkgm/v1/vnf_packages";

/// Managers whose operations wait for an NFVO that never decides: whoever wins a race holds the instance, and no
/// machine is made.
struct Track {
    managers: Managers,
    /// One client for each manager; the first twice, if it is alone.
    clients: [Http; 2],
    _nfvo: Nfvo,
}

impl Track {
    fn on_sqlite() -> Self {
        let nfvo = Nfvo::start(Mood::Think(usize::MAX));
        Self::new(Managers::on_sqlite_with(&["--nfvo", &nfvo.url]), nfvo)
    }

    fn on_postgres(name: &str) -> Self {
        let nfvo = Nfvo::start(Mood::Think(usize::MAX));
        Self::new(Managers::on_postgres_with(name, &["--nfvo", &nfvo.url]), nfvo)
    }

    fn new(managers: Managers, nfvo: Nfvo) -> Self {
        let token = std::fs::read_to_string(managers.guywire.data().join("admin-token")).expect("a token");
        let urls = managers.urls();
        let client = |at: usize| Http::new(&urls[at % urls.len()], token.trim());
        let clients = [client(0), client(1)];
        Self { managers, clients, _nfvo: nfvo }
    }

    /// Does two things at the same moment.
    fn race<T: Send>(&self, left: impl Fn(&Http) -> T + Sync, right: impl Fn(&Http) -> T + Sync) -> (T, T) {
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                start.wait();
                left(&self.clients[0])
            });
            start.wait();
            let other = right(&self.clients[1]);
            (one.join().expect("it does not panic"), other)
        })
    }

    /// Uploads the hello package; its id and its descriptor's.
    fn upload(&self, csar: &[u8]) -> (String, String) {
        let http = &self.clients[0];
        let id = text(&http.post(PACKAGES, &json!({})).json()["id"]);
        let path = format!("{PACKAGES}/{id}");
        let put = http.put_bytes(
            "PUT",
            &format!("{path}/package_content"),
            "Content-Type: application/zip\r\n",
            csar,
        );
        assert_eq!(put.status, 202, "{put:?}");
        let package = until("it is onboarded", || {
            let shown = http.get(&path);
            (shown["onboardingState"] == "ONBOARDED").then_some(shown)
        });
        (id, text(&package["vnfdId"]))
    }

    fn create(&self, vnfd: &str) -> String {
        text(&self.clients[0].post(INSTANCES, &json!({"vnfdId": vnfd})).json()["id"])
    }

    /// The packed hello example.
    fn hello(&self) -> Vec<u8> {
        let csar = self.managers.guywire.data().with_file_name("files").join("hello.csar");
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hello");
        let (tree, out) = (tree.display().to_string(), csar.display().to_string());
        assert_eq!(self.managers.run(&["package", "pack", &tree, &out]).code, Some(0));
        std::fs::read(csar).expect("a package")
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[test]
fn one_of_two_operations_wins_on_sqlite() {
    operations_race(&Track::on_sqlite());
}

#[test]
fn one_of_two_operations_wins_on_two_managers() {
    operations_race(&Track::on_postgres("operations"));
}

fn operations_race(track: &Track) {
    let (_, vnfd) = track.upload(&track.hello());
    // One machine each: operations that wait speak for addresses, of which a lab has some two hundred.
    let request = json!({"flavourId": "simple", "instantiationLevelId": "small"});
    let mut won = [0; 2];
    for round in 0..ROUNDS {
        let path = format!("{INSTANCES}/{}/instantiate", track.create(&vnfd));
        let go = |http: &Http| http.send("POST", &path, "", Some(&request));
        let (one, other) = track.race(go, go);
        match (one.status, other.status) {
            (202, 409) => won[0] += 1,
            (409, 202) => won[1] += 1,
            _ => panic!("round {round}: {one:?}\n{other:?}\n{}", track.managers.said()),
        }
    }
    println!("{ROUNDS} races: {won:?}");
    let operations = track.clients[0].get("/vnflcm/v2/vnf_lcm_op_occs?all_records=yes");
    assert_eq!(operations.as_array().expect("a list").len(), ROUNDS, "one operation for each race");
}

#[test]
fn one_of_two_changes_wins_on_sqlite() {
    changes_race(&Track::on_sqlite());
}

#[test]
fn one_of_two_changes_wins_on_two_managers() {
    changes_race(&Track::on_postgres("changes"));
}

/// Two who have seen the same state change it: the second one has not seen what the first one did.
fn changes_race(track: &Track) {
    let (_, vnfd) = track.upload(&track.hello());
    let path = format!("{INSTANCES}/{}", track.create(&vnfd));
    for round in 0..60 {
        let seen = until("nothing is under way", || {
            let shown = track.clients[0].send("GET", &path, "", None);
            let tag = shown.header("etag").expect("an entity tag").to_owned();
            (!tag.contains('-')).then_some(tag)
        });
        let change = |name: &'static str| {
            let (path, header) = (&path, format!("If-Match: {seen}\r\n"));
            let body = json!({"vnfInstanceName": format!("{name} {round}")});
            move |http: &Http| http.send("PATCH", path, &header, Some(&body))
        };
        let (one, other) = track.race(change("one"), change("other"));
        let (winner, loser) = if one.status == 202 { ("one", &other) } else { ("other", &one) };
        let statuses = [one.status, other.status];
        assert!(
            statuses.contains(&202) && [409, 412].contains(&loser.status),
            "round {round}: {one:?}\n{other:?}"
        );
        until("the change is there", || {
            let name = track.clients[1].get(&path)["vnfInstanceName"].clone();
            (name == format!("{winner} {round}")).then_some(())
        });
    }
}

#[test]
fn a_package_goes_or_gets_an_instance_on_sqlite() {
    package_race(&Track::on_sqlite());
}

#[test]
fn a_package_goes_or_gets_an_instance_on_two_managers() {
    package_race(&Track::on_postgres("packages"));
}

/// A package is withdrawn while somebody makes an instance of it: an instance never lacks its package.
fn package_race(track: &Track) {
    let csar = track.hello();
    let (mut gone, mut used) = (0, 0);
    for round in 0..30_u64 {
        let (package, vnfd) = track.upload(&csar);
        let path = format!("{PACKAGES}/{package}");
        let withdraw = |http: &Http| {
            let disabled = http.send("PATCH", &path, "", Some(&json!({"operationalState": "DISABLED"})));
            assert_eq!(disabled.status, 200, "{disabled:?}");
            http.send("DELETE", &path, "", None)
        };
        let create = |http: &Http| {
            // Requests that meet at different moments of the withdrawal.
            std::thread::sleep(Duration::from_micros(round * 150));
            http.send("POST", INSTANCES, "", Some(&json!({"vnfdId": vnfd})))
        };
        let (removed, created): (Answer, Answer) = track.race(withdraw, create);
        match (removed.status, created.status) {
            (204, 400..=499) => gone += 1,
            (409, 201) => {
                used += 1;
                let instance = text(&created.json()["id"]);
                assert_eq!(track.clients[0].get(&path)["usageState"], "IN_USE");
                let deleted = track.clients[1].send("DELETE", &format!("{INSTANCES}/{instance}"), "", None);
                assert_eq!(deleted.status, 204, "{deleted:?}");
                let deleted = track.clients[1].send("DELETE", &path, "", None);
                assert_eq!(deleted.status, 204, "{deleted:?}");
            }
            // Refused since it was disabled already, and in the way of its removal for a moment.
            _ => panic!("round {round}: {removed:?}\n{created:?}\n{}", track.managers.said()),
        }
    }
    println!("{gone} packages went, {used} got an instance first");
}
