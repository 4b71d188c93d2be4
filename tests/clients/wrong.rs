//! Wrong input on the command line: what was wrong, where, and what to do; and nothing half made.

use std::{net::TcpListener, process::Command, time::Instant};

use crate::{
    harness::{Running, binary},
    manager::Manager,
};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOBODY: &str = "01a1e1c1-ea6e-715c-892b-c12e3724f0f8";

#[test]
fn a_mistake_is_named_with_what_to_do() {
    let manager = Manager::start();
    let file = |name: &str, text: &str| manager.file(name, Some(text)).display().to_string();
    let broken = file("broken.json", "{\"a\": 1,\n \"b\": hunter2}");
    let array = file("array.json", "[]");
    let huge = file("huge.json", &format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20)));
    let no_zip = file("no.csar", "this is no archive");
    let dir = manager.guywire.data().display().to_string();
    manager.ok(&["token", "create", "twin-a"]);
    let cases: &[(&[&str], i32, &[&str])] = &[
        (
            &["vnf", "show", "nope"],
            FAILED,
            &["no VNF instance's id begins or ends with \"nope\"", "no VNF instances at all"],
        ),
        (&["vnf", "show", NOBODY], FAILED, &[NOBODY, "404"]),
        (&["vnf", "show", ""], FAILED, &["no VNF instance"]),
        (&["vnf", "show", "it's"], FAILED, &["\"it's\""]),
        (&["vnf", "create", "nope"], FAILED, &["no package's id", "no packages at all"]),
        (&["vim", "show", "nope"], FAILED, &["there are ", "(own)", "guywire vim list"]),
        (&["vim", "register", "x", "--type", "cloud"], FAILED, &["cloud", "lab, hosts", "400"]),
        (&["vim", "register", "own", "--type", "lab", "--interface", "lab=x"], FAILED, &["own", "409"]),
        (
            &["vim", "register", "k", "--type", "kubernetes", "--access", "bearer_token=hunter2"],
            FAILED,
            &["bearer_token=@FILE"],
        ),
        (&["vim", "set", "own"], FAILED, &["nothing is to be changed", "--name"]),
        (&["op", "show", "abcd"], FAILED, &["no operation's id", "no operations at all"]),
        (&["op", "cancel", NOBODY], FAILED, &[NOBODY, "404"]),
        (&["op", "watch", NOBODY], FAILED, &[NOBODY, "404"]),
        (&["vnf", "list", "--filter", "(eq,state"], FAILED, &["filter", "400"]),
        (&["vnf", "list", "--filter", "(like,id,x)"], FAILED, &["like", "400"]),
        (&["vnf", "instantiate", "x", "--params", &broken], FAILED, &["broken.json:2:7: this is no JSON"]),
        (
            &["vnf", "instantiate", "x", "--params", &array],
            FAILED,
            &["array.json: a JSON object is expected", "a list"],
        ),
        (
            &["vnf", "instantiate", "x", "--params", &huge],
            FAILED,
            &["huge.json: its ", "bytes are more than"],
        ),
        (&["vnf", "instantiate", "x", "--params", "/nonexistent"], FAILED, &["/nonexistent: cannot be read"]),
        (&["vnf", "instantiate", "x", "--param", "hunter2"], FAILED, &["--param", "KEY=VALUE"]),
        (
            &["vnf", "instantiate", "x", "--param", "a=@/nonexistent"],
            FAILED,
            &["--param a=@FILE", "/nonexistent"],
        ),
        (&["vnf", "scale", "x", "--aspect", "a"], USAGE, &["--out", "--in"]),
        (&["vnf", "scale", "x", "--aspect", "a", "--out", "1", "--in", "1"], USAGE, &["cannot be used with"]),
        (&["vnf", "scale", "x", "--aspect", "a", "--out", "0"], USAGE, &["0 is not in"]),
        (&["vnf", "heal", "x"], USAGE, &["--vnfc", "--all"]),
        (&["vnf", "operate", "x", "reboot"], USAGE, &["start, stop"]),
        (&["vnf", "operate", "x", "start", "--force"], FAILED, &["for stop"]),
        (&["vnf", "terminate", "x", "--force", "--grace", "3"], USAGE, &["cannot be used with"]),
        (&["vnf", "modify", "x"], FAILED, &["nothing is to be changed"]),
        (&["package", "upload", "/nonexistent.csar"], FAILED, &["/nonexistent.csar: cannot be opened"]),
        (&["package", "upload", &dir], FAILED, &["no file", "guywire package pack"]),
        (&["package", "upload", &no_zip, "--wait"], FAILED, &["no.csar: is refused", "guywire package show"]),
        (&["package", "check", &no_zip], FAILED, &["no.csar"]),
        (&["package", "pack", "/nonexistent"], FAILED, &["/nonexistent"]),
        (&["package", "create", "--user-data", "hunter2"], FAILED, &["--user-data", "KEY=VALUE"]),
        (&["subscription", "create", "ftp://host"], FAILED, &["callbackUri", "400"]),
        (&["subscription", "create", "http://127.0.0.1:1/x"], FAILED, &["callbackUri", "204", "422"]),
        (&["subscription", "show", "nope"], FAILED, &["no subscription"]),
        (&["alarm", "ack", "nope"], FAILED, &["no alarm"]),
        (&["token", "create", "twin-a"], FAILED, &["twin-a", "409"]),
        (&["token", "create", "x", "--role", "king"], USAGE, &["reader, operator, admin"]),
        (&["token", "rm", "nope"], FAILED, &["no credential", "(admin)"]),
        (&["context", "use", "nope"], FAILED, &["no context is called \"nope\"", "guywire login"]),
        (&["vnf", "list", "--context", "nope", "--url", "http://x"], USAGE, &["cannot be used with"]),
    ];
    for (args, code, words) in cases {
        let begin = Instant::now();
        let output = manager.fails(args, *code, words);
        assert!(begin.elapsed().as_secs() < 10, "{args:?} takes long");
        assert!(output.stderr.starts_with("error: "), "{args:?}: {output:?}");
        assert!(!output.stderr.contains("hunter2"), "{args:?} repeats a value: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}: an error is no answer");
    }
    assert_eq!(manager.json(&["vnf", "list"]).as_array().map(Vec::len), Some(0));
    // The refused package is there with its reason; the others left nothing.
    let packages = manager.json(&["package", "list"]);
    assert_eq!(packages.as_array().map(Vec::len), Some(1), "{packages}");
    manager.ok(&["package", "delete", packages[0]["id"].as_str().expect("an id")]);
}

#[test]
fn a_manager_that_is_not_there_is_told_how_to_get_one() {
    let dir = tempfile::tempdir().expect("a directory");
    // A port that nobody listens on: it was just given back.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let refused = format!("http://127.0.0.1:{free}");
    let cases: &[(&str, &[&str])] = &[
        (&refused, &[&refused, "refused", "guywire manager serve", "GUYWIRE_URL"]),
        ("http://nonexistent.invalid", &["nonexistent.invalid", "see whether it runs there"]),
        ("localhost:9890", &["localhost:9890", "write it as http://127.0.0.1:9890"]),
        ("ftp://host", &["no address of a manager"]),
        ("http://root:hunter2@host", &["guywire login"]),
        ("", &["write it as"]),
    ];
    for (url, words) in cases {
        let mut command = Command::new(binary());
        command.args(["vnf", "list", "--url", url]).env("GUYWIRE_DATA", dir.path());
        command.env("XDG_CONFIG_HOME", dir.path()).env_remove("GUYWIRE_TOKEN").env_remove("GUYWIRE_URL");
        let output = Running::spawn(&mut command).wait();
        assert_eq!(output.code, Some(FAILED), "{url}: {output:?}");
        for word in *words {
            assert!(output.stderr.contains(word), "{url} should say {word:?}: {}", output.stderr);
        }
        assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);
    }
}

#[test]
fn something_else_on_the_port_is_no_manager() {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            // Whatever is asked, the answer is the same.
            if stream.read(&mut request).is_ok() {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>";
                stream.write_all(answer.as_bytes()).expect("it is read");
            }
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(binary());
    command
        .args(["vnf", "list", "--url", &url])
        .env("GUYWIRE_DATA", dir.path())
        .env("XDG_CONFIG_HOME", dir.path());
    command.env_remove("GUYWIRE_TOKEN").env_remove("GUYWIRE_URL");
    let output = Running::spawn(&mut command).wait();
    assert_eq!(output.code, Some(FAILED));
    assert!(output.stderr.contains("does not answer with JSON; is that a manager?"), "{output:?}");
}
