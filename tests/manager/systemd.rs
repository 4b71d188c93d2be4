//! The unit of deploy/, on a machine with systemd: a lab machine.

use std::path::Path;

use crate::harness::{Guywire, binary, until};

#[test]
fn the_unit_keeps_a_manager_running() {
    let guywire = Guywire::new();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/guywire-manager.service");
    let unit = unit.canonicalize().expect("the unit");
    // Debug information would be most of what is copied.
    let program = guywire.file("guywire", "");
    let stripped = std::process::Command::new("strip").arg("-o").arg(&program).arg(binary()).status();
    assert!(stripped.expect("binutils").success());
    let lab = format!(
        "name: {}\ntemplates:\n  - name: manager\n    content:\n      - source: {program}\n        path: /usr/local/bin/guywire\n      \
         - source: {}\n        path: /etc/systemd/system/guywire-manager.service\nmachines:\n  - name: m1\n    template: manager\n",
        guywire.name(),
        unit.display()
    );
    let file = guywire.file("lab.yaml", &lab);
    guywire.ok(&["lab", "up", "--file", &file]);
    let pid = || guywire.ssh("m1", "systemctl show --property MainPID --value guywire-manager");
    let ready = |what: &str| {
        until(what, || {
            let asked =
                guywire.run(&guywire.lab_args("ssh", &["m1", "guywire vim list --data /var/lib/guywire"]));
            (asked.code == Some(0)).then_some(())
        });
    };
    guywire.ssh(
        "m1",
        "chmod 755 /usr/local/bin/guywire && systemctl daemon-reload && systemctl start guywire-manager",
    );
    ready("it answers");
    let first = pid();
    let modes = guywire.ssh("m1", "stat -c %a /var/lib/guywire /var/lib/guywire/admin-token | tr '\\n' ' '");
    assert_eq!(modes.trim(), "700 600");

    guywire.ssh("m1", &format!("kill -9 {first}"));
    until("it is started again", || (![first.as_str(), "0"].contains(&pid().as_str())).then_some(()));
    ready("it answers again");

    guywire.ssh("m1", "systemctl restart guywire-manager");
    ready("it answers after a restart");
    guywire.ssh("m1", "systemctl stop guywire-manager");
    let state = guywire.ssh("m1", "systemctl show --property Result --value guywire-manager");
    assert_eq!(state, "success", "it stops when it is told to");
    let lines = guywire.ssh("m1", "journalctl --unit guywire-manager --output cat | grep stopping");
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert!(line["message"].as_str().is_some_and(|text| text.starts_with("stopping")), "{line}");
}
