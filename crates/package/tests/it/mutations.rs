//! Right packages, bent at random: whatever comes of it is taken or refused, and costs no more than a right one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use guywire_package::{Policy, Signature, extract, open, read};

use crate::{
    builder::{Csar, fixture, on_disk},
    hostile::peak_memory,
};

/// A small generator: the same seed bends the same way on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("it is below a usize")
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const WORDS: &[&str] = &[
    "",
    "~",
    "[]",
    "{}",
    "-1",
    "99999999999999999999",
    "1 GB",
    "{get_input: x}",
    "{get_property: [SELF, name]}",
    "{get_attribute: [SELF, x]}",
    "{concat: [a, {get_input: y}]}",
    "*a",
    "&a [*a]",
    "&a {a: &b [1]}",
    "\"\\0\"",
    "'",
    "- a",
    "? b",
    "../../x",
    "/etc/passwd",
    "\u{202e}",
    "<<: *a",
    "!!binary AAAA",
    "%YAML 1.1",
    "---",
    "...",
    "|",
    ">-",
    "\t",
    "tosca.nodes.nfv.VNF",
    "tosca.nodes.nfv.Vdu.Compute",
    "tosca.nodes.nfv.Vdu.OsContainerDeployableUnit",
    "true",
    "0x",
    "1e999",
];

fn corpus() -> Vec<Csar> {
    let layered = |csar: Csar, file: &str| csar.with(&format!("Definitions/{file}"), fixture(file));
    let mut sample = Csar::default()
        .with(
            "TOSCA-Metadata/TOSCA.meta",
            "Entry-Definitions: Definitions/layered_top.vnfd.yaml\nETSI-Entry-Licenses: L\n",
        )
        .with("Files/images/disk.img", "a disk")
        .with("Scripts/vnf.sh", "#!/bin/sh\n");
    for file in
        ["layered_top.vnfd.yaml", "layered_df_simple.yaml", "layered_df_complex.yaml", "layered_types.yaml"]
    {
        sample = layered(sample, file);
    }
    let signed = Csar::of(&fixture("kubernetes.yaml"))
        .with("TOSCA-Metadata/TOSCA.meta", fixture("signed/TOSCA.meta"))
        .with("Files/vendor.cert", fixture("signed/vendor.cert"))
        .with("vnfd.mf", fixture("signed/pss.mf"));
    let envelope =
        Csar::default().with("a.csar", Csar::hello().zip()).with("a.cms", fixture("signed/pss.mf"));
    vec![Csar::hello(), sample, signed, envelope]
}

/// Bends lines of one file, or a file as a whole.
fn bend_structure(csar: &mut Csar, random: &mut Random) {
    let index = random.below(csar.files.len());
    match random.below(10) {
        0 => drop(csar.files.remove(index)),
        1 => {
            random
                .pick(&["a.yaml", "x/y", "TOSCA-Metadata/x", "Definitions/z.yaml"])
                .clone_into(&mut csar.files[index].0);
        }
        2 => csar.files[index].1.clear(),
        _ => {
            let text = String::from_utf8_lossy(&csar.files[index].1).into_owned();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for _ in 0..=random.below(3) {
                bend_lines(&mut lines, random);
            }
            csar.files[index].1 = (lines.join("\n") + "\n").into_bytes();
        }
    }
}

fn bend_lines(lines: &mut Vec<String>, random: &mut Random) {
    if lines.is_empty() {
        lines.push(random.pick(WORDS).to_owned());
    }
    let at = random.below(lines.len());
    let other = random.below(lines.len());
    match random.below(8) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[other].clone()),
        2 => lines.swap(at, other),
        3 => lines[at] = format!("  {}", lines[at]),
        4 => lines[at] = lines[at].trim_start().to_owned(),
        5 => {
            let key = lines[at].split_once(':').map_or("x", |(key, _)| key);
            lines[at] = format!("{key}: {}", random.pick(WORDS));
        }
        6 => lines[at] += random.pick(WORDS),
        _ => {
            let indent = lines[at].len() - lines[at].trim_start().len();
            lines.insert(at, " ".repeat(indent) + random.pick(WORDS) + ": " + random.pick(WORDS));
        }
    }
}

fn bend_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        // The directory at the end is where an archive is most easily bent.
        let at = if random.below(2) == 0 { at } else { bytes.len() - 1 - random.below(bytes.len().min(400)) };
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[&0, &0xff, &0x7f, &0x80]),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, 0),
            4 => drop(bytes.remove(at)),
            _ => {
                let end = (at + random.below(64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
}

/// Bends packages and reads them; says how many were taken.
fn run(count: u32, seed: u64) -> u32 {
    let corpus = corpus();
    let trust = fixture("signed/authority.pem").into_bytes();
    let mut random = Random(seed);
    let mut taken = 0;
    for case in 0..count {
        let mut csar = corpus[random.below(corpus.len())].clone();
        let structure = random.below(3) > 0;
        if structure {
            bend_structure(&mut csar, &mut random);
        }
        let mut names: Vec<_> = csar.files.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        // The writer refuses names that stand twice; those are made by hand elsewhere.
        let mut bytes = if names.len() == csar.files.len() { csar.zip() } else { Csar::hello().zip() };
        if !structure || random.below(4) == 0 {
            bend_bytes(&mut bytes, &mut random);
        }
        let signature =
            random.pick(&[&Signature::IfPresent, &Signature::Ignore, &Signature::Required]).to_owned();
        let policy = Policy { signature, trust: vec![trust.clone()], ..Policy::default() };
        let (dir, file) = on_disk(&bytes);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let verdict = read(&file, &policy);
            let unpacked = extract(&file, &dir.path().join("out"), &policy);
            if let Ok(package) = &verdict {
                assert!(unpacked.is_ok() && open(&file).is_ok(), "taken, but not unpacked: {unpacked:?}");
                assert!(!package.vnfd.flavours.is_empty() && !package.vnfd.flavours[0].vdus.is_empty());
            }
            if let Err(rejection) = &verdict {
                let text = rejection.to_string();
                assert!(!rejection.reason.is_empty() && text.len() < 2000, "{text}");
                assert!(
                    !text.contains(dir.path().to_str().expect("it is text")),
                    "a path of this machine: {text}"
                );
            }
            verdict.is_ok()
        }));
        let elapsed = started.elapsed();
        assert!(elapsed < Duration::from_secs(10), "case {case} of seed {seed} took {elapsed:?}");
        let Ok(was_taken) = outcome else {
            let kept = std::env::temp_dir().join(format!("guywire-mutation-{seed}-{case}.csar"));
            std::fs::write(&kept, &bytes).expect("it can be kept");
            panic!("case {case} of seed {seed} failed; the package is kept as {}", kept.display());
        };
        taken += u32::from(was_taken);
    }
    taken
}

#[test]
fn bent_packages_are_taken_or_refused() {
    let taken = run(250, 1);
    assert!((1..250).contains(&taken), "{taken} of 250 were taken: the bending does nothing, or too much");
}

#[test]
#[ignore = "takes minutes; cargo test --release -p guywire-package -- --ignored"]
fn ten_thousand_bent_packages() {
    run(200, 2);
    let before = peak_memory();
    let taken = run(10_000, 3);
    let grown = peak_memory() - before;
    println!("10000 bent packages, {taken} taken, peak memory grew by {grown} KiB");
    assert!(grown < 64 << 10, "{grown} KiB");
}
