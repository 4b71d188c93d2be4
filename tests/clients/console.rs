//! The console in a real browser: logged in to with keys alone, live, on a desk and on a phone, and never fooled.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    browser::{Browser, Screen},
    manager::Manager,
};

const DESK: Screen = Screen { width: 1280, height: 800, dark: false };
const NIGHT: Screen = Screen { width: 1280, height: 800, dark: true };
const PHONE: Screen = Screen { width: 360, height: 740, dark: false };
/// A name that would run if it were taken for anything but text.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

/// Where pictures are kept for people to look at.
fn artifact(name: &str) -> PathBuf {
    let dir = std::env::var_os("GUYWIRE_TEST_ARTIFACTS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/artifacts"), PathBuf::from);
    std::fs::create_dir_all(&dir).expect("a directory for pictures");
    dir.join(format!("console-{name}.png"))
}

fn log_in(browser: &mut Browser, manager: &Manager) {
    browser.go(&manager.url);
    browser.until("the login form", "document.activeElement?.id === 'token'");
    browser.type_text("wrong");
    browser.press("Enter", 13);
    browser.until("a wrong token is refused", "!document.querySelector('.login .problem').hidden");
    browser.events.retain(|event| event["method"] != "Log.entryAdded");
    browser.evaluate("document.getElementById('token').select()");
    browser.type_text(&manager.token);
    browser.press("Enter", 13);
    browser.until("the first page", "document.querySelector('main').dataset.ready === 'instances'");
    browser.until("it is live", "document.getElementById('live').classList.contains('on')");
}

fn show(browser: &mut Browser, page: &str, ready: &str) {
    browser.evaluate(&format!("location.hash = '#/{page}'"));
    browser.until(page, ready);
}

#[test]
fn an_operation_is_followed_live_on_a_desk_and_on_a_phone() {
    let manager = Manager::start();
    let package = manager.upload_hello();
    let vnf = manager.json(&["vnf", "create", "Hello", "--name", "greeter"])["id"].clone();
    let vnf = vnf.as_str().expect("an id");
    manager.ok(&["vnf", "create", "Hello", "--name", HOSTILE]);
    let mut browser = Browser::start();
    browser.screen(DESK);
    log_in(&mut browser, &manager);
    browser.until("both instances", "document.querySelectorAll('tbody tr').length === 2");

    // The page hears of the operation without being asked to look.
    let operation = manager.json(&["vnf", "instantiate", "greeter"])["operation"].clone();
    let operation = operation.as_str().expect("an id");
    browser.until("it is under way", "document.querySelector('main').innerText.includes('under way')");
    show(&mut browser, &format!("operations/{operation}"), "document.querySelector('.tasks li')");
    browser.until("a task runs", "document.querySelector('.tasks li.running')");
    browser.screenshot(&artifact("operation-running"));
    browser.until("it is done", "document.querySelector('h1 .badge')?.textContent === 'COMPLETED'");
    browser.until("all is ticked", "!document.querySelector('.tasks li:not(.succeeded)')");
    assert!(browser.evaluate("document.querySelectorAll('.tasks .took').length").as_u64() > Some(3));

    for (name, screen) in [("light", DESK), ("dark", NIGHT), ("phone", PHONE)] {
        browser.screen(screen);
        show(&mut browser, &format!("operations/{operation}"), "document.querySelector('.tasks li')");
        browser.screenshot(&artifact(&format!("operation-{name}")));
        fits(&mut browser, screen, "operation");
        show(
            &mut browser,
            &format!("instances/{vnf}"),
            "document.querySelector('h1')?.textContent.includes('greeter')",
        );
        browser.until("its addresses", "document.querySelector('main').innerText.includes('10.')");
        browser.screenshot(&artifact(&format!("instance-{name}")));
        fits(&mut browser, screen, "instance");
        for page in ["instances", "operations", "packages", "alarms", "subscriptions"] {
            show(&mut browser, page, &format!("document.querySelector('main').dataset.ready === '{page}'"));
            browser.screenshot(&artifact(&format!("{page}-{name}")));
            fits(&mut browser, screen, page);
        }
    }
    let light = browser.evaluate("getComputedStyle(document.body.parentElement).backgroundColor");
    browser.screen(NIGHT);
    let dark = browser.evaluate("getComputedStyle(document.body.parentElement).backgroundColor");
    assert_ne!(light, dark, "night looks like day");
    show(
        &mut browser,
        &format!("packages/{package}"),
        "document.querySelector('main').innerText.includes('Scripts/hello.py')",
    );

    assert_ne!(browser.evaluate("document.title"), "owned");
    show(&mut browser, "instances", "document.querySelectorAll('tbody tr').length === 2");
    assert_eq!(browser.evaluate("document.querySelectorAll('main img, main script').length"), 0);
    let named = browser.evaluate("document.querySelector('main').innerText");
    assert!(named.as_str().is_some_and(|text| text.contains(HOSTILE)), "the name is shown as it is: {named}");
    assert_eq!(browser.complaints(), [""; 0]);
    let elsewhere: Vec<String> = browser
        .requests()
        .into_iter()
        .filter(|url| !url.starts_with(&manager.url) && !url.starts_with("about:"))
        .collect();
    assert_eq!(elsewhere, [""; 0], "nothing is asked from elsewhere");
    manager.ok(&["vnf", "terminate", "greeter", "--force", "--wait"]);
}

#[test]
fn keys_alone_are_enough_and_a_session_ends() {
    let manager = Manager::start();
    let mut browser = Browser::start();
    browser.screen(DESK);
    log_in(&mut browser, &manager);
    let mut reached = Vec::new();
    for _ in 0..12 {
        browser.press("Tab", 9);
        let text = browser.evaluate("document.activeElement.textContent.trim()");
        reached.push(text.as_str().unwrap_or_default().to_owned());
    }
    for name in
        ["Skip to content", "Instances", "Operations", "Packages", "Alarms", "Subscriptions", "Log out"]
    {
        assert!(reached.contains(&name.to_owned()), "{name} cannot be reached with Tab: {reached:?}");
    }
    // The cookie is out of reach of scripts, and no token is kept anywhere a script could read it.
    assert_eq!(browser.evaluate("document.cookie"), "");
    assert_eq!(browser.evaluate("localStorage.length + sessionStorage.length"), 0);
    browser.evaluate("document.getElementById('logout').focus()");
    browser.press("Enter", 13);
    browser.until("logged out", "document.getElementById('token')");
    let status = browser
        .evaluate("fetch('/vnflcm/v2/vnf_instances', {headers: {Version: '2.0.0'}}).then((r) => r.status)");
    assert_eq!(status, 401);
}

#[test]
fn the_console_notices_when_its_manager_is_away_and_back() {
    let mut manager = Manager::start();
    let mut browser = Browser::start();
    browser.screen(DESK);
    log_in(&mut browser, &manager);
    manager.restart();
    browser.until("it is not live", "!document.getElementById('live').classList.contains('on')");
    browser.until("it is live again", "document.getElementById('live').classList.contains('on')");
    browser.until("the page is there", "document.querySelector('main').dataset.ready === 'instances'");
}

/// Nothing sticks out sideways.
fn fits(browser: &mut Browser, screen: Screen, page: &str) {
    let width: Value = browser.evaluate("document.documentElement.scrollWidth");
    assert!(width.as_u64() <= Some(u64::from(screen.width)), "{page} is {width} wide on {screen:?}");
}
