//! What is refused in a descriptor, and the words and the line that say so.

use crate::builder::{Csar, fixture};

/// A descriptor that is right. Each case changes some of its text.
const GOOD: &str = "\
tosca_definitions_version: tosca_simple_yaml_1_2
imports:
  - etsi_nfv_sol001_vnfd_types.yaml
topology_template:
  node_templates:
    VNF:
      type: tosca.nodes.nfv.VNF
      properties:
        descriptor_id: some-id
        descriptor_version: '1.0'
        provider: Company
        product_name: Product
        software_version: '1.0'
        flavour_id: simple
      interfaces:
        Vnflcm:
          instantiate_end:
            implementation: driver
      artifacts:
        driver:
          type: tosca.artifacts.Implementation.Python
          file: ../Scripts/driver.py
    node:
      type: tosca.nodes.nfv.Vdu.Compute
      properties:
        name: node
        description: A machine
        vdu_profile:
          min_number_of_instances: 1
          max_number_of_instances: 3
      capabilities:
        virtual_compute:
          properties:
            virtual_cpu: {num_virtual_cpu: 1}
            virtual_memory: {virtual_mem_size: 1 GB}
      requirements:
        - virtual_storage: disk
    disk:
      type: tosca.nodes.nfv.Vdu.VirtualBlockStorage
      properties:
        virtual_block_storage_data:
          size_of_storage: 1 GB
    cp:
      type: tosca.nodes.nfv.VduCp
      properties: {layer_protocols: [ipv4], order: 0}
      requirements:
        - virtual_binding: node
        - virtual_link: vl
    vl:
      type: tosca.nodes.nfv.VnfVirtualLink
      properties:
        vl_profile:
          virtual_link_protocol_data:
            - l3_protocol_data: {ip_version: ipv4, cidr: 10.0.0.0/24}
  policies:
    - aspects:
        type: tosca.policies.nfv.ScalingAspects
        properties:
          aspects:
            out: {name: out, max_scale_level: 2, step_deltas: [one]}
    - initial:
        type: tosca.policies.nfv.VduInitialDelta
        properties: {initial_delta: {number_of_instances: 1}}
        targets: [node]
    - deltas:
        type: tosca.policies.nfv.VduScalingAspectDeltas
        properties: {aspect: out, deltas: {one: {number_of_instances: 1}}}
        targets: [node]
    - levels:
        type: tosca.policies.nfv.InstantiationLevels
        properties:
          levels: {a: {scale_info: {out: {scale_level: 0}}}, b: {scale_info: {out: {scale_level: 2}}}}
          default_level: a
    - apart:
        type: tosca.policies.nfv.AntiAffinityRule
        properties: {scope: zone}
        targets: [node]
";

const CASES: &[(&str, &str, &str)] = &[
    // The file itself.
    (
        "tosca_simple_yaml_1_2",
        "tosca_2_0",
        "1: service template: tosca_definitions_version: expected tosca_simple_yaml_1_0 to tosca_simple_yaml_1_3, found 'tosca_2_0'",
    ),
    (
        "tosca_definitions_version: tosca_simple_yaml_1_2\n",
        "",
        "1: service template: tosca_definitions_version is missing; expected tosca_simple_yaml_1_0 to tosca_simple_yaml_1_3",
    ),
    (
        "topology_template:",
        "topology:",
        ": has no topology_template; expected one with a node template of the VNF",
    ),
    (
        "etsi_nfv_sol001_vnfd_types.yaml",
        "other.yaml",
        "3: imports: Definitions/other.yaml is not in the package",
    ),
    (
        "etsi_nfv_sol001_vnfd_types.yaml",
        "../../../etc/passwd.yaml",
        "3: imports: ../../../etc/passwd.yaml leads out of the package",
    ),
    (
        "etsi_nfv_sol001_vnfd_types.yaml",
        "https://example.com/t.yaml",
        "3: imports: https://example.com/t.yaml is outside the package; put the file into the package and import it from there",
    ),
    ("    VNF:\n", "    VNF:\n    VNF:\n", "7: 'VNF' stands twice in this mapping"),
    // The VNF.
    (
        "      type: tosca.nodes.nfv.VNF\n",
        "",
        "6: VNF: type is missing; expected a node type such as tosca.nodes.nfv.Vdu.Compute",
    ),
    (
        "tosca.nodes.nfv.VNF",
        "company.VNF",
        "7: VNF: type: no file of the package defines the type company.VNF",
    ),
    (
        "tosca.nodes.nfv.VNF",
        "tosca.nodes.Root",
        "4: topology_template: has no node of the VNF; expected a node template of a type derived from tosca.nodes.nfv.VNF",
    ),
    (
        "        descriptor_id: some-id\n",
        "",
        "6: VNF: descriptor_id is missing; expected the VNFD's identifier, such as a UUID",
    ),
    (
        "descriptor_id: some-id",
        "descriptor_id: [some-id]",
        "9: VNF: descriptor_id: expected text, found a list",
    ),
    (
        "descriptor_id: some-id",
        "descriptor_id: {get_input: id}",
        "6: VNF: descriptor_id is missing (the input id has no default); expected the VNFD's identifier, such as a UUID",
    ),
    (
        "provider: Company",
        "provider: ''",
        "6: VNF: provider is missing; expected the name of who made the VNF",
    ),
    (
        "provider: Company",
        "provider: \"a\\nb\"",
        "11: VNF: provider: expected a name of 1 to 255 bytes on one line, found 'a\u{fffd}b'",
    ),
    // What it does.
    (
        "implementation: driver",
        "implementation: drivel",
        "18: VNF: Vnflcm: instantiate_end: implementation: drivel is neither an artifact of the VNF (declared: driver) nor a file of the package",
    ),
    (
        "implementation: driver",
        "implementation: [driver]",
        "18: VNF: Vnflcm: instantiate_end: implementation: expected the name of an artifact, found a list",
    ),
    (
        "../Scripts/driver.py",
        "../Scripts/gone.py",
        "22: VNF: artifacts: driver: file: ../Scripts/gone.py is not in the package; expected a path from the package's root or from this file",
    ),
    (
        "../Scripts/driver.py",
        "https://example.com/a.py",
        "22: VNF: artifacts: driver: file: is outside the package; a script is run only if the package ships it",
    ),
    (
        "          file: ../Scripts/driver.py\n",
        "",
        "20: VNF: artifacts: driver: file is missing; expected the artifact's path in the package",
    ),
    (
        "          file: ../Scripts/driver.py\n",
        "          file: ../Scripts/driver.py\n          checksum: abc\n",
        "23: VNF: artifacts: driver: checksum: expected the 64 hexadecimal digits of sha-256",
    ),
    // The machines.
    (
        "Vdu.Compute",
        "Vdu.OsContainerDeployableUnit",
        "23: node: tosca.nodes.nfv.Vdu.OsContainerDeployableUnit is for containers, which are not supported yet; expected VDUs of type tosca.nodes.nfv.Vdu.Compute",
    ),
    (
        "          min_number_of_instances: 1\n",
        "",
        "28: node: vdu_profile: min_number_of_instances is missing; expected a whole number from 0 to 10000",
    ),
    (
        "min_number_of_instances: 1",
        "min_number_of_instances: one",
        "29: node: vdu_profile: min_number_of_instances: expected a whole number from 0 to 10000, found 'one'",
    ),
    (
        "min_number_of_instances: 1",
        "min_number_of_instances: '1'",
        "29: node: vdu_profile: min_number_of_instances: expected a whole number from 0 to 10000, found '1'",
    ),
    (
        "min_number_of_instances: 1",
        "min_number_of_instances: -1",
        "29: node: vdu_profile: min_number_of_instances: expected a whole number from 0 to 10000, found '-1'",
    ),
    (
        "min_number_of_instances: 1",
        "min_number_of_instances: {get_attribute: [SELF, x]}",
        "29: node: vdu_profile: min_number_of_instances: expected a whole number from 0 to 10000, but get_attribute SELF, x is known only when the VNF runs",
    ),
    (
        "max_number_of_instances: 3",
        "max_number_of_instances: 0",
        "30: node: vdu_profile: max_number_of_instances: expected at least 1 and no less than min_number_of_instances (1), found 0",
    ),
    (
        "vdu_profile:",
        "profile:",
        "25: node: vdu_profile is missing; expected the fewest and the most machines of this kind",
    ),
    (
        "num_virtual_cpu: 1",
        "num_virtual_cpu: 0",
        "34: node: virtual_compute: virtual_cpu: num_virtual_cpu: expected a whole number from 1 to 4096, found '0'",
    ),
    (
        "virtual_mem_size: 1 GB",
        "virtual_mem_size: much",
        "35: node: virtual_compute: virtual_memory: virtual_mem_size: expected a size such as '512 MB' or '2 GiB', found 'much'",
    ),
    (
        "virtual_storage: disk",
        "virtual_storage: disc",
        "37: node: virtual_storage: disc is no volume of this flavour; expected one of disk",
    ),
    (
        "          size_of_storage: 1 GB\n",
        "          rdma_enabled: true\n",
        "41: disk: virtual_block_storage_data: size_of_storage is missing; expected a size such as '10 GB'",
    ),
    // How they are connected.
    (
        "        - virtual_binding: node\n",
        "",
        "43: cp: virtual_binding is missing; expected the VDU that it belongs to, as '- virtual_binding: NAME' in its requirements",
    ),
    (
        "virtual_binding: node",
        "virtual_binding: nod",
        "47: cp: virtual_binding: nod is no VDU of this flavour; expected one of node",
    ),
    (
        "virtual_link: vl",
        "virtual_link: {node: lv}",
        "48: cp: virtual_link: node: lv is no virtual link of this flavour; expected one of vl",
    ),
    ("order: 0", "order: first", "45: cp: order: expected a whole number from 0 to 1000, found 'first'"),
    (
        "10.0.0.0/24",
        "10.0.0.0/33",
        "54: vl: vl_profile: virtual_link_protocol_data: l3_protocol_data: cidr: expected a network such as '10.10.0.0/24', found '10.0.0.0/33'",
    ),
    (
        "ip_version: ipv4",
        "ip_version: 4",
        "54: vl: vl_profile: virtual_link_protocol_data: l3_protocol_data: ip_version: expected ipv4 or ipv6, found '4'",
    ),
    // How they scale.
    ("tosca.policies.nfv.ScalingAspects", "[a]", "57: aspects: type: expected text, found a list"),
    (
        "max_scale_level: 2, ",
        "",
        "60: aspects: properties: aspects: out: max_scale_level is missing; expected the highest level",
    ),
    (
        "step_deltas: [one]",
        "step_deltas: [one, one, one]",
        "60: aspects: properties: aspects: out: has 3 step_deltas; expected 1 for equal steps, or 2 as max_scale_level",
    ),
    (
        "initial_delta: {number_of_instances: 1}",
        "initial_delta: {number_of_instances: 9}",
        "63: initial: properties: initial_delta: number_of_instances: expected 1 to 3 as node's vdu_profile says, found 9",
    ),
    (
        "targets: [node]\n    - levels",
        "targets: [vl]\n    - levels",
        "68: deltas: targets: vl is no VDU of this flavour; expected one of node",
    ),
    (
        "one: {number_of_instances: 1}",
        "one: {number_of_instances: 5}",
        "69: levels: the level b gives 11 node; its vdu_profile allows 1 to 3",
    ),
    (
        "{scale_level: 2",
        "{scale_level: 3",
        "72: levels: properties: levels: b: scale_info: out: scale_level: expected a whole number from 0 to 2, found '3'",
    ),
    (
        "default_level: a",
        "default_level: c",
        "73: levels: properties: default_level: expected one of the levels a, b, found 'c'",
    ),
    (
        "scope: zone",
        "scope: rack",
        "76: apart: properties: scope: expected one of nfvi_node, zone, zone_group, nfvi_pop, network_link_and_node, container_namespace, found 'rack'",
    ),
];

fn csar(vnfd: &str) -> Csar {
    Csar::of(vnfd).with("Scripts/driver.py", "print('[]')")
}

#[test]
fn the_descriptor_that_cases_start_from_is_right() {
    assert_eq!(csar(GOOD).accepted().warnings, Vec::<String>::new());
}

#[test]
fn complaints_say_where_and_what_is_expected() {
    let mut wrong = Vec::new();
    for (from, to, expected) in CASES {
        assert!(GOOD.contains(from), "the case {from:?} changes nothing");
        let found = match csar(&GOOD.replacen(from, to, 1)).read() {
            Err(rejection) => rejection.to_string(),
            Ok(_) => "taken".to_owned(),
        };
        // A case without a line is about the file as a whole.
        let expected = match expected.strip_prefix(": ") {
            Some(reason) => format!("Definitions/vnfd.yaml: {reason}"),
            None => format!("Definitions/vnfd.yaml:{expected}"),
        };
        if found != expected {
            wrong.push(format!("{from:?} -> {to:?}\n   expected {expected}\n      found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_others_pass_over_is_passed_over_with_a_warning() {
    for (from, to, expected) in [
        (
            "step_deltas: [one]",
            "step_deltas: [two]",
            "67: deltas: properties: deltas: has no two, a step of out; the step adds nothing",
        ),
        (
            "aspect: out",
            "aspect: in",
            "67: deltas: properties: aspect: in is no scaling aspect; its deltas are passed over",
        ),
        (
            "          default_level: a\n",
            "",
            "71: levels: properties: has no default_level; a is taken, the first",
        ),
        (
            "name: node\n",
            "name: node\n        colour: red\n",
            "27: node: colour: unknown property, passed over",
        ),
        (
            "AntiAffinityRule",
            "SecurityGroupRule",
            "74: apart: policies of type SecurityGroupRule are passed over",
        ),
        (
            "instantiate_end:",
            "celebrate_end:",
            "17: VNF: Vnflcm: celebrate_end: is no point of a lifecycle operation, and is passed over",
        ),
        (
            "instantiate_end:",
            "instantiate:",
            "17: VNF: Vnflcm: instantiate: only instantiate_start and instantiate_end are run; the operation itself is done by the manager",
        ),
    ] {
        assert!(GOOD.contains(from), "the case {from:?} changes nothing");
        let warnings = csar(&GOOD.replacen(from, to, 1)).accepted().warnings;
        assert!(warnings.contains(&format!("Definitions/vnfd.yaml:{expected}")), "{expected}\n{warnings:#?}");
    }
}

#[test]
fn complaints_about_the_entry() {
    let meta = "TOSCA-Metadata/TOSCA.meta";
    for (text, expected) in [
        ("Entry-Definitions: gone.yaml\n", "1: entry-definitions: gone.yaml is not in the package"),
        (
            "CSAR-Version: 1.1\n",
            "1: Entry-Definitions is missing; expected the path of the VNFD in its first block",
        ),
        ("", "1: Entry-Definitions is missing; expected the path of the VNFD in its first block"),
        ("CSAR-Version: 9\n", "1: csar-version: expected version 1.0 or 1.1"),
        (
            "Entry-Definitions: Definitions/vnfd.yaml\nnonsense\n",
            "2: expected 'Key: value', found 'nonsense'",
        ),
        (
            "Entry-Definitions: Definitions/vnfd.yaml\n\nName: gone.img\n",
            "3: name: gone.img is not in the package",
        ),
        (
            "Entry-Definitions: Definitions/vnfd.yaml\n\nName: Scripts/driver.py\nAlgorithm: SHA-256\n",
            "4: algorithm: stands without a Hash",
        ),
    ] {
        assert_eq!(csar(GOOD).with(meta, text).rejected(), format!("{meta}:{expected}"), "{text}");
    }
    assert!(Csar::default().with("readme.txt", "hello").rejected().contains("found no .yaml file"));
}

#[test]
fn constraints_of_the_vnf_type_are_checked() {
    let types = fixture("layered_types.yaml");
    let vnfd = GOOD
        .replace("etsi_nfv_sol001_vnfd_types.yaml", "types.yaml")
        .replace("tosca.nodes.nfv.VNF", "company.provider.VNF");
    let found = csar(&vnfd).with("Definitions/types.yaml", &types).rejected();
    assert_eq!(
        found,
        "Definitions/vnfd.yaml:9: VNF: descriptor_id: expected one of 'b1bb0ce7-ebca-4fa7-95ed-4840d70a1177', found 'some-id'"
    );
    let circle = types.replace("derived_from: tosca.nodes.nfv.VNF", "derived_from: company.provider.VNF");
    let found = csar(&vnfd).with("Definitions/types.yaml", circle).rejected();
    assert!(found.contains("the type company.provider.VNF is derived from itself"), "{found}");
}

#[test]
fn text_that_is_no_text() {
    let found = csar(GOOD).with("Definitions/vnfd.yaml", b"a: 1\nb: \xff\n").rejected();
    assert_eq!(found, "Definitions/vnfd.yaml:2: is not UTF-8 from here on; save the file as UTF-8");
    let found = csar(GOOD).with("Definitions/vnfd.yaml", "a: 1\nb: [\n").rejected();
    assert!(found.starts_with("Definitions/vnfd.yaml:"), "{found}");
    let found = csar(GOOD).with("Definitions/vnfd.yaml", "- a\n").rejected();
    assert_eq!(
        found,
        "Definitions/vnfd.yaml:1: service template: expected a mapping with tosca_definitions_version, found a list"
    );
}

#[test]
fn text_that_is_too_much() {
    let long = format!("{GOOD}# {}\n", "x".repeat(2 << 20));
    let found = csar(&long).rejected();
    assert!(found.contains("at most 1048576 are taken for a file that is parsed"), "{found}");
    let scalar = GOOD.replace("A machine", &"x".repeat(100_000));
    let found = csar(&scalar).rejected();
    assert_eq!(
        found,
        "Definitions/vnfd.yaml:27: node: description: has 100000 bytes; at most 65536 are taken"
    );
    let deep = GOOD.replace("A machine", &("[".repeat(1000) + &"]".repeat(1000)));
    let found = csar(&deep).rejected();
    assert!(found.starts_with("Definitions/vnfd.yaml:27: "), "{found}");
    let nodes: Vec<_> =
        (0..1100).map(|index| format!("    n{index}: {{type: tosca.nodes.Root}}\n")).collect();
    let nodes = nodes.concat();
    let found = csar(&GOOD.replace("    node:\n", &format!("{nodes}    node:\n"))).rejected();
    assert!(found.contains("has more than the 1000 nodes that are taken"), "{found}");
}

#[test]
fn inputs_that_multiply_come_to_an_end() {
    let mut inputs =
        vec!["  inputs:\n    i0: {type: list, default: [a, a, a, a, a, a, a, a, a, a]}\n".to_owned()];
    for level in 1..9 {
        let below = level - 1;
        let many = vec![format!("{{get_input: i{below}}}"); 10].join(", ");
        inputs.push(format!("    i{level}: {{type: list, default: [{many}]}}\n"));
    }
    let inputs = inputs.concat();
    let vnfd = GOOD
        .replace("topology_template:\n", &format!("topology_template:\n{inputs}"))
        .replace("A machine", "{get_input: i8}");
    let found = csar(&vnfd).rejected();
    assert!(found.starts_with("Definitions/vnfd.yaml:"), "{found}");
}
