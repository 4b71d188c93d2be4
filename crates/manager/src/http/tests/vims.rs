//! The registry of VIMs, as Tacker's client uses it.

use http::Method;
use serde_json::{Value, json};

use super::world::{World, read};
use crate::app::vims::ensure_default;

#[tokio::test]
async fn vims_are_registered_shown_changed_and_deleted() {
    let world = World::new().await;
    ensure_default(&world.app.store).await.expect("a lab");
    let body = json!({"vim": {
        "name": "cluster", "type": "kubernetes", "auth_url": "https://192.0.2.1:6443", "is_default": true,
        "description": "ours", "vim_project": {"name": "default"},
        "auth_cred": {"bearer_token": "very-secret-token", "ssl_ca_cert": "None"},
    }});
    let (status, made) = world.post("/v1.0/vims.json", &body).await;
    assert_eq!(status, 201, "{made}");
    let vim = &made["vim"];
    let id = vim["id"].as_str().expect("an id").to_owned();
    let reference = format!("secret:vim.{id}.auth_cred.bearer_token");
    assert_eq!(vim["auth_cred"], json!({"bearer_token": reference, "ssl_ca_cert": "None"}));
    assert_eq!((&vim["type"], &vim["auth_url"]), (&json!("kubernetes"), &json!("https://192.0.2.1:6443")));
    assert_eq!((&vim["vim_project"], &vim["placement_attr"]), (&json!({"name": "default"}), &json!({})));
    assert!(vim["created_at"].as_str().is_some_and(|time| time.ends_with('Z')));
    let secret = |reference: &str| world.app.secrets.get(&reference.parse().expect("a reference"));
    assert_eq!(secret(&reference).expect("kept").expose(), b"very-secret-token");

    let (_, list) = world.get("/v1.0/vims.json").await;
    assert_eq!(list["vims"].as_array().map(Vec::len), Some(2));
    assert!(!list.to_string().contains("very-secret"), "{list}");
    let defaults: Vec<&Value> =
        list["vims"].as_array().expect("a list").iter().filter(|vim| vim["is_default"] == true).collect();
    assert_eq!(defaults.len(), 1);
    assert_eq!(world.get("/v1.0/vims.json?name=cluster&fields=id").await.1, json!({"vims": [{"id": id}]}));
    assert_eq!(
        world.get(&format!("/v1.0/vims.json?id={id}&fields=id")).await.1,
        json!({"vims": [{"id": id}]})
    );
    assert_eq!(world.get("/v1.0/vims.json?name=none").await.1, json!({"vims": []}));
    assert_eq!(world.get("/v1.0/vims?fields=nope").await.0, 400);

    let path = format!("/v1.0/vims/{id}.json");
    let shown = world.request(Method::GET, &path).send().await.expect("an answer");
    let tag = shown.headers()["etag"].to_str().expect("text").to_owned();
    assert_eq!(read(shown).await.1["vim"]["name"], "cluster");
    let put = |body: Value, tag: Option<&str>| {
        let mut request = world.request(Method::PUT, &path).json(&body);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        async move { read(request.send().await.expect("an answer")).await }
    };
    let change = json!({"vim": {"name": "renamed", "description": null, "auth_cred": {"password": "other", "username": "u"}}});
    assert_eq!(put(change.clone(), Some("\"stale\"")).await.0, 412);
    let (status, changed) = put(change, Some(&tag)).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!((&changed["vim"]["name"], &changed["vim"]["description"]), (&json!("renamed"), &json!("")));
    assert_eq!(changed["vim"]["auth_url"], "https://192.0.2.1:6443", "what was not named stays");
    assert!(secret(&reference).is_err(), "a secret that nobody refers to is gone");
    let password = format!("secret:vim.{id}.auth_cred.password");
    assert_eq!(secret(&password).expect("kept").expose(), b"other");
    assert_eq!(put(json!({"vim": {"name": "lab"}}), None).await.0, 409);
    assert_eq!(put(json!({"vim": {"type": "lab"}}), None).await.0, 400);

    let delete = world.request(Method::DELETE, &path).send().await.expect("an answer");
    assert_eq!(delete.status(), 204);
    assert!(secret(&password).is_err(), "its secrets go with it");
    assert_eq!(world.get(&path).await.0, 404);
    let delete = world.request(Method::DELETE, &path).send().await.expect("an answer");
    assert_eq!(delete.status(), 404);
}

#[tokio::test]
async fn wrong_vims_are_refused_with_what_is_expected() {
    let world = World::new().await;
    let cases = [
        (json!({}), 400, "missing field `vim`"),
        (json!({"vim": {}}), 400, "vim.type is missing; there are lab, hosts, kubernetes"),
        (json!({"vim": {"type": "openstack", "name": "x"}}), 400, "\"openstack\" is no type"),
        (json!({"vim": {"type": "lab"}}), 400, "vim.name is missing"),
        (json!({"vim": {"type": "lab", "name": "x"}}), 400, "vim.interface.lab"),
        (
            json!({"vim": {"type": "lab", "name": "x", "colour": "red"}}),
            400,
            "vim.colour: unknown field `colour`",
        ),
        (json!({"vim": {"type": "lab", "name": 7}}), 400, "vim.name: invalid type"),
        (json!({"vim": {"type": "kubernetes", "name": "x", "auth_url": "nonsense"}}), 400, "vim.auth_url"),
        (
            json!({"vim": {"type": "lab", "name": "x", "interface": {"lab": "a"}, "auth_cred": {"password": 7}}}),
            400,
            "vim.auth_cred.password: it is kept secret",
        ),
        (
            json!({"vim": {"type": "lab", "name": "x", "interface": {"lab": "a"}, "auth_cred": {"password": "secret:"}}}),
            400,
            "vim.auth_cred.password",
        ),
    ];
    for (body, status, expected) in cases {
        let (got, problem) = world.post("/v1.0/vims", &body).await;
        assert_eq!(got, status, "{body}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(expected)), "{body}: {problem}");
    }
    assert_eq!(world.get("/v1.0/vims").await.1, json!({"vims": []}));
}
