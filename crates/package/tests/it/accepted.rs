//! What is understood.

use std::{collections::BTreeMap, fs, io::Cursor, io::Read};

use guywire_package::{
    Affinity, ArtifactKind, Package, Policy, Role, StorageKind, extract, open, pack, read, vnfd_zip,
};

use crate::builder::{Csar, fixture, on_disk, path};

#[test]
fn hello_is_what_the_golden_file_says() {
    let package = Csar::hello().accepted();
    assert_eq!(package.warnings, Vec::<String>::new());
    assert_eq!(package.vnfd_files, ["Definitions/hello.yaml", "Definitions/hello_types.yaml"]);
    let json = serde_json::to_string_pretty(&package.vnfd).expect("it can be written") + "\n";
    let golden = path("tests/fixtures/hello.json");
    if std::env::var_os("GUYWIRE_BLESS").is_some() {
        fs::write(&golden, &json).expect("the golden file can be written");
    }
    assert_eq!(json, fs::read_to_string(&golden).unwrap_or_default(), "bless with GUYWIRE_BLESS=1");
    let stored: guywire_package::Vnfd = serde_json::from_str(&json).expect("it can be read again");
    assert_eq!(stored, package.vnfd);
}

#[test]
fn hello_scales_by_one() {
    let package = Csar::hello().accepted();
    let flavour = package.vnfd.flavour("simple").expect("the flavour is there");
    for level in 0..=4 {
        let scale = BTreeMap::from([("hello_instance".to_owned(), level)]);
        assert_eq!(flavour.counts(&scale), BTreeMap::from([("hello".to_owned(), 1 + level)]));
    }
    assert_eq!(flavour.default_level().map(|level| level.counts["hello"]), Some(2));
    assert_eq!(flavour.level("large").map(|level| level.counts["hello"]), Some(4));
    assert_eq!(flavour.ext_cps[0].requirement.as_deref(), Some("virtual_link_external"));
    assert_eq!(flavour.lcm["heal_end"].file.as_deref(), Some("Scripts/hello.py"));
    assert_eq!(flavour.lcm["heal_end"].role, Role::Script);
    assert!(package.to_string().contains("default: 2 hello (default)"), "{package}");
}

#[test]
fn ha_kubernetes_as_the_specification_writes_it() {
    let package = Csar::of(&fixture("kubernetes.yaml")).accepted();
    let flavour = &package.vnfd.flavours[0];
    assert_eq!(flavour.id, "cluster_install");
    assert_eq!((flavour.vdus[0].id.as_str(), flavour.vdus[0].min, flavour.vdus[0].max), ("masterNode", 3, 3));
    assert_eq!((flavour.vdus[1].id.as_str(), flavour.vdus[1].min, flavour.vdus[1].max), ("workerNode", 1, 3));
    let point = &flavour.lcm["instantiate_end"];
    assert_eq!((point.name.as_str(), point.role), ("mgmt-drivers-kubernetes", Role::Kubernetes));
    assert_eq!(point.file, None, "our role stands in for the driver, so the package need not ship it");
    assert_eq!(flavour.lcm.len(), 1, "[] means that nothing is done");
}

#[test]
fn private_registry_as_the_specification_writes_it() {
    let csar =
        Csar::of(&fixture("registry.yaml")).with("Scripts/private_registry_mgmt.py", "raise SystemExit(1)\n");
    let package = csar.accepted();
    let flavour = &package.vnfd.flavours[0];
    let points: Vec<_> = flavour.lcm.iter().map(|(point, found)| (point.as_str(), found.role)).collect();
    assert_eq!(points, [("heal_end", Role::PrivateRegistry), ("instantiate_end", Role::PrivateRegistry)]);
    assert_eq!(flavour.lcm["heal_end"].file.as_deref(), Some("Scripts/private_registry_mgmt.py"));
    assert_eq!(flavour.cps[0].vdu, "PrivateRegistryVDU");
    assert_eq!(flavour.ext_cps[0].id, "CP1", "what is on no link of the VNF leads out of it");
}

/// A top file, a file for each flavour and a file of types, as Tacker's samples are laid out.
fn layered() -> Csar {
    let meta = "TOSCA-Meta-File-Version: 1.0\nCreated-by: Company\nCSAR-Version: 1.1\n\
        Entry-Definitions: Definitions/layered_top.vnfd.yaml\n\nName: Files/images/disk.img\n\
        Content-Type: application/x-iso9066-image\n";
    let mut csar = Csar::default().with("TOSCA-Metadata/TOSCA.meta", meta);
    for file in
        ["layered_top.vnfd.yaml", "layered_df_simple.yaml", "layered_df_complex.yaml", "layered_types.yaml"]
    {
        csar = csar.with(&format!("Definitions/{file}"), fixture(file));
    }
    csar.with("Definitions/etsi_nfv_sol001_vnfd_types.yaml", "this: [is not read")
        .with("Files/images/disk.img", "a disk")
        .with("Scripts/vnf.sh", "#!/bin/sh\n")
        .with("Licenses/LICENSE", "as you like")
}

fn check_layered(package: &Package) {
    let vnfd = &package.vnfd;
    assert_eq!((vnfd.id.as_str(), vnfd.version.as_str()), ("b1bb0ce7-ebca-4fa7-95ed-4840d70a1177", "1.0"));
    assert_eq!((vnfd.provider.as_str(), vnfd.product_name.as_str()), ("Company", "Sample VNF"));
    let mut ids: Vec<_> = vnfd.flavours.iter().map(|flavour| flavour.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["complex", "simple"]);

    let simple = vnfd.flavour("simple").expect("the flavour is there");
    let vdu = simple.vdu("VDU1").expect("the VDU is there");
    assert_eq!((vdu.min, vdu.max, vdu.initial), (1, 4, 1));
    assert_eq!((vdu.compute.cpus, vdu.compute.memory_bytes), (Some(2), Some(512_000_000)));
    assert_eq!(vdu.compute.vim_flavour.as_deref(), Some("m1.tiny"));
    assert_eq!(vdu.boot_data.as_deref(), Some("#cloud-config\nhostname: sample-1.0\n"));
    assert_eq!(vdu.storages, ["Volume"]);
    let image = vdu.image.as_ref().expect("it has an image");
    assert_eq!((image.id.as_str(), image.name.as_str()), ("sw_image", "disk"));
    assert_eq!(image.file.as_deref(), Some("Files/images/disk.img"));
    assert_eq!((simple.storages[0].kind, simple.storages[0].size_bytes), (StorageKind::Block, Some(1 << 30)));

    assert_eq!(simple.cps_of("VDU1").iter().map(|cp| cp.id.as_str()).collect::<Vec<_>>(), ["CP1", "CP2"]);
    assert_eq!(simple.cps_of("VDU1")[1].virtual_link.as_deref(), Some("internalVL1"));
    assert_eq!(simple.ext_cps.iter().map(|cp| cp.id.as_str()).collect::<Vec<_>>(), ["CP1"]);
    assert_eq!(simple.vls[0].l3[0].cidr.as_deref(), Some("33.33.0.0/24"));

    let aspect = simple.aspect("VDU1_scale").expect("the aspect is there");
    let steps: Vec<_> = aspect.steps.iter().map(|step| step["VDU1"]).collect();
    assert_eq!(steps, [1, 2], "steps may differ");
    assert_eq!(simple.default_level.as_deref(), Some("instantiation_level_1"));
    assert_eq!(simple.level("instantiation_level_2").map(|level| level.counts["VDU1"]), Some(4));
    let rule = &simple.placement[0];
    assert_eq!((rule.kind, rule.scope.as_str()), (Affinity::AntiAffinity, "nfvi_node"));
    assert_eq!(rule.vdus, ["VDU1"], "groups are replaced by their members");
    assert_eq!(simple.lcm["terminate_start"].file.as_deref(), Some("Scripts/vnf.sh"));
    assert!(vnfd.flavour("complex").is_some_and(|flavour| flavour.lcm.is_empty()));
}

#[test]
fn flavours_in_files_of_their_own() {
    let package = layered().accepted();
    check_layered(&package);
    assert_eq!(package.vnfd_files[0], "Definitions/layered_top.vnfd.yaml");
    assert_eq!(package.vnfd_files.len(), 5, "{:?}", package.vnfd_files);
    let kinds: Vec<_> =
        package.artifacts.iter().map(|artifact| (artifact.path.as_str(), artifact.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("Files/images/disk.img", ArtifactKind::SoftwareImage),
            ("Licenses/LICENSE", ArtifactKind::Licence),
            ("Scripts/vnf.sh", ArtifactKind::Script)
        ]
    );
    assert_eq!(package.artifacts[0].metadata["content_type"], "application/x-iso9066-image");
    assert_eq!(package.artifacts[0].algorithm, "sha-256");
    let warned = |text: &str| package.warnings.iter().any(|warning| warning.contains(text));
    assert!(warned("SecurityGroupRule"), "{:?}", package.warnings);
    assert!(warned("colour: unknown property"), "{:?}", package.warnings);
}

#[test]
fn flavours_beside_an_entry_that_does_not_import_them() {
    let top = fixture("layered_top.vnfd.yaml");
    let alone = top.lines().filter(|line| !line.contains("_df_")).collect::<Vec<_>>().join("\n");
    check_layered(&layered().with("Definitions/layered_top.vnfd.yaml", alone).accepted());
}

#[test]
fn a_type_that_says_it_all_needs_no_node() {
    let flavour = fixture("layered_df_complex.yaml");
    let node = flavour.find("    VNF:\n").expect("it has one");
    let rest = flavour.find("    VDU1:\n").expect("it has one");
    let alone = flavour[..node].to_owned() + &flavour[rest..];
    let package =
        Csar::of(&alone).with("Definitions/layered_types.yaml", fixture("layered_types.yaml")).accepted();
    assert_eq!(
        (package.vnfd.product_name.as_str(), package.vnfd.flavours[0].id.as_str()),
        ("Sample VNF", "complex")
    );
}

#[test]
fn a_single_file_at_the_root() {
    let csar = Csar::default().with("vnf.yaml", fixture("kubernetes.yaml"));
    let package = csar.accepted();
    assert_eq!(package.vnfd_files, ["vnf.yaml"]);
    let two = csar.with("other.yaml", "a: 1").rejected();
    assert_eq!(
        two,
        "TOSCA-Metadata/TOSCA.meta: is not in the package; expected it, or exactly one .yaml file at the root, found \
         other.yaml, vnf.yaml"
    );
}

#[test]
fn imports_in_every_notation_and_in_circles() {
    let vnfd = fixture("kubernetes.yaml");
    let imports = "imports:\n  - https://forge.etsi.org/rep/nfv/SOL001/raw/v2.6.1/etsi_nfv_sol001_vnfd_types.yaml\n  \
        - etsi_nfv_sol001_vnfd_2_6_1_types.yaml\n  - file: more/a.yaml\n  - b: more/b.yaml\n  - c: {file: Definitions/c.yaml}\n";
    let types = "tosca_definitions_version: tosca_simple_yaml_1_2\n";
    let csar = Csar::of(&vnfd.replace("imports:\n  - etsi_nfv_sol001_vnfd_types.yaml\n", imports))
        .with("Definitions/more/a.yaml", format!("{types}imports: [../vnfd.yaml, b.yaml]"))
        .with("Definitions/more/b.yaml", format!("{types}imports: a.yaml"))
        .with("Definitions/c.yaml", types);
    let files = csar.accepted().vnfd_files;
    let expected =
        ["Definitions/vnfd.yaml", "Definitions/more/a.yaml", "Definitions/more/b.yaml", "Definitions/c.yaml"];
    assert_eq!(files, expected);
}

#[test]
fn manifests_are_followed() {
    let listed = "metadata:\n  vnf_product_name: Sample\n  vnf_provider_id: Company\n\nSource: Files/images/disk.img\n\
        Algorithm: SHA256\nHash: HASH\n\nSource: Scripts/vnf.sh\n";
    let good = sha256(b"a disk");
    let package = layered().with("layered_top.vnfd.mf", listed.replace("HASH", &good)).accepted();
    let image = package.artifacts.iter().find(|artifact| artifact.path == "Files/images/disk.img");
    assert_eq!(image.map(|image| image.hash.as_str()), Some(good.as_str()));
    assert!(!package.artifacts.iter().any(|artifact| artifact.path == "layered_top.vnfd.mf"));

    let wrong = layered().with("layered_top.vnfd.mf", listed.replace("HASH", &"0".repeat(64))).rejected();
    let expected = format!("layered_top.vnfd.mf:7: Files/images/disk.img: its sha-256 is {good}, but 0000");
    assert!(wrong.starts_with(&expected), "{wrong}");
    let missing = layered().with("layered_top.vnfd.mf", "Source: Files/nothing\n").rejected();
    assert_eq!(
        missing,
        "layered_top.vnfd.mf:1: source: Files/nothing is listed here, but is not in the package"
    );
    let old = layered()
        .with("layered_top.vnfd.mf", "Source: Scripts/vnf.sh\nAlgorithm: MD5\nHash: 00\n")
        .rejected();
    assert_eq!(old, "layered_top.vnfd.mf:2: algorithm: 'MD5' is not taken; expected sha-256 or sha-512");
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let digits: Vec<_> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn trees_are_packed_the_same_each_time_and_come_out_as_they_went_in() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let tree = dir.path().join("tree");
    for (name, content) in &Csar::hello().files {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory can be made");
        fs::write(path, content).expect("a file can be written");
    }
    let (one, two) = (dir.path().join("one.csar"), dir.path().join("two.csar"));
    pack(&tree, &one).expect("it is packed");
    pack(&tree, &two).expect("it is packed");
    assert_eq!(fs::read(&one).expect("it is there"), fs::read(&two).expect("it is there"));
    read(&one, &Policy::default()).expect("it is right");

    let out = dir.path().join("out");
    extract(&one, &out, &Policy::default()).expect("it is unpacked");
    for (name, content) in &Csar::hello().files {
        assert_eq!(&fs::read(out.join(name)).expect("it is there"), content, "{name}");
    }
    let again = extract(&one, &out, &Policy::default()).expect_err("nothing is overwritten");
    assert!(again.reason.contains("cannot be written"), "{again}");

    std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).expect("a link can be made");
    let refused = pack(&tree, &two).expect_err("links are not packed");
    assert!(refused.to_string().contains("neither a file nor a directory"), "{refused}");
    assert_eq!(fs::read(&one).expect("it is there"), fs::read(&two).expect("it stays whole"));
}

#[test]
fn the_vnfd_alone_is_a_package_again() {
    let (_dir, file) = on_disk(&layered().zip());
    let package = read(&file, &Policy::default()).expect("it is right");
    let mut zipped = Cursor::new(Vec::new());
    vnfd_zip(&file, &package, &mut zipped).expect("it is written");
    let (_dir, vnfd) = on_disk(&zipped.into_inner());
    let archive = open(&vnfd).expect("it is an archive");
    let mut files: Vec<_> = archive.files().map(str::to_owned).collect();
    files.sort();
    let mut expected = package.vnfd_files.clone();
    expected.push("TOSCA-Metadata/TOSCA.meta".into());
    expected.sort();
    assert_eq!(files, expected);
}

#[test]
fn files_are_read_out_of_an_open_package() {
    let (_dir, file) = on_disk(&layered().zip());
    let mut archive = open(&file).expect("it is an archive");
    assert_eq!(archive.size("Files/images/disk.img"), Some(6));
    assert_eq!(archive.size("Files/images"), None);
    let mut text = String::new();
    let mut reader = archive.entry("Files/images/disk.img").expect("it is readable").expect("it is there");
    reader.read_to_string(&mut text).expect("it is readable");
    assert_eq!(text, "a disk");
    assert!(archive.entry("nothing").expect("that is no fault").is_none());
}
