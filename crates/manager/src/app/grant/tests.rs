//! Requests as tables, and an NFVO that is a real server.

use std::{sync::Arc, time::Duration};

use guywire_package::Flavour;
use guywire_plan::{Engine, Handlers, Options, PlanState, journal::SqliteJournal};
use serde_json::{Value, json};

use super::{Grant, grant_request, plan};
use crate::{
    app::{
        Nfvo,
        samples::{
            self, Ground,
            receiver::{Mood, Receiver},
        },
    },
    domain::{OperationState, OperationType},
};

async fn grant(ground: &Ground, receiver: &Receiver) -> Grant {
    let nfvo = Nfvo { url: format!("{}/", receiver.url), auth: None };
    Grant { callbacks: ground.app().await.callbacks, nfvo: Some(nfvo) }
}

fn say(status: u16, headers: &[(&'static str, &str)], body: &Value) -> Mood {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Mood::Answer(status, headers, if body.is_null() { String::new() } else { body.to_string() })
}

/// A grant's id, or a reason and whether another try can help.
type Expected = Result<&'static str, (&'static str, bool)>;

#[tokio::test]
async fn what_an_nfvo_answers_and_what_follows() {
    let (ground, receiver) = (Ground::sqlite(), Receiver::start().await);
    let handler = grant(&ground, &receiver).await;
    let no_room = json!({ "status": 403, "detail": "no room at this site" });
    // Answers, and the grant's id or the reason with whether another try helps.
    let table: Vec<(Vec<Mood>, Expected)> = vec![
        (vec![say(201, &[], &json!({ "id": "g1" }))], Ok("g1")),
        (
            vec![
                say(202, &[("location", "/grant/v1/grants/g2"), ("retry-after", "0")], &Value::Null),
                say(202, &[("retry-after", "0")], &Value::Null),
                say(503, &[("retry-after", "0")], &Value::Null),
                say(200, &[], &json!({ "id": "g2" })),
            ],
            Ok("g2"),
        ),
        (
            vec![
                say(202, &[("location", "g3"), ("retry-after", "0")], &Value::Null),
                say(403, &[], &no_room),
            ],
            Err(("the NFVO refused the grant: it answered 403 Forbidden: no room at this site", false)),
        ),
        (
            vec![say(403, &[], &no_room)],
            Err(("the NFVO refused the grant: it answered 403 Forbidden: no room at this site", false)),
        ),
        (vec![say(400, &[], &Value::Null)], Err(("the NFVO did not take the grant request", false))),
        (vec![say(404, &[], &Value::Null)], Err(("the NFVO did not take the grant request", false))),
        (vec![say(500, &[], &Value::Null)], Err(("the NFVO failed: it answered 500", true))),
        (vec![say(429, &[], &Value::Null)], Err(("the NFVO is busy", true))),
        (vec![say(201, &[], &json!({}))], Err(("the NFVO's grant has no id", false))),
        (vec![Mood::Answer(201, Vec::new(), "{".to_owned())], Err(("the NFVO's grant is no JSON", false))),
        (vec![say(202, &[], &Value::Null)], Err(("its answer has no Location", false))),
        (
            vec![say(202, &[("location", "http://127.0.0.1:1/g")], &Value::Null)],
            Err(("its Location is on another server", false)),
        ),
    ];
    for (answers, expected) in table {
        let (before, count) = (receiver.seen().len(), answers.len());
        for answer in answers {
            receiver.then(answer);
        }
        let outcome = handler.ask(&json!({ "vnfLcmOpOccId": "o" })).await;
        match (&outcome, expected) {
            (Ok(grant), Ok(id)) => assert_eq!(grant["id"], id),
            (Err(error), Err((reason, retry))) => {
                assert!(error.reason.contains(reason), "{error} should say {reason}");
                assert_eq!(error.retry, retry, "{error}");
            }
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
        let seen = receiver.seen();
        assert_eq!(seen.len() - before, count);
        assert!(seen.iter().all(|seen| seen.headers["version"] == "1.4.0"));
        assert_eq!((seen[before].method.as_str(), seen[before].path.as_str()), ("POST", "/grant/v1/grants"));
        assert!(seen[before + 1..].iter().all(|seen| seen.method == "GET"));
    }
    // Nobody listens on the port that a server has just left.
    let gone = { Receiver::start().await.url.clone() };
    let handler = Grant { nfvo: Some(Nfvo { url: gone, auth: None }), ..handler };
    let error = handler.ask(&json!({})).await.unwrap_err();
    assert!(error.retry && error.reason.contains("cannot be asked for a grant: no connection"), "{error}");
}

#[tokio::test]
async fn a_plan_asks_again_until_it_is_granted() {
    let (ground, receiver) = (Ground::sqlite(), Receiver::start().await);
    receiver.then(say(503, &[], &Value::Null));
    receiver.then(say(201, &[], &json!({ "id": "g", "vimConnections": {} })));
    let handler = grant(&ground, &receiver).await;
    let journal = Arc::new(SqliteJournal::open(&ground.dir.path().join("plans.db")).await.unwrap());
    let engine = Engine::new(journal, Handlers::new().with(handler), Options::default());
    let instance = samples::instance(&samples::package(), Vec::new());
    let operation = samples::operation(&instance, OperationType::Instantiate, OperationState::Starting);
    let target = operation.target.clone().unwrap();
    let request = grant_request(&operation, &instance, &target, None, "http://m");
    let plan = plan("vnf/x", "grant", operation.id, request).unwrap();
    let id = engine.submit(&plan).await.unwrap();
    let report = tokio::time::timeout(Duration::from_secs(20), engine.run(id)).await.unwrap().unwrap();
    assert_eq!(report.outcome.state, PlanState::Succeeded, "{:?}", report.outcome.reason);
    let (_, view) = engine.load(id).await.unwrap();
    assert_eq!(view.tasks[0].output, json!({ "id": "g", "vimConnections": {} }));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body, "a request that is sent again says the same");
    assert_eq!(seen[0].body["vnfLcmOpOccId"], json!(operation.id));
}

fn flavour() -> Flavour {
    let vdu = |id: &str, storages: Value| {
        json!({ "id": id, "name": id, "description": null, "min": 1, "max": 3, "initial": 1,
            "compute": { "cpus": 1, "memory_bytes": null, "disk_bytes": null, "vim_flavour": null },
            "storages": storages, "image": null, "boot_data": null })
    };
    let cp = |id: &str, vdu: &str| json!({ "id": id, "vdu": vdu, "order": null, "virtual_link": null, "protocols": [] });
    serde_json::from_value(json!({
        "id": "simple", "description": null,
        "vdus": [vdu("hello", json!(["disk"])), vdu("other", json!([]))],
        "cps": [cp("hello_cp", "hello"), cp("other_cp", "other")],
        "ext_cps": [{ "id": "ext", "cp": "hello_cp", "virtual_link": null, "requirement": null, "protocols": [] }],
        "vls": [], "storages": [], "aspects": [], "levels": [], "default_level": null,
        "placement": [{ "id": "apart", "kind": "anti_affinity", "scope": "nfvi_node", "vdus": ["hello"] }],
        "lcm": {},
    }))
    .unwrap()
}

#[test]
fn requests_of_operations() {
    let (kept, gone) = (samples::vnfc("hello-0", "hello"), samples::vnfc("hello-1", "hello"));
    let instance = samples::instance(&samples::package(), vec![kept.clone(), gone.clone()]);
    let new = samples::vnfc("hello-2", "hello");
    let mut operation = samples::operation(&instance, OperationType::Heal, OperationState::Starting);
    let mut target = samples::target(vec![new.clone()], Vec::new());
    let mut anew = gone.clone();
    anew.resource = uuid::Uuid::now_v7();
    target.replace = vec![(anew.clone(), gone.resource)];
    let request = grant_request(&operation, &instance, &target, Some(&flavour()), "http://m/");
    assert_eq!(request["operation"], "HEAL");
    assert_eq!(request["flavourId"], "simple");
    assert!(request.get("instantiationLevelId").is_none(), "healing has no level");
    let link = format!("http://m/vnflcm/v2/vnf_lcm_op_occs/{}", operation.id);
    assert_eq!(request["_links"]["vnfLcmOpOcc"]["href"], link);
    let kinds = |name: &str| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = request[name].as_array().cloned().unwrap_or_default();
        all.iter().map(|one| (text(&one["type"]), text(&one["id"]))).collect()
    };
    let of = |kind: &str, id: String| (kind.to_owned(), id);
    let whole = |resource: uuid::Uuid| {
        [
            of("COMPUTE", resource.to_string()),
            of("LINKPORT", format!("{resource}/hello_cp")),
            of("STORAGE", format!("{resource}/disk")),
        ]
    };
    assert_eq!(kinds("addResources"), [whole(new.resource), whole(anew.resource)].concat());
    assert_eq!(kinds("removeResources"), [of("COMPUTE", gone.resource.to_string())]);
    assert_eq!(request["removeResources"][0]["resource"]["resourceId"], json!(gone.resource));
    assert_eq!(request["removeResources"][0]["resource"]["vimConnectionId"], "vim1");
    assert!(kinds("updateResources").is_empty());
    assert_eq!(
        request["placementConstraints"],
        json!([{
            "affinityOrAntiAffinity": "ANTI_AFFINITY",
            "scope": "NFVI_NODE",
            "resource": [
                { "idType": "GRANT", "resourceId": new.resource },
                { "idType": "GRANT", "resourceId": anew.resource },
                { "idType": "RES_MGMT", "vimConnectionId": "vim1", "resourceId": kept.resource },
            ],
        }])
    );

    operation.operation = OperationType::Instantiate;
    let first = samples::target(vec![new], Vec::new());
    let bare = crate::domain::Instance { info: None, ..instance.clone() };
    let request = grant_request(&operation, &bare, &first, None, "http://m");
    assert_eq!(request["instantiationLevelId"], "one");
    assert_eq!(request["addResources"].as_array().unwrap().len(), 1, "without a descriptor, machines alone");
    assert!(request.get("placementConstraints").is_none());

    operation.operation = OperationType::ChangeExtConn;
    let still = samples::target(Vec::new(), Vec::new());
    let request = grant_request(&operation, &instance, &still, Some(&flavour()), "http://m");
    let ports = request["updateResources"].as_array().unwrap();
    assert_eq!(ports.iter().map(|port| &port["resourceTemplateId"]).collect::<Vec<_>>(), ["hello_cp"; 2]);

    operation.operation = OperationType::ChangeVnfpkg;
    let mut other = samples::target(Vec::new(), Vec::new());
    other.package = Some((crate::domain::PackageId::new(), "vnfd-next".to_owned()));
    let request = grant_request(&operation, &instance, &other, None, "http://m");
    assert_eq!((&request["vnfdId"], &request["dstVnfdId"]), (&json!("vnfd-hello"), &json!("vnfd-next")));
}
