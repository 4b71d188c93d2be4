//! Which VIM is meant, and what of it is hidden.

use super::*;
use crate::app::samples::Ground;

fn vim(name: &str, kind: VimType, default: bool) -> Vim {
    Vim {
        id: VimId::new(),
        name: name.to_owned(),
        description: None,
        kind,
        default,
        created: Timestamp::now(),
        updated: None,
        interface: Map::new(),
        access: Map::new(),
        extra: Map::new(),
    }
}

fn connection(id: Option<&str>, kind: Option<&str>) -> VimConnection {
    VimConnection {
        vim_id: id.map(str::to_owned),
        vim_type: kind.map(str::to_owned),
        ..VimConnection::default()
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("an object was written") };
    map
}

#[test]
fn a_request_means_one_vim_or_is_told_what_there_is() {
    let vims = [
        vim("lab", VimType::Lab, true),
        vim("site", VimType::Hosts, false),
        vim("k8s", VimType::Kubernetes, false),
    ];
    let site = vims[1].id.to_string();
    let chosen = |connection: VimConnection| {
        choose(&vims, &BTreeMap::from([("vim1".to_owned(), connection)])).map(|(name, vim)| (name, vim.name))
    };
    let good = [
        (connection(None, None), "lab"),
        (connection(Some(&site), None), "site"),
        (connection(Some("site"), None), "site"),
        (connection(Some(&site), Some("hosts")), "site"),
        (connection(None, Some("hosts")), "site"),
        (connection(None, Some("ETSINFV.KUBERNETES.V_1")), "k8s"),
        (connection(None, Some("LAB")), "lab"),
    ];
    for (connection, expected) in good {
        let shown = format!("{connection:?}");
        assert_eq!(chosen(connection).expect(&shown), ("vim1".to_owned(), expected.to_owned()), "{shown}");
    }
    let bad = [
        (connection(Some("nowhere"), None), "vimConnectionInfo.vim1.vimId: there is no VIM \"nowhere\""),
        (connection(None, Some("openstack")), "vimConnectionInfo.vim1.vimType: there is no VIM of type"),
        (connection(Some(&site), Some("lab")), "VIM site is of type hosts and not lab"),
        (
            VimConnection {
                interface_info: object(json!({"endpoint": "x"})),
                ..connection(None, Some("lab"))
            },
            "register it at /v1.0/vims",
        ),
    ];
    for (connection, expected) in bad {
        let error = chosen(connection).expect_err(expected);
        assert_eq!(error.kind, ErrorKind::Unprocessable);
        assert!(error.detail.contains(expected), "{}", error.detail);
        if !expected.contains("is of type") {
            assert!(error.detail.contains(&format!("{site} (name site, type hosts)")), "{}", error.detail);
        }
    }
    assert_eq!(choose(&vims, &BTreeMap::new()).expect("the default").0, CHOSEN);
    let none = choose(&vims[1..], &BTreeMap::new()).expect_err("no default");
    assert!(
        none.detail.contains("none is the default") && none.detail.contains("name site"),
        "{}",
        none.detail
    );
    assert!(choose(&[], &BTreeMap::new()).expect_err("nothing").detail.contains("none is registered"));
}

#[test]
fn credentials_become_references() {
    let change = VimChange {
        interface: Some(object(json!({"endpoint": "https://192.0.2.1:6443"}))),
        access: Some(object(json!({
            "username": "me", "password": "hunter2", "bearer_token": "abc", "ssl_ca_cert": "PEM",
            "unheard_of": "maybe secret", "kept": "secret:other/place", "deep": {"client_key": "k"},
        }))),
        extra: Some(object(json!({"helm_info": [{"masternode_password": "pw"}], "colour": "red"}))),
        ..VimChange::default()
    };
    let (vim, kept) = apply(vim("k8s", VimType::Kubernetes, false), change).expect("good");
    let shown = serde_json::to_string(&vim).expect("plain data");
    for secret in ["hunter2", "\"abc\"", "maybe secret", "\"pw\"", "\"k\""] {
        assert!(!shown.contains(secret), "{secret} is shown: {shown}");
    }
    assert_eq!(vim.access["username"], "me");
    assert_eq!(vim.access["ssl_ca_cert"], "PEM");
    assert_eq!(vim.access["kept"], "secret:other/place");
    assert_eq!(vim.access["password"], format!("secret:vim.{}.auth_cred.password", vim.id));
    assert_eq!(vim.extra["colour"], "red");
    assert_eq!(kept.len(), 5);
    let own = references(&vim).iter().filter(|name| is_of(name, vim.id)).count();
    assert_eq!(own, 5, "those go with the VIM, the other one stays");
}

#[test]
fn each_type_needs_its_own() {
    let cases = [
        (VimType::Lab, json!({"lab": "vnf"}), None),
        (VimType::Lab, json!({}), Some("vim.interface.lab")),
        (VimType::Lab, json!({"lab": "../etc"}), Some("vim.interface.lab")),
        (VimType::Hosts, json!({"inventory": "site.yaml"}), None),
        (VimType::Hosts, json!({"inventory": 7}), Some("vim.interface.inventory")),
        (VimType::Kubernetes, json!({"endpoint": "https://192.0.2.1:6443"}), None),
        (VimType::Kubernetes, json!({"endpoint": "https://u:p@192.0.2.1:6443"}), Some("vim.auth_url")),
        (VimType::Kubernetes, json!({"endpoint": "file:///etc/passwd"}), Some("vim.auth_url")),
        (VimType::Kubernetes, json!({}), Some("vim.auth_url")),
    ];
    for (kind, interface, expected) in cases {
        let shown = interface.to_string();
        let change = VimChange { interface: Some(object(interface)), ..VimChange::default() };
        let error = apply(vim("v", kind, false), change).err().map(|error| error.detail);
        match expected {
            None => assert_eq!(error, None, "{shown}"),
            Some(place) => {
                assert!(error.as_ref().is_some_and(|text| text.starts_with(place)), "{shown}: {error:?}");
            }
        }
    }
}

#[tokio::test]
async fn one_vim_is_the_default_and_a_new_manager_has_one() {
    for ground in Ground::both().await {
        one_vim_is_the_default_in(&ground.store().await).await;
    }
}

async fn one_vim_is_the_default_in(store: &Store) {
    ensure_default(store).await.expect("a lab");
    ensure_default(store).await.expect("again");
    let vims = store.vims().await.expect("a list");
    assert_eq!(vims.len(), 1);
    assert!(vims[0].default && vims[0].kind == VimType::Lab);
    assert_eq!(vims[0].interface["lab"], "vnf");

    let mut other = vim("other", VimType::Hosts, true);
    store.insert_vim(&other).await.expect("registered");
    let defaults = || async {
        let all = store.vims().await.expect("a list");
        all.into_iter().filter(|vim| vim.default).map(|vim| vim.name).collect::<Vec<_>>()
    };
    assert_eq!(defaults().await, ["other"]);
    let mut first = store.vim(vims[0].id).await.expect("read").expect("there");
    assert!(!first.default);
    first.default = true;
    assert!(store.update_vim(&first).await.expect("written"));
    assert_eq!(defaults().await, ["lab"]);
    other.name = "lab".to_owned();
    other.default = false;
    let taken = store.update_vim(&other).await.expect_err("the name is taken");
    assert_eq!(taken.kind, StoreErrorKind::Taken);
    assert!(store.delete_vim(other.id).await.expect("deleted"));
    assert!(!store.delete_vim(other.id).await.expect("gone already"));
}

#[tokio::test]
async fn a_vim_that_something_stands_in_stays() {
    for ground in Ground::both().await {
        let app = ground.app().await;
        let change = VimChange {
            name: Some("lab".to_owned()),
            kind: Some("lab".to_owned()),
            interface: Some(object(json!({"lab": "vnf"}))),
            ..VimChange::default()
        };
        let vim = register(&app, change).await.expect("registered");
        let body = json!({"infra": "lab/vnf", "vim": vim.id}).to_string();
        let mut writer = app.store.db().writer().await;
        let mut tx = writer.begin().await.expect("begun");
        let mut run = async |sql: &'static str, args: Vec<crate::store::Arg>| {
            tx.execute(sql, &args).await.expect("written");
        };
        run("INSERT INTO package (id, rev, state, doc) VALUES ('p', 1, 'ONBOARDED', '{}')", vec![]).await;
        let instance = crate::domain::InstanceId::new();
        run(
            "INSERT INTO instance (id, rev, vnfd_id, package, provider, product, state, head, body) \
             VALUES ($1, 1, 'v', 'p', 'x', 'y', 'INSTANTIATED', '{}', $2)",
            vec![instance.to_string().into(), body.into()],
        )
        .await;
        tx.commit().await.expect("committed");
        drop(writer);
        let error = delete(&app, vim.id).await.expect_err("in use");
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(error.detail.contains(&instance.to_string()), "{}", error.detail);
        let mut writer = app.store.db().writer().await;
        let mut tx = writer.begin().await.expect("begun");
        tx.execute("DELETE FROM instance", &[]).await.expect("deleted");
        tx.commit().await.expect("committed");
        drop(writer);
        delete(&app, vim.id).await.expect("free");
    }
}
