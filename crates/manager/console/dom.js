// Elements out of data. Text is only ever set as text, so whatever a name holds is shown and never run.

/** An element with attributes and children; strings become text. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "href" && !/^(#|\/|https?:)/.test(value)) {
      // A callback's address comes from others: nothing but a link may come of it.
      continue;
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Replaces what an element holds. Focus and scrolling stay where they were when the page is the same. */
export function fill(parent, ...children) {
  const held = document.activeElement;
  const key = parent.contains(held) ? held.getAttribute("href") ?? held.dataset.key : null;
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  if (key) {
    const again = [...parent.querySelectorAll("a, button")].find(
      (one) => one.getAttribute("href") === key || one.dataset.key === key,
    );
    again?.focus({ preventScroll: true });
  }
}

const MOODS = {
  good: ["INSTANTIATED", "COMPLETED", "ONBOARDED", "ENABLED", "STARTED", "CLEARED", "succeeded"],
  busy: ["STARTING", "PROCESSING", "ROLLING_BACK", "UPLOADING", "running", "created", "stopping", "undoing"],
  bad: ["FAILED", "FAILED_TEMP", "CRITICAL", "MAJOR", "REFUSED", "failed", "blocked"],
  warn: ["ROLLED_BACK", "MINOR", "WARNING", "STOPPED", "cancelled", "undone", "abandoned"],
};

/** A state as a small label; the word is always there, the colour only helps. */
export function badge(state) {
  if (!state) return "";
  const mood = Object.keys(MOODS).find((name) => MOODS[name].includes(state)) ?? "";
  return el("span", { class: `badge ${mood}` }, state);
}

/** A table that becomes cards on a phone. Columns: [label, row => child, class]. */
export function table(rows, columns, nothing) {
  if (rows.length === 0) return el("p", { class: "empty" }, nothing);
  const cell = (row, [label, content, kind]) => {
    const inside = content(row);
    return el("td", { "data-label": label, class: kind }, inside ?? "");
  };
  return el("div", { class: "card" },
    el("table", { class: "list" },
      el("thead", {}, el("tr", {}, columns.map(([label]) => el("th", { scope: "col" }, label)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((column) => cell(row, column)))))));
}

/** Names and values; what has no value is left out. */
export function facts(pairs) {
  const there = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("div", { class: "card" },
    el("dl", {}, there.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

/** A moment as this reader writes it, with the exact one behind it. */
export function time(text) {
  if (!text) return "";
  const moment = new Date(text);
  const today = moment.toDateString() === new Date().toDateString();
  const shown = today
    ? moment.toLocaleTimeString()
    : moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return el("time", { datetime: text, title: text }, shown);
}

/** Seconds as people say them. */
export function span(seconds) {
  if (seconds === undefined || seconds === null) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** The part of an id that tells it from others of the same minute. */
export function short(id) {
  return el("span", { class: "mono", title: id }, id ? `…${id.slice(-8)}` : "");
}
