//! Temp.
use std::sync::Arc;
use std::time::Instant;
use guywire_machines::*;
use guywire_model::*;
use guywire_plan::Fence;

struct Say;
impl Progress for Say { fn say(&self, line: &str) { println!("{line}"); } }

#[tokio::test(flavor = "multi_thread")]
async fn boots() {
    let data = std::env::var("GWDATA").unwrap();
    let n: usize = std::env::var("N").unwrap().parse().unwrap();
    let mut config = LabConfig::new(&data, LabName::new("lab").unwrap()).unwrap();
    config.templates = std::env::var("GUYWIRE_TEMPLATES").unwrap().into();
    config.starter = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/machine-init");
    let lab = Arc::new(Lab::open(config).unwrap());
    let key = std::fs::read_to_string("/var/tmp/gwrecipe/key.pub").unwrap();
    let login = Login { user: "root".into(), authorized_keys: vec![key.trim().into()], password: None };
    let spec = LabSpec::of_machines(lab.name().clone(), n, Egress::None, &login);
    let f = Fence(1);
    lab.ensure_template(f, &spec.templates[0], &Say).await.unwrap();
    let t = Instant::now();
    lab.ensure_networks(f, &spec.sites, spec.egress).await.unwrap();
    println!("net {:?}", t.elapsed());
    let mut set = tokio::task::JoinSet::new();
    for m in spec.machines.clone() {
        let lab = lab.clone();
        set.spawn(async move {
            let o = lab.create(f, &m).await.unwrap();
            println!("created {:?}", t.elapsed());
            lab.power(f, &m.name, Power::On).await.unwrap();
            println!("on {:?}", t.elapsed());
            loop {
                if let Ok(mut s) = tokio::net::TcpStream::connect((o.addresses.v4, 22)).await {
                    use tokio::io::AsyncReadExt;
                    let mut b = [0; 7];
                    if s.read_exact(&mut b).await.is_ok() { assert_eq!(&b, b"SSH-2.0"); break; }
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            println!("ssh {:?}", t.elapsed());
        });
    }
    while let Some(r) = set.join_next().await { r.unwrap(); }
    println!("all {:?}", t.elapsed());
    if std::env::var("KEEP").is_ok() { return; }
    for m in &spec.machines { let t = Instant::now(); lab.destroy(f, &m.name).await.unwrap(); println!("destroy {:?}", t.elapsed()); }
    lab.remove_networks(f).await.unwrap();
    lab.remove(f).await.unwrap();
}
