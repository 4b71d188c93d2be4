//! `guywire login`, `context` and `token`: who we are to managers, and who others are.

use std::{
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{
    cli::{
        Output,
        access::{ContextCommand, Kind, Login, Role, TokenCommand},
    },
    client::{
        Client, address,
        context::{Contexts, Found, Kept, is_loopback},
        resolve::{CREDENTIAL, Choice, choose, unknown},
    },
    output::{Table, details, list, text},
};

/// Tokens are short; anything longer is a file that was piped in by mistake.
const LONGEST: u64 = 4096;
const CREDENTIALS: &str = "/guywire/v1/credentials";

/// Keeps a context once its manager has accepted the token.
pub async fn login(login: &Login) -> anyhow::Result<ExitCode> {
    let url = address(&login.url)?;
    let default = || match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or("manager").to_owned(),
    };
    let name = login.name.clone().unwrap_or_else(default);
    if name.is_empty() || name.chars().any(char::is_control) {
        bail!("--name: a context needs a name of visible characters");
    }
    let ca = login
        .ca
        .as_ref()
        .map(|file| file.canonicalize().with_context(|| format!("{}: cannot be read", file.display())));
    let ca = ca.transpose()?;
    if url.scheme() == "http" && !is_loopback(&login.url) {
        eprintln!("warning: {url} is not encrypted: whoever sits in between reads the token; use https");
    }
    let token = tokio::task::spawn_blocking(read_token).await??;
    let client = Client::of(Found::given(login.url.clone(), ca.clone(), token.clone()))?;
    let who = client.get("/console/session", &[]).await.context("the manager does not let us in")?;
    Contexts::update(|all| {
        all.contexts.insert(name.clone(), Kept { url: login.url.clone(), token, ca });
        all.current = Some(name.clone());
        Ok(())
    })?;
    println!("{name}  logged in as {} ({})", text(&who["name"]), text(&who["role"]));
    Ok(ExitCode::SUCCESS)
}

/// A token from standard input; on a terminal it is asked for and not shown.
fn read_token() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    let mut token = String::new();
    if stdin.is_terminal() {
        eprint!("token: ");
        let _echo = Echo::off()?;
        stdin.read_line(&mut token).context("standard input cannot be read")?;
        eprintln!();
    } else {
        stdin.lock().take(LONGEST + 1).read_to_string(&mut token).context("standard input is no text")?;
    }
    let token = token.trim();
    if token.is_empty() {
        bail!("no token was given; pipe it in, as in `guywire login URL < FILE`");
    }
    if token.len() as u64 > LONGEST || token.chars().any(|c| !c.is_ascii_graphic()) {
        bail!("what was given is no token: a token is one line of at most {LONGEST} visible characters");
    }
    Ok(token.to_owned())
}

/// Keeps a terminal from showing what is typed, until it is dropped.
struct Echo(rustix::termios::Termios);

impl Echo {
    fn off() -> anyhow::Result<Self> {
        let before = rustix::termios::tcgetattr(std::io::stdin()).context("the terminal cannot be asked")?;
        let mut silent = before.clone();
        silent.local_modes.remove(rustix::termios::LocalModes::ECHO);
        rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, &silent)
            .context("the terminal cannot be told to show nothing")?;
        Ok(Self(before))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let back =
            rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, &self.0);
        if let Err(error) = back {
            eprintln!("the terminal shows nothing that is typed ({error}); run `stty echo`");
        }
    }
}

pub fn contexts(command: ContextCommand, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        ContextCommand::List => {
            let all = Contexts::load()?;
            let mut table = Table::new(["", "NAME", "URL"]);
            let mut items = Vec::new();
            for (name, kept) in &all.contexts {
                let current = all.current.as_ref() == Some(name);
                table.row([if current { "*" } else { "" }.to_owned(), name.clone(), kept.url.clone()]);
                items.push(json!({"name": name, "url": kept.url, "current": current}));
            }
            list(output, &items, &table, "no contexts; make one with `guywire login URL`")?;
        }
        ContextCommand::Use { name } => {
            let url = Contexts::update(|all| {
                let url = all.get(&name)?.1.url.clone();
                all.current = Some(name.clone());
                Ok(url)
            })?;
            println!("{name}  {url}");
        }
        ContextCommand::Rm { name } => {
            Contexts::update(|all| {
                all.get(&name)?;
                all.contexts.remove(&name);
                if all.current.as_ref() == Some(&name) {
                    all.current = None;
                }
                Ok(())
            })?;
            println!("{name}  forgotten");
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn tokens(command: TokenCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        TokenCommand::Create { name, role, kind } => {
            let role = match role {
                Role::Reader => "reader",
                Role::Operator => "operator",
                Role::Admin => "admin",
            };
            let kind = match kind {
                Kind::Token => "token",
                Kind::Client => "client",
                Kind::Certificate => "certificate",
            };
            let body = json!({"name": name, "kind": kind, "role": role});
            let made = client.post(CREDENTIALS, &body).await?.body;
            details(output, &made, &lines(&made))?;
            if output == Output::Table && made["secret"].is_string() {
                eprintln!("the secret is not kept and not shown again");
            }
        }
        TokenCommand::List => {
            let all = client.list(CREDENTIALS, &[], u32::MAX).await?;
            let mut table = Table::new(["ID", "NAME", "KIND", "ROLE", "CREATED"]);
            for one in &all {
                table.row(["id", "name", "kind", "role", "created"].map(|name| text(&one[name])));
            }
            list(output, &all, &table, "nobody is let in")?;
        }
        TokenCommand::Rm { names } => {
            let all = client.list(CREDENTIALS, &[], u32::MAX).await?;
            for name in names {
                let id = match choose(CREDENTIAL, &name, &all) {
                    Choice::One(id) => id,
                    Choice::Several(message) => bail!(message),
                    Choice::None => bail!(unknown(CREDENTIAL, &name, &all)),
                };
                client.delete(&format!("{CREDENTIALS}/{id}")).await?;
                println!("{id}  is let in no longer");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(one: &Value) -> Vec<(&'static str, String)> {
    ["id", "name", "kind", "role", "created", "secret"].map(|name| (name, text(&one[name]))).into()
}
