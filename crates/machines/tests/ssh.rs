//! SSH against a real `sshd` on loopback, one of its own for each test.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use guywire_machines::ssh::{
    Auth, Door, ExecRequest, FileMode, HostKey, Identity, KnownHosts, Pool, SshErrorKind, Stream,
};
use guywire_secrets::Secret;
use sha_crypt::PasswordHasher as _;

const PASSWORD: &str = "correct horse battery";

/// An `sshd` in a mount namespace where root has a password that only this test knows.
struct Sshd {
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Sshd {
    fn start() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests start sshd: run them as root");
        assert!(Path::new("/usr/sbin/sshd").exists(), "install openssh-server");
        fs::create_dir_all("/run/sshd").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let keygen =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path("host")]).status();
        assert!(keygen.unwrap().success());
        let identity = Identity::ensure(&dir.path().join("data")).unwrap();
        fs::write(path("authorized"), identity.public()).unwrap();
        let hash =
            sha_crypt::ShaCrypt::default().hash_password_with_salt(PASSWORD.as_bytes(), b"saltsaltsalt");
        fs::write(path("shadow"), format!("root:{}:19000:0:99999:7:::\nsshd:!:19000::::::\n", hash.unwrap()))
            .unwrap();
        fs::set_permissions(path("shadow"), fs::Permissions::from_mode(0o600)).unwrap();
        // A home and a shell without anybody's start-up files, which could run for long.
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let others: String =
            users.lines().filter(|line| !line.starts_with("root:")).flat_map(|line| [line, "\n"]).collect();
        fs::write(path("passwd"), format!("root:x:0:0:root:{}:/bin/sh\n{others}", dir.path().display()))
            .unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication yes\nMaxAuthTries 3\n",
            path("host"),
            path("authorized")
        );
        fs::write(path("config"), config).unwrap();
        let script = r#"mount --bind "$1/shadow" /etc/shadow && mount --bind "$1/passwd" /etc/passwd && exec /usr/sbin/sshd -D -e -f "$1/config""#;
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh", &dir.path().display().to_string()])
            .stderr(fs::File::create(path("log")).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { dir, child, port }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn pool(&self) -> Pool {
        Pool::new(KnownHosts::new(&self.data()))
    }

    fn door(&self) -> Door {
        Door {
            machine: "m1".into(),
            host: "127.0.0.1".into(),
            port: self.port,
            user: "root".into(),
            auth: Identity::ensure(&self.data()).unwrap().auth(),
            host_key: HostKey::PinOnFirstUse,
        }
    }

    async fn ready(&self) -> (Pool, Door) {
        let (pool, door) = (self.pool(), self.door());
        pool.wait_ready(&door, Duration::from_secs(10)).await.unwrap();
        (pool, door)
    }

    /// The server and all that it started.
    fn processes(&self) -> Vec<i32> {
        let mut all = vec![i32::try_from(self.child.id()).unwrap()];
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            next += 1;
        }
        all
    }

    fn signal(&self, signal: rustix::process::Signal) {
        for pid in self.processes() {
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        for pid in self.processes() {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            // Some end while we go through them.
            match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => panic!("cannot end a process of our own: {error}"),
            }
        }
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn commands_run_with_input_output_and_exit_code() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let request =
        ExecRequest::argv(["sh", "-c", "cat; echo \"$1\" >&2; exit 3", "sh", "it's $HOME"]).stdin("input");
    let output = pool.exec(&door, request).await.unwrap();
    assert_eq!((output.code, output.stdout_text().as_str()), (3, "input"));
    assert_eq!(output.stderr_text(), "it's $HOME");

    let script = "x='a b'\necho \"$x\"\nread -r nothing || echo no input\nexit 7";
    let output = pool.exec(&door, ExecRequest::script(script)).await.unwrap();
    assert_eq!((output.code, output.stdout_text().as_str()), (7, "a b\nno input\n"));

    let output = pool.exec(&door, ExecRequest::script("kill -9 $$")).await.unwrap();
    assert_eq!(output.code, 137);

    let error = pool.exec(&door, ExecRequest::argv(Vec::<String>::new())).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::Invalid);
}

#[tokio::test]
async fn a_script_is_on_no_command_line() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let output = pool.exec(&door, ExecRequest::script("x=hunter22\nps -eo args")).await.unwrap();
    assert!(!output.stdout_text().contains("hunter22") && output.stdout_text().contains("ps -eo args"));
}

#[tokio::test]
async fn a_password_lets_in_and_a_wrong_one_does_not() {
    let sshd = Sshd::start();
    sshd.ready().await;
    let with = |password: &str| Door { auth: Auth::Password(Secret::new(password)), ..sshd.door() };
    let output = sshd.pool().exec(&with(PASSWORD), ExecRequest::argv(["id", "-u"])).await.unwrap();
    assert_eq!(output.stdout_text(), "0\n");
    let error = sshd.pool().exec(&with("wrong password"), ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::AuthFailed);
    let message = error.to_string();
    assert!(message.contains("m1 (127.0.0.1:") && message.contains("secrets store"), "{message}");
    assert!(!message.contains("wrong password") && !format!("{error:?}").contains("wrong password"));
}

#[tokio::test]
async fn a_stranger_s_key_is_not_let_in() {
    let sshd = Sshd::start();
    sshd.ready().await;
    let stranger = Identity::ensure(&sshd.dir.path().join("stranger")).unwrap();
    let door = Door { auth: stranger.auth(), ..sshd.door() };
    let error = sshd.pool().exec(&door, ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::AuthFailed);
    assert!(error.to_string().contains("authorized_keys"), "{error}");
}

#[tokio::test]
async fn another_host_key_is_refused_with_both_fingerprints() {
    let sshd = Sshd::start();
    let (_, door) = sshd.ready().await;
    let pins = sshd.data().join("known_hosts");
    let other = Identity::ensure(&sshd.dir.path().join("other")).unwrap();
    let pinned = fs::read_to_string(&pins).unwrap();
    let machine = pinned.split(' ').next().unwrap();
    fs::write(
        &pins,
        format!("# a person's comment\n{machine} {}\n", other.public().trim_end_matches(" guywire")),
    )
    .unwrap();
    let error = sshd.pool().exec(&door, ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::HostKeyMismatch, "{error}");
    let message = error.to_string();
    assert!(message.contains(&format!("{}:2", pins.display())), "{message}");
    assert_eq!(message.matches("SHA256:").count(), 2, "{message}");

    let known = fs::read_to_string(sshd.dir.path().join("host.pub")).unwrap();
    let given = Door { host_key: HostKey::Known(known), ..door.clone() };
    sshd.pool().exec(&given, ExecRequest::argv(["id"])).await.unwrap();
    let wrong = Door { host_key: HostKey::Known(other.public().into()), ..door };
    let error = sshd.pool().exec(&wrong, ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::HostKeyMismatch);
}

#[tokio::test]
async fn an_open_key_file_is_refused_before_anything_is_sent() {
    let sshd = Sshd::start();
    let (_, door) = sshd.ready().await;
    let Auth::KeyFile(path) = &door.auth else { panic!("a key file") };
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = sshd.pool().exec(&door, ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::Identity);
    assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
}

#[tokio::test]
async fn unreachable_addresses_fail_soon_and_say_so() {
    let sshd = Sshd::start();
    let pool = sshd.pool();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = Instant::now();
    let refused = Door { port: closed, ..sshd.door() };
    let error = pool.exec(&refused, ExecRequest::argv(["id"])).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::Unreachable);
    assert!(error.retry() && error.to_string().contains("no SSH server at this port"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());

    // A listener that never accepts: its queue takes the connection, and nobody speaks.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = Door { port: silent.local_addr().unwrap().port(), ..sshd.door() };
    let start = Instant::now();
    let error = pool.wait_ready(&door, Duration::from_secs(1)).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(error.to_string().contains("not ready after"), "{error}");
}

#[tokio::test]
async fn big_output_is_cut_and_the_command_still_ends() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let request = ExecRequest::argv(["sh", "-c", "head -c 20000000 /dev/zero; exit 4"]).max_output(1000);
    let output = pool.exec(&door, request).await.unwrap();
    assert_eq!((output.code, output.stdout.len(), output.truncated), (4, 1000, true));
    let mut seen = 0;
    let request = ExecRequest::argv(["head", "-c", "3000000", "/dev/zero"]);
    pool.exec_streaming(&door, request, &mut |stream, chunk| {
        assert_eq!(stream, Stream::Out);
        seen += chunk.len();
    })
    .await
    .unwrap();
    assert_eq!(seen, 3_000_000);
}

#[tokio::test]
async fn files_go_there_whole_and_come_back() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let dir = sshd.dir.path().join("pushed/deep");
    let path = dir.join("file").display().to_string();
    let content: Vec<u8> = (0..50_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    pool.push_file(&door, &path, "old", &FileMode::root(0o644)).await.unwrap();
    pool.push_file(&door, &path, content.clone(), &FileMode::root(0o640)).await.unwrap();
    assert!(fs::read(&path).unwrap() == content, "50 MB arrive as they were");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file stays");
    assert_eq!(pool.fetch_file(&door, &path, 50_000_000).await.unwrap().len(), 50_000_000);
    let error = pool.fetch_file(&door, &path, 10).await.unwrap_err();
    assert!(error.to_string().contains("more than the 10 bytes"), "{error}");
    let error = pool.fetch_file(&door, "/nowhere", 10).await.unwrap_err();
    assert!(error.to_string().contains("cannot read /nowhere"), "{error}");
    for bad in ["relative", "/a/../b", "/dir/", ""] {
        let error = pool.push_file(&door, bad, "x", &FileMode::root(0o600)).await.unwrap_err();
        assert_eq!(error.kind, SshErrorKind::Invalid, "{bad}");
    }
    let nobody = FileMode { mode: 0o600, owner: "no-such-user".into() };
    let error = pool.push_file(&door, &path, "x", &nobody).await.unwrap_err();
    assert_eq!(error.kind, SshErrorKind::Remote, "{error}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing half made stays");
}

#[tokio::test]
async fn one_connection_serves_many_callers_at_once() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let all = (0..40).map(|n| {
        let (pool, door) = (pool.clone(), door.clone());
        tokio::spawn(async move {
            let output = pool.exec(&door, ExecRequest::script(format!("sleep 0.1; echo {n}"))).await.unwrap();
            assert_eq!(output.stdout_text(), format!("{n}\n"));
        })
    });
    for task in all.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let log = fs::read_to_string(sshd.dir.path().join("log")).unwrap();
    assert_eq!(log.matches("Accepted publickey").count(), 1, "{log}");
}

#[tokio::test]
async fn a_cut_connection_is_reported_and_the_next_caller_gets_a_new_one() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    let listener = i32::try_from(sshd.child.id()).unwrap();
    let running = tokio::spawn({
        let (pool, door) = (pool.clone(), door.clone());
        async move { pool.exec(&door, ExecRequest::argv(["sleep", "30"])).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let children = fs::read_to_string(format!("/proc/{listener}/task/{listener}/children")).unwrap();
    for pid in children.split_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind, SshErrorKind::Dropped);
    assert!(error.retry());
    assert_eq!(
        pool.exec(&door, ExecRequest::argv(["echo", "again"])).await.unwrap().stdout_text(),
        "again\n"
    );
}

#[tokio::test]
async fn a_hung_machine_is_noticed_and_delays_nobody_else() {
    let (hung, well) = (Sshd::start(), Sshd::start());
    let (_, hung_door) = hung.ready().await;
    let well_door = Door { machine: "m2".into(), ..well.door() };
    let pool = hung.pool();
    pool.wait_ready(&hung_door, Duration::from_secs(5)).await.unwrap();
    pool.wait_ready(&well_door, Duration::from_secs(5)).await.unwrap();
    hung.signal(rustix::process::Signal::STOP);
    let start = Instant::now();
    let waiting = tokio::spawn({
        let (pool, door) = (pool.clone(), hung_door.clone());
        async move { pool.exec(&door, ExecRequest::argv(["true"])).await }
    });
    for _ in 0..10 {
        pool.exec(&well_door, ExecRequest::argv(["true"])).await.unwrap();
    }
    assert!(!waiting.is_finished(), "the others were done long before: {:?}", start.elapsed());
    // A stopped server still gets its connections from the kernel, so the second try hangs in the
    // handshake: all of it is bounded.
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.retry(), "{error}");
    assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
    hung.signal(rustix::process::Signal::CONT);
    pool.exec(&hung_door, ExecRequest::argv(["true"])).await.unwrap();
}

#[tokio::test]
async fn a_command_past_its_time_is_given_up_and_holds_up_nobody() {
    let sshd = Sshd::start();
    let (pool, door) = sshd.ready().await;
    for _ in 0..15 {
        let request = ExecRequest::argv(["sleep", "100"]).timeout(Duration::from_millis(60));
        assert_eq!(pool.exec(&door, request).await.unwrap_err().kind, SshErrorKind::Timeout);
    }
    // They still run, and are more than sshd's `MaxSessions` of 10 on one connection.
    pool.exec(&door, ExecRequest::argv(["true"])).await.unwrap();
}
