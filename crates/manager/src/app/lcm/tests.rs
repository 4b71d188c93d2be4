//! Tables of requests and what follows from them.

use std::collections::BTreeMap;

use guywire_model::{
    AddressPair, HostNumber, Login, MachineName, MachineSpec, Observed, ObservedMachine, Power, PowerState,
    SiteName, SiteNetwork, SiteSpec, TemplateName, TemplateSpec,
};
use guywire_package::{Aspect, Compute, Cp, ExtCp, Flavour, Level, Vdu, Vnfd};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Request,
    decide::{Facts, target},
    finish::affected,
    outline::{Outline, outline},
};
use crate::{
    app::works::Place,
    domain::{
        ChangeType, ErrorKind, Info, Instance, InstanceId, InstantiationState, OperationId, OperationType,
        PackageId, Target, VimConnection, VimId, VnfState, Vnfc,
    },
    store::Claimed,
};

fn vdu(id: &str, min: u32, max: u32, initial: u32) -> Vdu {
    Vdu {
        id: id.to_owned(),
        name: id.to_owned(),
        description: None,
        min,
        max,
        initial,
        compute: Compute::default(),
        storages: Vec::new(),
        image: None,
        boot_data: None,
    }
}

fn flavour(id: &str) -> Flavour {
    let step = BTreeMap::from([("hello".to_owned(), 1)]);
    let level = |id: &str, scale: u32, count: u32| Level {
        id: id.to_owned(),
        description: None,
        scale: BTreeMap::from([("hello_instance".to_owned(), scale)]),
        counts: BTreeMap::from([("hello".to_owned(), count)]),
    };
    Flavour {
        id: id.to_owned(),
        description: None,
        vdus: vec![vdu("hello", 1, 5, 1)],
        cps: vec![Cp {
            id: "hello_cp".to_owned(),
            vdu: "hello".to_owned(),
            order: Some(0),
            virtual_link: None,
            protocols: Vec::new(),
        }],
        ext_cps: vec![ExtCp {
            id: "outside".to_owned(),
            cp: Some("hello_cp".to_owned()),
            virtual_link: None,
            requirement: None,
            protocols: Vec::new(),
        }],
        vls: Vec::new(),
        storages: Vec::new(),
        aspects: vec![Aspect {
            id: "hello_instance".to_owned(),
            name: "hello".to_owned(),
            description: None,
            max_level: 4,
            steps: vec![step; 4],
        }],
        levels: vec![level("small", 0, 1), level("default", 1, 2), level("large", 3, 4)],
        default_level: Some("default".to_owned()),
        placement: Vec::new(),
        lcm: BTreeMap::new(),
    }
}

fn vnfd() -> Vnfd {
    let mut big = flavour("big");
    big.vdus[0].compute.cpus = Some(8);
    Vnfd {
        id: "vnfd-1".to_owned(),
        version: "1".to_owned(),
        provider: "Guywire".to_owned(),
        product_name: "Hello".to_owned(),
        software_version: "1".to_owned(),
        description: None,
        vnfm_info: Vec::new(),
        flavours: vec![flavour("simple"), big],
        configurable_properties: BTreeMap::new(),
        modifiable_attributes: BTreeMap::new(),
        inputs: BTreeMap::new(),
    }
}

fn machine(name: &str, number: u16) -> MachineSpec {
    MachineSpec {
        name: MachineName::new(name).unwrap(),
        site: SiteName::new("net0").unwrap(),
        number: HostNumber(number),
        template: TemplateName::new("base").unwrap(),
        login: login(),
        volumes: Vec::new(),
    }
}

fn login() -> Login {
    Login { user: "root".to_owned(), authorized_keys: Vec::new(), password: None }
}

fn vnfc(n: u32) -> Vnfc {
    Vnfc {
        id: format!("hello-{n}"),
        resource: uuid::Uuid::from_u128(u128::from(n) + 1),
        vdu: "hello".to_owned(),
        machine: machine(&format!("hello-x-{n}"), u16::try_from(n).unwrap() + 11),
        addresses: None,
    }
}

fn instance(machines: Option<u32>) -> Instance {
    let info = machines.map(|count| Info {
        flavour: "simple".to_owned(),
        level: None,
        vnf_state: VnfState::Started,
        scale: BTreeMap::from([("hello_instance".to_owned(), count - 1)]),
        vnfcs: (0..count).map(vnfc).collect(),
        ext_links: Vec::new(),
        infra: "lab/vnf".to_owned(),
        vim: VimId::new(),
        vim_connection: "default".to_owned(),
        inputs: Map::from_iter([("greeting".to_owned(), json!("hi"))]),
    });
    let state =
        if info.is_some() { InstantiationState::Instantiated } else { InstantiationState::NotInstantiated };
    Instance {
        id: InstanceId::new(),
        rev: 1,
        name: None,
        description: None,
        vnfd_id: "vnfd-1".to_owned(),
        package: PackageId::new(),
        provider: String::new(),
        product: String::new(),
        software_version: String::new(),
        vnfd_version: String::new(),
        state,
        operation: None,
        created: Timestamp::now(),
        metadata: Map::new(),
        extensions: Map::new(),
        configurable: Map::new(),
        vims: BTreeMap::new(),
        info,
    }
}

fn request(operation: OperationType, body: Value) -> Request {
    let Value::Object(body) = body else { panic!("an object") };
    Request::parse(operation, &body).unwrap()
}

fn read(operation: OperationType, body: Value, instance: &Instance) -> Result<Outline, (ErrorKind, String)> {
    let vnfd = vnfd();
    outline(&request(operation, body), instance, &vnfd, Some(&vnfd))
        .map_err(|error| (error.kind, error.detail))
}

fn place() -> Place {
    let site = |name: &str, v4: Option<&str>| SiteSpec {
        name: SiteName::new(name).unwrap(),
        v4: v4.map(|net| net.parse().unwrap()),
        v6: None,
    };
    Place {
        infra: "lab/vnf".to_owned(),
        sites: vec![site("net0", None), site("net1", Some("10.9.0.0/24"))],
        egress: guywire_model::Egress::None,
        templates: vec![TemplateSpec {
            name: TemplateName::new("base").unwrap(),
            packages: Vec::new(),
            content: Vec::new(),
        }],
        hosts: None,
        login: login(),
    }
}

fn decided(
    operation: OperationType,
    body: Value,
    instance: &Instance,
    observed: &Observed,
    claimed: &[Claimed],
) -> Result<Target, String> {
    let outline = read(operation, body, instance).map_err(|(_, detail)| detail)?;
    let vnfd = vnfd();
    let facts = Facts {
        operation: OperationId::new(),
        instance,
        outline: &outline,
        flavour: vnfd.flavour(&outline.flavour).unwrap(),
        vim: ("default".to_owned(), VimId::new()),
        connection: VimConnection::default(),
        place: &place(),
        observed,
        claimed,
        package: None,
    };
    target(&facts).map(|(target, _)| target)
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    use OperationType as O;
    let (none, two) = (instance(None), instance(Some(2)));
    let table = [
        (O::Instantiate, json!({"flavourId": "nope"}), &none, ErrorKind::Invalid, "it has simple, big"),
        (O::Instantiate, json!({"flavourId": "simple"}), &two, ErrorKind::Conflict, "terminate it before"),
        (
            O::Instantiate,
            json!({"flavourId": "simple", "instantiationLevelId": "huge"}),
            &none,
            ErrorKind::Invalid,
            "it has small, default, large",
        ),
        (
            O::Scale,
            json!({"type": "SCALE_OUT", "aspectId": "hello_instance"}),
            &none,
            ErrorKind::Conflict,
            "first",
        ),
        (
            O::Scale,
            json!({"type": "SCALE_OUT", "aspectId": "x"}),
            &two,
            ErrorKind::Invalid,
            "it has hello_instance",
        ),
        (
            O::Scale,
            json!({"type": "SCALE_OUT", "aspectId": "hello_instance", "numberOfSteps": 4}),
            &two,
            ErrorKind::Invalid,
            "stands at level 1 of 0 to 4",
        ),
        (
            O::Scale,
            json!({"type": "SCALE_IN", "aspectId": "hello_instance", "numberOfSteps": 2}),
            &two,
            ErrorKind::Invalid,
            "too many",
        ),
        (
            O::Scale,
            json!({"type": "SCALE_IN", "aspectId": "hello_instance", "numberOfSteps": 0}),
            &two,
            ErrorKind::Invalid,
            "1 or more",
        ),
        (O::ScaleToLevel, json!({}), &two, ErrorKind::Invalid, "one of the two"),
        (
            O::Heal,
            json!({"vnfcInstanceId": ["hello-9"]}),
            &two,
            ErrorKind::Invalid,
            "it has hello-0, hello-1",
        ),
        (O::Heal, json!({"additionalParams": {"all": "yes"}}), &two, ErrorKind::Invalid, "true or false"),
        (O::ChangeFlavour, json!({"newFlavourId": "simple"}), &two, ErrorKind::Conflict, "already"),
        (O::ChangeExtConn, json!({"extVirtualLinks": []}), &two, ErrorKind::Invalid, "at least one"),
        (
            O::ChangeVnfpkg,
            json!({"vnfdId": "v", "additionalParams": {"upgrade_type": "BlueGreen"}}),
            &two,
            ErrorKind::Invalid,
            "RollingUpdate",
        ),
    ];
    for (operation, body, instance, kind, words) in table {
        let (found, detail) = read(operation, body.clone(), instance).unwrap_err();
        assert!(found == kind && detail.contains(words), "{operation:?} {body}: {found:?} {detail}");
    }
}

#[test]
fn sizes_follow_levels_scales_and_steps() {
    use OperationType as O;
    let two = instance(Some(2));
    let count = |outline: Outline| (outline.counts["hello"], outline.scale["hello_instance"], outline.level);
    let level = |name: &str| Some(name.to_owned());
    let none = instance(None);
    let made = |body| count(read(O::Instantiate, body, &none).unwrap());
    assert_eq!(made(json!({"flavourId": "simple"})), (2, 1, level("default")));
    assert_eq!(made(json!({"flavourId": "simple", "instantiationLevelId": "large"})), (4, 3, level("large")));
    let scales = json!([{"aspectId": "hello_instance", "scaleLevel": 4}]);
    assert_eq!(made(json!({"flavourId": "simple", "targetScaleLevelInfo": scales})), (5, 4, None));
    let out = json!({"type": "SCALE_OUT", "aspectId": "hello_instance", "numberOfSteps": 2});
    assert_eq!(count(read(O::Scale, out, &two).unwrap()), (4, 3, level("large")));
    let to = json!({"instantiationLevelId": "small"});
    assert_eq!(count(read(O::ScaleToLevel, to, &two).unwrap()), (1, 0, level("small")));
}

#[test]
fn new_machines_get_names_and_numbers_that_nobody_has() {
    let none = instance(None);
    let taken = ObservedMachine {
        spec: machine("other", 11),
        power: PowerState::Running,
        addresses: AddressPair { v4: "10.0.0.11".parse().unwrap(), v6: "fd00::11".parse().unwrap() },
    };
    let observed = Observed { machines: vec![taken], ..Observed::default() };
    let claimed = [Claimed { name: "soon".into(), site: "net0".into(), number: 12, instance: String::new() }];
    let target =
        decided(OperationType::Instantiate, json!({"flavourId": "simple"}), &none, &observed, &claimed)
            .unwrap();
    let numbers: Vec<u16> = target.add.iter().map(|vnfc| vnfc.machine.number.0).collect();
    let ids: Vec<&str> = target.add.iter().map(|vnfc| vnfc.id.as_str()).collect();
    assert_eq!((numbers, ids), (vec![13, 14], vec!["hello-0", "hello-1"]));
    let tail = &none.id.0.simple().to_string()[24..];
    assert_eq!(target.add[1].machine.name.as_str(), format!("hello-{tail}-1"));
}

#[test]
fn the_newest_go_first_and_names_are_used_again() {
    let three = instance(Some(3));
    let scale = |kind: &str| json!({"type": kind, "aspectId": "hello_instance"});
    let nothing = Observed::default();
    let inward = decided(OperationType::Scale, scale("SCALE_IN"), &three, &nothing, &[]).unwrap();
    assert_eq!(inward.remove.iter().map(|vnfc| vnfc.id.as_str()).collect::<Vec<_>>(), ["hello-2"]);
    assert!(inward.add.is_empty() && inward.replace.is_empty());
    let mut gap = instance(Some(3));
    gap.info.as_mut().unwrap().vnfcs.remove(1);
    gap.info.as_mut().unwrap().scale.insert("hello_instance".into(), 1);
    let outward = decided(OperationType::Scale, scale("SCALE_OUT"), &gap, &nothing, &[]).unwrap();
    assert_eq!(outward.add[0].id, "hello-1");
}

#[test]
fn healing_keeps_name_number_and_component_and_makes_a_new_resource() {
    let two = instance(Some(2));
    let one = json!({"vnfcInstanceId": ["hello-1"]});
    let target = decided(OperationType::Heal, one, &two, &Observed::default(), &[]).unwrap();
    let (next, before) = &target.replace[0];
    assert_eq!((target.replace.len(), *before), (1, vnfc(1).resource));
    assert_eq!((&next.machine, next.id.as_str()), (&vnfc(1).machine, "hello-1"));
    assert_ne!(next.resource, *before);
    let by_resource = json!({"vnfcInstanceId": [vnfc(0).resource]});
    let target = decided(OperationType::Heal, by_resource, &two, &Observed::default(), &[]).unwrap();
    assert_eq!(target.replace[0].0.id, "hello-0");
    let all = decided(OperationType::Heal, json!({}), &two, &Observed::default(), &[]).unwrap();
    assert_eq!(all.replace.len(), 2);
    assert_eq!(all.inputs["greeting"], "hi", "nothing has to be sent again");
}

#[test]
fn networks_and_fixed_addresses_are_chosen_by_connection_point() {
    let none = instance(None);
    let body = |resource: &str, address: Option<&str>| {
        let fixed = address.map_or(json!({}), |address| {
            json!({"ipOverEthernet": {"ipAddresses": [{"type": "IPV4", "fixedAddresses": [address]}]}})
        });
        json!({"flavourId": "simple", "instantiationLevelId": "small", "extVirtualLinks": [
            {"id": "out", "resourceId": resource, "extCps": [
                {"cpdId": "outside", "cpConfig": [{"cpProtocolData": [fixed]}]}]}]})
    };
    let run = |body| decided(OperationType::Instantiate, body, &none, &Observed::default(), &[]);
    let there = run(body("net1", Some("10.9.0.77"))).unwrap();
    assert_eq!((there.add[0].machine.site.as_str(), there.add[0].machine.number), ("net1", HostNumber(77)));
    for (body, words) in [
        (body("net9", None), "the VIM has no network \"net9\"; it has net0, net1"),
        (body("net1", Some("10.8.0.1")), "outside 10.9.0.0/24"),
        (body("net0", Some("10.8.0.1")), "has none yet"),
    ] {
        let refused = run(body).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    let made = SiteNetwork {
        name: SiteName::new("net0").unwrap(),
        v4: "10.8.0.0/24".parse().unwrap(),
        v6: "fd00::/64".parse().unwrap(),
    };
    let observed = Observed { sites: vec![made], ..Observed::default() };
    let found =
        decided(OperationType::Instantiate, body("net0", Some("10.8.0.9")), &none, &observed, &[]).unwrap();
    assert_eq!(found.add[0].machine.number, HostNumber(9));
}

#[test]
fn another_network_moves_machines_and_another_flavour_renews_them() {
    let two = instance(Some(2));
    let links =
        json!({"extVirtualLinks": [{"id": "out", "resourceId": "net1", "extCps": [{"cpdId": "hello_cp"}]}]});
    let moved = decided(OperationType::ChangeExtConn, links, &two, &Observed::default(), &[]).unwrap();
    assert!(
        moved.replace.len() == 2
            && moved.replace.iter().all(|(next, _)| next.machine.site.as_str() == "net1")
    );
    let big = decided(
        OperationType::ChangeFlavour,
        json!({"newFlavourId": "big", "instantiationLevelId": "large"}),
        &two,
        &Observed::default(),
        &[],
    )
    .unwrap();
    assert_eq!((big.replace.len(), big.add.len(), big.one_by_one), (2, 2, true));
}

#[test]
fn machines_are_switched_as_asked() {
    let two = instance(Some(2));
    let stop = |body: Value| decided(OperationType::Operate, body, &two, &Observed::default(), &[]).unwrap();
    let all = stop(json!({"changeStateTo": "STOPPED"}));
    assert_eq!(all.power.as_ref().map(|(power, named)| (*power, named.len())), Some((Power::Cut, 2)));
    assert_eq!(all.vnf_state, VnfState::Stopped);
    let one =
        stop(json!({"changeStateTo": "STOPPED", "stopType": "GRACEFUL", "vnfcInstanceId": ["hello-0"]}));
    assert_eq!(one.power.as_ref().map(|(power, named)| (*power, named.len())), Some((Power::Off, 1)));
    assert_eq!(one.vnf_state, VnfState::Started, "the other one still runs");
}

#[test]
fn a_hosts_inventory_runs_out() {
    let none = instance(None);
    let outline = read(OperationType::Instantiate, json!({"flavourId": "simple"}), &none).unwrap();
    let vnfd = vnfd();
    let mut place = place();
    place.hosts = Some(vec![machine("h1", 1)]);
    let facts = Facts {
        operation: OperationId::new(),
        instance: &none,
        outline: &outline,
        flavour: &vnfd.flavours[0],
        vim: ("h".to_owned(), VimId::new()),
        connection: VimConnection::default(),
        place: &place,
        observed: &Observed::default(),
        claimed: &[],
        package: None,
    };
    assert!(target(&facts).unwrap_err().starts_with("all 1 hosts of the inventory are in use"));
}

#[test]
fn what_is_renewed_counts_as_removed_and_added() {
    let two = instance(Some(2));
    let target = decided(OperationType::Heal, json!({}), &two, &Observed::default(), &[]).unwrap();
    let operation = super::accept::fresh(OperationId::new(), two.id, OperationType::Heal);
    let changes = affected(&operation, &target);
    let of = |change| changes.iter().filter(|entry| entry.change == change).count();
    assert_eq!((of(ChangeType::Removed), of(ChangeType::Added)), (2, 2));
    let ids: std::collections::BTreeSet<_> = changes.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 4, "each change has an id of its own");
}
