// Which page is shown, who looks at it, and that it stays fresh.

import { login, logout, who } from "/console/api.js";
import { el, fill } from "/console/dom.js";
import { alarms, instance, instances, operations, pack, packages, subscriptions } from "/console/pages.js";
import { operation } from "/console/operation.js";

const content = document.getElementById("content");
const nav = document.querySelector("nav");
const bar = document.querySelector(".who");
const live = document.getElementById("live");

// A page is a function that gives elements; `follows` names what it shows, `stays` means that it keeps itself fresh.
const PAGES = {
  instances: { show: instances, one: instance, follows: ["instances", "operations"] },
  operations: { show: operations, one: operation, follows: ["operations"] },
  packages: { show: packages, one: pack, follows: ["packages"] },
  alarms: { show: alarms, follows: ["alarms"] },
  subscriptions: { show: subscriptions, follows: ["subscriptions"] },
};

let me = null;
// Pages are asked for one after the other: `turn` tells the present one from those that were left meanwhile,
// `stale` that something changed while one was being asked for.
let turn = 0;
let asking = false;
let stale = false;
let leave = null;
let stream = null;
let timer = null;

function place() {
  const [, name, id] = location.hash.split("/");
  return { name: PAGES[name] ? name : "instances", id: id ? decodeURIComponent(id) : null };
}

/** Shows the page of the address. `moved` tells a new page from a fresh look at the same one. */
async function show(moved) {
  const { name, id } = place();
  const page = PAGES[name];
  if (!moved) {
    if (leave) return; // The page listens by itself.
    if (asking) {
      stale = true;
      return;
    }
  }
  const mine = ++turn;
  asking = true;
  stale = false;
  leave?.();
  leave = null;
  for (const link of nav.querySelectorAll("a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const context = {
      me,
      refresh: () => show(false),
      // A page that was left before it was there stops at once.
      onLeave: (stop) => { if (mine === turn) leave = stop; else stop(); },
      isLeft: () => mine !== turn,
    };
    const shown = id && page.one ? await page.one(id, content, context) : await page.show(context);
    if (mine !== turn) return;
    if (shown) fill(content, ...shown);
    document.title = `${content.querySelector("h1")?.firstChild?.textContent ?? "Guywire"} · Guywire`;
    if (moved) content.focus({ preventScroll: true });
    content.dataset.ready = name;
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 401) return start();
    fill(content, el("h1", {}, "This did not work"), el("p", { class: "problem", role: "alert" }, error.message));
    if (!error.status) {
      clearTimeout(timer);
      timer = setTimeout(() => show(false), 2000);
    }
  } finally {
    if (mine === turn) {
      asking = false;
      if (stale) show(false);
    }
  }
}

/** Hears that something changed, and looks again at what is shown. */
function listen() {
  stream?.close();
  stream = new EventSource("/guywire/v1/events");
  const set = (on) => {
    live.classList.toggle("on", on);
    live.textContent = on ? "live" : "not live";
  };
  set(false);
  let before = false;
  stream.addEventListener("hello", () => {
    set(true);
    // What happened while nobody listened is not told again.
    if (before) show(false);
    before = true;
  });
  stream.addEventListener("changed", (event) => {
    const { types } = JSON.parse(event.data);
    if (types.some((type) => PAGES[place().name].follows.includes(type))) show(false);
  });
  stream.onerror = () => {
    set(false);
    // A browser tries again by itself unless the answer was a refusal.
    if (stream.readyState === EventSource.CLOSED) start();
  };
}

function ask(message) {
  stream?.close();
  nav.hidden = bar.hidden = true;
  const token = el("input", { type: "password", id: "token", name: "token", autocomplete: "current-password", required: true });
  const problem = el("p", { class: "problem", role: "alert", hidden: !message }, message ?? "");
  const button = el("button", { class: "primary" }, "Log in");
  const form = el("form", { class: "card login" },
    el("h1", {}, "Log in"),
    el("label", { for: "token" }, "Token"),
    token, problem, button,
    el("p", { class: "muted" }, "The first one is in the manager's data directory, in ", el("code", {}, "admin-token"),
      "; ", el("code", {}, "guywire token create"), " makes more."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await login(token.value.trim());
      await start();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      button.disabled = false;
      token.select();
    }
  });
  fill(content, form);
  content.dataset.ready = "login";
  token.focus();
}

async function start() {
  leave?.();
  leave = null;
  try {
    me = await who();
  } catch (error) {
    fill(content, el("p", { class: "problem", role: "alert" }, error.message));
    clearTimeout(timer);
    timer = setTimeout(start, 2000);
    return;
  }
  if (!me) return ask();
  nav.hidden = bar.hidden = false;
  document.getElementById("who").textContent = `${me.name} (${me.role})`;
  listen();
  await show(true);
}

document.getElementById("logout").addEventListener("click", async () => {
  await logout().catch(() => null);
  me = null;
  ask();
});
window.addEventListener("hashchange", () => { if (me) show(true); });

// A browser keeps six connections to one server at most, and each stream holds one: pages that nobody looks at let go.
function rest() {
  leave?.();
  leave = null;
  stream?.close();
}
window.addEventListener("pagehide", rest);
window.addEventListener("pageshow", (event) => { if (event.persisted) start(); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    rest();
  } else if (me) {
    listen();
    show(true);
  }
});
start();
